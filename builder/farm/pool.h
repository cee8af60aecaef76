/* Claims on a slot and memory of the machine; a claim lasts until the process that made it ends. */
#ifndef ORTPACKS_POOL_H
#define ORTPACKS_POOL_H

/* Waits for a job slot and memory for the unit OUTPUT. Returns at once without $UNIT_POOL. */
void claim(const char *output);

/* Waits for one more slot, and as much memory as the unit has now, for a piece of the unit OUTPUT. Stops waiting when
 * GIVEN_UP, which pauses briefly, returns other than 0. Returns whether it has them. Returns 0 at once without
 * $UNIT_POOL, and where the memory does not suffice for two such claims. */
int claim_spare(const char *output, int (*given_up)(void));

#endif
