/* A stand-in for CUDA's runtime and a device: the functions that ONNX Runtime's CUDA provider imports from cudart.
 *
 * Device memory is zeroed host memory, so copies are real. Each container that a library registers is resolved as the
 * claimed driver would resolve it (resolver.c). A kernel is counted by its name and not executed, or refused with its
 * container's error on this device, at its first use, because CUDA 12 loads lazily. So the outputs of a session are
 * meaningless, but the provider of each node, the launched kernels and the refused ones are as on a real device.
 *
 *   VIRTUALCARD_CAPABILITY  the device's compute capability, like 8.6
 *   VIRTUALCARD_DRIVER      the driver's version, like 580.65.06
 *   VIRTUALCARD_CUDA        12 or 13: the CUDA version of the runtime
 *
 * libraries.c has functions of cuBLAS, cuBLASLt and cuDNN, driver.c those of libcuda.so.1. stubs.py writes all other
 * functions that a provider imports; they only return success. */
#define _GNU_SOURCE /* dl_iterate_phdr */
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_abi.h"
#include "resolver.h"

enum { MAX_NAMES = 1 << 17, MEMORY_GIB = 8, PROCESSORS = 8, THREADS = 1024, SHARED_KIB = 48, REGISTERS = 65536 };
enum { RUNTIME_VERSION = 12090, RUNTIME_VERSION_13 = 13000, FLOOR_13 = 580 };
static const int FLOOR_12[] = {525, 60, 13}; /* CUDA Compatibility, "Minor Version Compatibility": any CUDA 12 */

typedef struct Container {
    struct Container *next;
    const void *wrapper; /* in the library that registers it */
    int kernels;
    Resolved resolved;
} Container;

typedef struct {
    const void *key;
    const char *name;
    const Container *container; /* NULL for a function of NVIDIA's libraries */
    unsigned long count, refused;
} Counter;

static Counter counters[MAX_NAMES];
static Container *containers;
static __thread int last_error;

/* --- what is claimed ---------------------------------------------------------------------------------------------- */

typedef struct {
    const Device *device;
    int branch;
    int error; /* the error of every call of the runtime */
} Claim;

static int number_in(const char **text) {
    int number = 0;
    while (**text >= '0' && **text <= '9') number = 10 * number + (*(*text)++ - '0');
    if (**text == '.') ++*text;
    return number;
}

static int older_than_floor(const char *version) {
    for (int at = 0; at < 3; at++) {
        const int part = number_in(&version);
        if (part != FLOOR_12[at]) return part < FLOOR_12[at];
    }
    return 0;
}

static Claim claim_of(const char *capability, const char *driver) {
    Claim made = {NULL, 0, SUCCESS};
    const int major = number_in(&capability);
    const char *branch = driver;
    made.device = find_device(10 * major + number_in(&capability));
    made.branch = number_in(&branch);
    if (older_than_floor(driver)) made.error = INSUFFICIENT_DRIVER;
    else if (made.device == NULL || made.branch < made.device->first_branch) made.error = NO_DEVICE;
    else if (made.device->last_branch && made.branch > made.device->last_branch) made.error = NO_DEVICE;
    return made;
}

static int for_cuda_13(void) {
    const char *cuda = getenv("VIRTUALCARD_CUDA");
    return cuda != NULL && strcmp(cuda, "13") == 0;
}

static const Claim *claim(void) {
    static Claim made;
    if (made.branch != 0) return &made;
    const char *capability = getenv("VIRTUALCARD_CAPABILITY"), *driver = getenv("VIRTUALCARD_DRIVER");
    if (capability == NULL || driver == NULL) {
        fprintf(stderr, "VIRTUALCARD_CAPABILITY and VIRTUALCARD_DRIVER must be set, like 8.6 and 580.65.06\n");
        abort();
    }
    made = claim_of(capability, driver);
    if (for_cuda_13() && made.branch < FLOOR_13) made.error = INSUFFICIENT_DRIVER;
    return &made;
}

static int capability_of(void) { return claim()->device ? claim()->device->capability : 0; }

static int said(int error) { return error ? last_error = error : SUCCESS; }

int cubin_runs(int code) { return claim()->device && sass_runs(code, 0, claim()->device); }

int card_error(void) { return said(claim()->error); }

/* --- counting ----------------------------------------------------------------------------------------------------- */

static char lock;

static Counter *counter_of(const void *key) {
    while (__atomic_test_and_set(&lock, __ATOMIC_ACQUIRE)) {}
    size_t at = ((size_t)key >> 4) % MAX_NAMES;
    while (counters[at].key != NULL && counters[at].key != key) at = (at + 1) % MAX_NAMES;
    counters[at].key = key;
    __atomic_clear(&lock, __ATOMIC_RELEASE);
    return &counters[at];
}

/* Counts a call; the stubs of stubs.py call it. A function of cudart fails where the claim is an error. */
int counted(const char *name) {
    if (strncmp(name, "cuda", 4) == 0 && claim()->error) return card_error();
    Counter *counter = counter_of(name);
    counter->name = name;
    __atomic_add_fetch(&counter->count, 1, __ATOMIC_RELAXED);
    return SUCCESS;
}

/* Counts a call of a function that creates an object, and sets its handle to a zeroed block. */
int made(void **block, const char *name) {
    *block = calloc(1, 64);
    return counted(name);
}

static int used(const void *function, int launched) {
    Counter *kernel = counter_of(function);
    const int error = kernel->container ? kernel->container->resolved.error : SUCCESS;
    if (claim()->error) return card_error();
    if (launched) __atomic_add_fetch(&kernel->count, 1, __ATOMIC_RELAXED);
    if (error) __atomic_add_fetch(&kernel->refused, 1, __ATOMIC_RELAXED);
    return said(error);
}

typedef struct {
    ElfW(Addr) address;
    const char *path; /* of the library that contains the address */
} Place;

static int holds(struct dl_phdr_info *library, size_t size, void *data) {
    Place *place = data;
    (void)size;
    for (int at = 0; at < library->dlpi_phnum; at++) {
        const ElfW(Phdr) *segment = &library->dlpi_phdr[at];
        if (segment->p_type != PT_LOAD) continue;
        if (place->address - (library->dlpi_addr + segment->p_vaddr) >= segment->p_memsz) continue;
        place->path = library->dlpi_name;
        return 1;
    }
    return 0;
}

/* Returns the file name of the library at an address; empty where there is none. dladdr would need glibc 2.34. */
static const char *library_at(const void *address) {
    Place place = {(ElfW(Addr))address, ""};
    dl_iterate_phdr(holds, &place);
    const char *slash = strrchr(place.path, '/');
    return slash ? slash + 1 : place.path;
}

/* Writes a line for each registered container, and each kernel and function used since the last report, with tabs
 * between fields. Returns 0 on success. */
int virtualcard_report(const char *path) {
    FILE *file = fopen(path, "w");
    if (file == NULL) return -1;
    for (const Container *one = containers; one != NULL; one = one->next)
        fprintf(file, "container\t%s\t%d\t%d\t%d\n", library_at(one->wrapper), one->resolved.error,
                one->resolved.jit, one->kernels);
    for (size_t at = 0; at < MAX_NAMES; at++) {
        Counter *one = &counters[at];
        if (one->count == 0 && one->refused == 0) continue;
        const int error = one->container ? one->container->resolved.error : SUCCESS;
        fprintf(file, "%s\t%s\t%lu\t%d\n", one->container ? "kernel" : "call", one->name, one->count,
                one->refused ? error : SUCCESS);
        one->count = one->refused = 0;
    }
    return fclose(file);
}

/* Returns the error of every call with this card and driver; 0 where a machine can have both. */
int virtualcard_error(const char *capability, const char *driver) { return claim_of(capability, driver).error; }

/* Returns how a driver runs one container: 0 native, 1 JIT, or the error. */
int virtualcard_resolve(const void *fatbin, int capability, int branch) {
    const Resolved found = resolve(fatbin, capability, branch);
    return found.error ? found.error : found.jit;
}

/* --- kernels ------------------------------------------------------------------------------------------------------ */

typedef struct { /* in .nvFatBinSegment */
    int magic, version;
    const void *data;
    const void *others;
} Wrapper;

void **__cudaRegisterFatBinary(const Wrapper *wrapper) {
    Container *container = calloc(1, sizeof *container);
    if (container == NULL) abort();
    container->wrapper = wrapper;
    container->resolved = resolve(wrapper->data, capability_of(), claim()->branch);
    container->next = containers;
    containers = container;
    return (void **)container;
}
void __cudaRegisterFatBinaryEnd(void **handle) { (void)handle; }
/* A host that loads a plug-in to look at it unloads it, and loads it again for use. */
void __cudaUnregisterFatBinary(void **handle) {
    for (Container **one = &containers; *one != NULL; one = &(*one)->next) {
        if (*one != (Container *)handle) continue;
        *one = (*one)->next; /* its kernels still point to it */
        return;
    }
}
void __cudaRegisterVar(void) {}

void __cudaRegisterFunction(void **handle, const void *host, char *device, const char *name) {
    Counter *kernel = counter_of(host);
    (void)device;
    kernel->name = name;
    kernel->container = (Container *)handle;
    ((Container *)handle)->kernels++;
}

unsigned __cudaPushCallConfiguration(void) { return 0; }
int __cudaPopCallConfiguration(void) { return SUCCESS; }

int cudaLaunchKernel(const void *function, Dim3 grid, Dim3 block, void **arguments, size_t shared, void *stream) {
    (void)grid, (void)block, (void)arguments, (void)shared, (void)stream;
    return used(function, 1);
}
int cudaLaunchCooperativeKernel(const void *function, Dim3 grid, Dim3 block, void **arguments, size_t shared, void *stream) {
    return cudaLaunchKernel(function, grid, block, arguments, shared, stream);
}
int cudaLaunchKernelExC(const void *configuration, const void *function, void **arguments) {
    (void)configuration, (void)arguments;
    return used(function, 1);
}
/* CUDA 13: the handle of a kernel is the function that it was registered with. */
int __cudaGetKernel(const void **kernel, const void *function) { return *kernel = function, SUCCESS; }
int __cudaLaunchKernel(const void *kernel, Dim3 grid, Dim3 block, void **arguments, size_t shared, void *stream) {
    return cudaLaunchKernel(kernel, grid, block, arguments, shared, stream);
}
int cudaKernelSetAttributeForDevice(const void *kernel, int attribute, int value, int number) {
    return (void)attribute, (void)value, (void)number, used(kernel, 0);
}
int cudaLibraryLoadData(void **library) { return *library = NULL, said(NOT_SUPPORTED); }

int cudaLaunchHostFunc(void *stream, void (*function)(void *), void *data) {
    (void)stream;
    if (claim()->error) return card_error();
    function(data);
    return SUCCESS;
}

int cudaFuncSetAttribute(const void *function, int attribute, int value) {
    return (void)attribute, (void)value, used(function, 0);
}
int cudaFuncSetCacheConfig(const void *function, int configuration) { return (void)configuration, used(function, 0); }

int cudaFuncGetAttributes(FunctionAttributes *attributes, const void *function) {
    memset(attributes, 0, sizeof *attributes);
    attributes->maxThreadsPerBlock = THREADS;
    attributes->ptxVersion = attributes->binaryVersion = capability_of();
    return used(function, 0);
}

int cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, const void *function, int threads, size_t shared,
                                                           unsigned flags) {
    (void)threads, (void)shared, (void)flags;
    *blocks = 1;
    return used(function, 0);
}
int cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *function, int threads, size_t shared) {
    return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, threads, shared, 0);
}

/* --- the device --------------------------------------------------------------------------------------------------- */

int cudaGetDeviceCount(int *count) { return *count = claim()->error ? 0 : 1, card_error(); }
int cudaGetDevice(int *device) { return *device = 0, card_error(); }
int cudaRuntimeGetVersion(int *version) {
    return *version = for_cuda_13() ? RUNTIME_VERSION_13 : RUNTIME_VERSION, SUCCESS;
}
int cudaDriverGetVersion(int *version) {
    const int cuda = driver_cuda(claim()->branch);
    return *version = cuda / 10 * 1000 + cuda % 10 * 10, SUCCESS;
}
int cudaGetLastError(void) {
    const int error = last_error;
    return last_error = SUCCESS, error;
}
int cudaPeekAtLastError(void) { return last_error; }

const char *cudaGetErrorName(int error) {
    switch (error) {
    case SUCCESS: return "cudaSuccess";
    case OUT_OF_MEMORY: return "cudaErrorMemoryAllocation";
    case INSUFFICIENT_DRIVER: return "cudaErrorInsufficientDriver";
    case NO_DEVICE: return "cudaErrorNoDevice";
    case NO_KERNEL_IMAGE: return "cudaErrorNoKernelImageForDevice";
    case UNSUPPORTED_PTX: return "cudaErrorUnsupportedPtxVersion";
    case NOT_SUPPORTED: return "cudaErrorNotSupported";
    default: return "unrecognized error code";
    }
}
const char *cudaGetErrorString(int error) { /* cudart's own texts, because the client's doctor parses them */
    switch (error) {
    case SUCCESS: return "no error";
    case OUT_OF_MEMORY: return "out of memory";
    case INSUFFICIENT_DRIVER: return "CUDA driver version is insufficient for CUDA runtime version";
    case NO_DEVICE: return "no CUDA-capable device is detected";
    case NO_KERNEL_IMAGE: return "no kernel image is available for execution on the device";
    case UNSUPPORTED_PTX: return "the provided PTX was compiled with an unsupported toolchain.";
    case NOT_SUPPORTED: return "operation not supported";
    default: return "unrecognized error code";
    }
}

/* The two layouts have the same fields at different offsets. */
#define DEVICE_PROPERTIES(function, Layout) \
    int function(Layout *properties, int number) {                                                                     \
        const Device *device = claim()->device;                                                                        \
        (void)number;                                                                                                  \
        memset(properties, 0, sizeof *properties);                                                                     \
        if (claim()->error) return card_error();                                                                       \
        strcpy(properties->name, "virtual card");                                                                      \
        properties->major = device->capability / 10;                                                                   \
        properties->minor = device->capability % 10;                                                                   \
        properties->integrated = device->embedded;                                                                     \
        properties->totalGlobalMem = (size_t)MEMORY_GIB << 30;                                                         \
        properties->multiProcessorCount = PROCESSORS;                                                                  \
        properties->warpSize = 32;                                                                                     \
        properties->maxThreadsPerBlock = THREADS;                                                                      \
        properties->maxThreadsPerMultiProcessor = device->threads;                                                     \
        properties->maxThreadsDim[0] = properties->maxThreadsDim[1] = THREADS;                                         \
        properties->maxThreadsDim[2] = 64;                                                                             \
        properties->maxGridSize[0] = 2147483647;                                                                       \
        properties->maxGridSize[1] = properties->maxGridSize[2] = 65535;                                               \
        properties->sharedMemPerBlock = SHARED_KIB << 10;                                                              \
        properties->sharedMemPerBlockOptin = (size_t)device->shared_kib << 10;                                         \
        properties->sharedMemPerMultiprocessor = (size_t)(device->shared_kib + 1) << 10;                               \
        properties->regsPerBlock = properties->regsPerMultiprocessor = REGISTERS;                                      \
        return SUCCESS;                                                                                                \
    }

DEVICE_PROPERTIES(cudaGetDeviceProperties_v2, DeviceProperties)
DEVICE_PROPERTIES(cudaGetDeviceProperties, DeviceProperties13)

int cudaDeviceGetAttribute(int *value, int attribute, int number) {
    DeviceProperties properties;
    const int error = cudaGetDeviceProperties_v2(&properties, number);
    switch (attribute) {
    case COMPUTE_CAPABILITY_MAJOR: *value = properties.major; break;
    case COMPUTE_CAPABILITY_MINOR: *value = properties.minor; break;
    case MULTIPROCESSOR_COUNT: *value = properties.multiProcessorCount; break;
    case WARP_SIZE: *value = properties.warpSize; break;
    case INTEGRATED: *value = properties.integrated; break;
    case MAX_THREADS_PER_BLOCK: *value = properties.maxThreadsPerBlock; break;
    case MAX_THREADS_PER_MULTIPROCESSOR: *value = properties.maxThreadsPerMultiProcessor; break;
    case MAX_REGISTERS_PER_BLOCK: *value = properties.regsPerBlock; break;
    case MAX_REGISTERS_PER_MULTIPROCESSOR: *value = properties.regsPerMultiprocessor; break;
    case MAX_SHARED_MEMORY_PER_BLOCK: *value = (int)properties.sharedMemPerBlock; break;
    case MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: *value = (int)properties.sharedMemPerBlockOptin; break;
    case MAX_SHARED_MEMORY_PER_MULTIPROCESSOR: *value = (int)properties.sharedMemPerMultiprocessor; break;
    default: *value = 1;
    }
    return error;
}

int cudaGetDriverEntryPoint(const char *name, void **function, unsigned long long flags, int *status) {
    (void)name, (void)flags;
    *function = NULL;
    if (status) *status = 1; /* cudaDriverEntryPointSymbolNotFound */
    return said(NOT_SUPPORTED);
}

int cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned version, unsigned long long flags,
                                     int *status) {
    return (void)version, cudaGetDriverEntryPoint(name, function, flags, status);
}

/* --- streams and events: everything is done at once ---------------------------------------------------------------- */

int cudaStreamIsCapturing(void *stream, int *status) { return (void)stream, *status = 0, card_error(); }
int cudaEventElapsedTime(float *milliseconds, void *from, void *to) {
    return (void)from, (void)to, *milliseconds = 0, card_error();
}

/* --- memory ------------------------------------------------------------------------------------------------------- */

int cudaMalloc(void **memory, size_t size) {
    if (claim()->error) return card_error();
    *memory = calloc(1, size ? size : 1);
    return *memory ? SUCCESS : said(OUT_OF_MEMORY);
}
int cudaMallocAsync(void **memory, size_t size, void *stream) { return (void)stream, cudaMalloc(memory, size); }
int cudaMallocHost(void **memory, size_t size) { return cudaMalloc(memory, size); }
int cudaHostAlloc(void **memory, size_t size, unsigned flags) { return (void)flags, cudaMalloc(memory, size); }
int cudaFree(void *memory) { return free(memory), card_error(); }
int cudaFreeAsync(void *memory, void *stream) { return (void)stream, cudaFree(memory); }
int cudaFreeHost(void *memory) { return cudaFree(memory); }

int cudaMallocFromPoolAsync(void **memory, size_t size, void *pool, void *stream) {
    return (void)pool, (void)stream, cudaMalloc(memory, size);
}
int cudaMemPoolGetAttribute(void *pool, int attribute, void *value) { /* attributes up to 3 have type int */
    (void)pool;
    memset(value, 0, attribute <= 3 ? sizeof(int) : sizeof(long long));
    return card_error();
}
int cudaPointerGetAttributes(PointerAttributes *attributes, const void *memory) {
    memset(attributes, 0, sizeof *attributes);
    attributes->type = 2;
    attributes->devicePointer = (void *)memory;
    return card_error();
}

int cudaMemGetInfo(size_t *available, size_t *total) {
    return *available = *total = (size_t)MEMORY_GIB << 30, card_error();
}

int cudaMemcpy(void *to, const void *from, size_t size, int kind) {
    (void)kind;
    memmove(to, from, size);
    return SUCCESS;
}
int cudaMemcpyAsync(void *to, const void *from, size_t size, int kind, void *stream) {
    return (void)stream, cudaMemcpy(to, from, size, kind);
}
int cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height, int kind,
                      void *stream) {
    (void)kind, (void)stream;
    for (size_t row = 0; row < height; row++)
        memmove((char *)to + row * to_pitch, (const char *)from + row * from_pitch, width);
    return SUCCESS;
}
int cudaMemset(void *memory, int value, size_t size) { return memset(memory, value, size), SUCCESS; }
int cudaMemsetAsync(void *memory, int value, size_t size, void *stream) {
    return (void)stream, cudaMemset(memory, value, size);
}
