/* Devices, drivers, and the image of a container that runs: see resolver.c. */
#ifndef ORTPACKS_RESOLVER_H
#define ORTPACKS_RESOLVER_H

#include <stdint.h>

typedef struct {
    int capability; /* 86 for 8.6 */
    int embedded;
    int shared_kib;   /* cudaDevAttrMaxSharedMemoryPerBlockOptin. Source: CUDA C++ Programming Guide, table of limits */
    int threads;      /* of a multiprocessor. Same source */
    int first_branch; /* first driver branch that supports it; 0: any that runs CUDA 12 */
    int last_branch;  /* last driver branch that supports it; 0: none known */
} Device;

typedef struct {
    int error; /* 0, NO_KERNEL_IMAGE or UNSUPPORTED_PTX */
    int jit;   /* whether the driver compiles PTX */
    int code;  /* architecture of the image that the driver runs, 86 */
} Resolved;

const Device *find_device(int capability);
/* Returns the CUDA version of a driver branch, 124 for 550; 0 for a branch older than CUDA 11. */
int driver_cuda(int branch);
/* Returns whether SASS of an architecture runs; flags are those of an image in a fatbin. */
int sass_runs(int code, uint64_t flags, const Device *device);
/* Returns the image of a container that a driver of this branch runs on a device, or the error. */
Resolved resolve(const void *fatbin, int capability, int branch);

#endif
