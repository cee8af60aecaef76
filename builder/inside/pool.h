/* A compiler's share of the machine, for as long as the process that claimed it lives. */
#ifndef ORTPACKS_POOL_H
#define ORTPACKS_POOL_H

/* Waits for a job slot and memory for the unit OUTPUT. Without $UNIT_POOL there is nothing to wait for. */
void claim(const char *output);

/* Claims one more slot for a piece of the unit OUTPUT, and memory as for a unit, if no unit waits for them. Returns
 * whether it has them; without $UNIT_POOL it has not. */
int claim_spare(const char *output);

#endif
