// A unit.
#if WITH_FAST
__global__ void kernel() {}
#endif
