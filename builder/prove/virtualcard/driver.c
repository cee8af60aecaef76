/* The functions of libcuda.so.1, the driver's library, that a provider uses.
 *
 * A provider of ORT 1.21 with the contrib ops opens libcuda.so.1 while it is being loaded (a static CUDADriverWrapper,
 * contrib_ops/cuda/bert/tensorrt_fused_multihead_attention/cudaDriverWrapper.cc) and requires these names. If the file
 * or a name is missing, the provider throws through a bridge that is not initialised yet, and the process dies of
 * SIGSEGV; 1.23.2 returns an error message. The provider loads its cubins of TensorRT's fused attention through this
 * library and launches their kernels.
 *
 * Where no card is claimed, this is a driver without a device, which NVIDIA's own runtime reports. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_abi.h"
#include "resolver.h"

enum { INVALID_VALUE = 1, CUBIN_MACHINE = 190 }; /* EM_CUDA */

typedef struct { /* Elf64_Ehdr up to its flags; a cubin's lowest byte of flags is its architecture (cuobjdump -elf) */
    unsigned char ident[16];
    uint16_t type, machine;
    uint32_t version;
    uint64_t entry, segments, sections;
    uint32_t flags;
} CubinHeader;

static int unclaimed(void) { return getenv("VIRTUALCARD_CAPABILITY") == NULL; }

static int ready(void) { return unclaimed() ? NO_DEVICE : card_error(); }

#define ANSWERS(name) \
    int name(void) { return ready(); }

ANSWERS(cuInit)
ANSWERS(cuFuncSetAttribute)
ANSWERS(cuFuncSetCacheConfig)
ANSWERS(cuModuleUnload)
ANSWERS(cuTensorMapEncodeTiled)

#define REFUSES(name) \
    int name(void) { return unclaimed() ? NO_DEVICE : NOT_SUPPORTED; }

REFUSES(cuLinkCreate_v2)
REFUSES(cuLinkAddFile_v2)
REFUSES(cuLinkAddData_v2)
REFUSES(cuLinkComplete)
REFUSES(cuLinkDestroy)

const char *cudaGetErrorName(int error);
int cudaDeviceGetAttribute(int *value, int attribute, int number);

int cuGetErrorName(int error, const char **name) {
    if (unclaimed()) return NO_DEVICE;
    return *name = cudaGetErrorName(error), SUCCESS;
}

int cuDeviceGetAttribute(int *value, int attribute, int number) {
    return unclaimed() ? NO_DEVICE : cudaDeviceGetAttribute(value, attribute, number); /* the attributes have the same numbers */
}

int cuModuleLoadData(void **module, const void *image) {
    const CubinHeader *cubin = image;
    if (ready()) return ready();
    *module = NULL;
    if (memcmp(cubin->ident, "\177ELF", 4) != 0 || cubin->machine != CUBIN_MACHINE) return INVALID_VALUE;
    if (!cubin_runs((int)(cubin->flags & 0xff))) return NO_KERNEL_IMAGE;
    *module = (void *)image;
    return SUCCESS;
}

int cuModuleGetFunction(void **function, void *module, const char *name) {
    if (ready()) return ready();
    return *function = (void *)name, module ? SUCCESS : INVALID_VALUE; /* the provider's constant */
}

int cuLaunchKernel(void *function) { return ready() ? ready() : counted(function); }
int cuLaunchCooperativeKernel(void *function) { return cuLaunchKernel(function); }
