/* Devices, drivers, and which image of a container runs: see resolver.c. */
#ifndef ORTPACKS_RESOLVER_H
#define ORTPACKS_RESOLVER_H

#include <stdint.h>

typedef struct {
    int capability; /* 86 for 8.6 */
    int embedded;
    int shared_kib;   /* cudaDevAttrMaxSharedMemoryPerBlockOptin. Source: CUDA C++ Programming Guide, table of limits */
    int threads;      /* of a multiprocessor. Same source */
    int first_branch; /* first driver branch that knows it; 0: any that runs CUDA 12 */
    int last_branch;  /* last one; 0: no end known */
} Device;

typedef struct {
    int error; /* 0, NO_KERNEL_IMAGE or UNSUPPORTED_PTX */
    int jit;   /* whether the driver compiles PTX */
    int code;  /* architecture of the image it takes, 86 */
} Resolved;

const Device *find_device(int capability);
/* CUDA version of a driver branch, 124 for 550; 0 for one older than CUDA 11. */
int driver_cuda(int branch);
/* Whether SASS of an architecture runs; flags are those of an image in a fatbin. */
int sass_runs(int code, uint64_t flags, const Device *device);
/* What a driver of this branch takes of a container for a device. */
Resolved resolve(const void *fatbin, int capability, int branch);

#endif
