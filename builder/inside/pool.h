/* A compiler's share of the machine, for as long as the process that claimed it lives. */
#ifndef ORTPACKS_POOL_H
#define ORTPACKS_POOL_H

/* Waits for a job slot and memory for the unit OUTPUT. Without $UNIT_POOL there is nothing to wait for. */
void claim(const char *output);

/* Waits for one more slot for a piece of the unit OUTPUT, and memory as for a unit, until GIVEN_UP, which pauses, returns
 * other than 0. Returns whether it has them; it does not wait where there is no $UNIT_POOL, or no memory for two. */
int claim_spare(const char *output, int (*given_up)(void));

#endif
