/* A stand-in for a GPU, for tests only: what ONNX Runtime's CUDA provider imports from cudart, cuBLAS, cuDNN and
 * cuFFT, answered without a driver. Preloaded, it comes before NVIDIA's libraries.
 *
 * Device memory is host memory, zeroed, so that copies are real; a kernel is counted by its name and skipped, and so is
 * a call into cuBLAS or cuDNN. What a session computes is therefore worthless; which provider runs which node, and
 * how many kernels it would have launched, is not.
 *
 *   FAKE_CAPABILITY  the device's compute capability, like 8.6
 *   FAKE_REPORT      where the counts go when the process ends: "COUNT NAME" a line
 *
 * The functions that need no answer but "success" are not here: compiling.py writes them, for whatever a provider imports
 * beyond these. */
#include <cublasLt.h>
#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_NAMES = 65536, MEMORY_GIB = 8, PROCESSORS = 8, THREADS = 1024, SHARED_KIB = 48 };

typedef struct {
    const void *key;
    const char *name;
    unsigned long count;
} Counter;

static Counter counters[MAX_NAMES];

static Counter *counter_of(const void *key) {
    size_t at = ((size_t)key >> 4) % MAX_NAMES;
    while (counters[at].key != NULL && counters[at].key != key) at = (at + 1) % MAX_NAMES;
    counters[at].key = key;
    return &counters[at];
}

int counted(const char *name) { /* called by what compiling.py writes */
    Counter *counter = counter_of(name);
    counter->name = name;
    counter->count++;
    return 0;
}

__attribute__((destructor)) static void report(void) {
    const char *path = getenv("FAKE_REPORT");
    FILE *file = path ? fopen(path, "w") : NULL;
    if (file == NULL) return;
    for (size_t at = 0; at < MAX_NAMES; at++)
        if (counters[at].count) fprintf(file, "%lu %s\n", counters[at].count, counters[at].name);
    fclose(file);
}

static void capability(int *major, int *minor) {
    const char *text = getenv("FAKE_CAPABILITY");
    if (text == NULL || sscanf(text, "%d.%d", major, minor) != 2) {
        fprintf(stderr, "FAKE_CAPABILITY must be like 8.6\n");
        abort();
    }
}

/* --- kernels ----------------------------------------------------------------------------------------------------- */

void **__cudaRegisterFatBinary(void *fatbin) { return (void **)calloc(1, sizeof fatbin); }
void __cudaRegisterFatBinaryEnd(void **handle) { (void)handle; }
void __cudaUnregisterFatBinary(void **handle) { free(handle); }
void __cudaRegisterVar(void) {}

void __cudaRegisterFunction(void **handle, const void *host, char *device, const char *name) {
    (void)handle, (void)device;
    counter_of(host)->name = name;
}

unsigned __cudaPushCallConfiguration(void) { return 0; }
cudaError_t __cudaPopCallConfiguration(void) { return cudaSuccess; }

cudaError_t cudaLaunchKernel(const void *host, dim3 grid, dim3 block, void **arguments, size_t shared, cudaStream_t stream) {
    (void)grid, (void)block, (void)arguments, (void)shared, (void)stream;
    counter_of(host)->count++;
    return cudaSuccess;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *data) {
    (void)stream;
    function(data);
    return cudaSuccess;
}

/* --- the device -------------------------------------------------------------------------------------------------- */

cudaError_t cudaGetDeviceCount(int *count) { return *count = 1, cudaSuccess; }
cudaError_t cudaGetDevice(int *device) { return *device = 0, cudaSuccess; }
cudaError_t cudaRuntimeGetVersion(int *version) { return *version = CUDART_VERSION, cudaSuccess; }
cudaError_t cudaGetLastError(void) { return cudaSuccess; }
cudaError_t cudaPeekAtLastError(void) { return cudaSuccess; }
const char *cudaGetErrorName(cudaError_t error) { return error ? "fake error" : "cudaSuccess"; }
const char *cudaGetErrorString(cudaError_t error) { return cudaGetErrorName(error); }

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device) { /* _v2 by the header's macro */
    (void)device;
    memset(properties, 0, sizeof *properties);
    strcpy(properties->name, "fake");
    capability(&properties->major, &properties->minor);
    properties->totalGlobalMem = (size_t)MEMORY_GIB << 30;
    properties->multiProcessorCount = PROCESSORS;
    properties->warpSize = 32;
    properties->maxThreadsPerBlock = properties->maxThreadsPerMultiProcessor = THREADS;
    properties->maxThreadsDim[0] = properties->maxThreadsDim[1] = THREADS;
    properties->maxThreadsDim[2] = 64;
    properties->maxGridSize[0] = 2147483647;
    properties->maxGridSize[1] = properties->maxGridSize[2] = 65535;
    properties->sharedMemPerBlock = properties->sharedMemPerBlockOptin = SHARED_KIB << 10;
    properties->sharedMemPerMultiprocessor = 2 * (SHARED_KIB << 10);
    properties->regsPerBlock = properties->regsPerMultiprocessor = 65536;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device) {
    struct cudaDeviceProp properties;
    cudaGetDeviceProperties(&properties, device);
    switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor: *value = properties.major; break;
    case cudaDevAttrComputeCapabilityMinor: *value = properties.minor; break;
    case cudaDevAttrMultiProcessorCount: *value = PROCESSORS; break;
    case cudaDevAttrMaxSharedMemoryPerBlock:
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = SHARED_KIB << 10; break;
    default: *value = 1;
    }
    return cudaSuccess;
}

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attributes, const void *function) {
    (void)function;
    memset(attributes, 0, sizeof *attributes);
    attributes->maxThreadsPerBlock = THREADS;
    capability(&attributes->ptxVersion, &attributes->binaryVersion);
    attributes->ptxVersion = attributes->binaryVersion += 10 * attributes->ptxVersion;
    return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, const void *f, int t, size_t s, unsigned flags) {
    (void)f, (void)t, (void)s, (void)flags;
    return *blocks = 1, cudaSuccess;
}

/* --- memory ------------------------------------------------------------------------------------------------------ */

cudaError_t cudaMalloc(void **memory, size_t size) {
    *memory = calloc(1, size ? size : 1);
    return *memory ? cudaSuccess : cudaErrorMemoryAllocation;
}
cudaError_t cudaMallocHost(void **memory, size_t size) { return cudaMalloc(memory, size); }
cudaError_t cudaHostAlloc(void **memory, size_t size, unsigned flags) { return (void)flags, cudaMalloc(memory, size); }
cudaError_t cudaFree(void *memory) { return free(memory), cudaSuccess; }
cudaError_t cudaFreeHost(void *memory) { return free(memory), cudaSuccess; }

cudaError_t cudaMemGetInfo(size_t *available, size_t *total) {
    return *available = *total = (size_t)MEMORY_GIB << 30, cudaSuccess;
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t size, enum cudaMemcpyKind kind) {
    (void)kind;
    memmove(to, from, size);
    return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t size, enum cudaMemcpyKind kind, cudaStream_t stream) {
    return (void)stream, cudaMemcpy(to, from, size, kind);
}
cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height,
                              enum cudaMemcpyKind kind, cudaStream_t stream) {
    (void)kind, (void)stream;
    for (size_t row = 0; row < height; row++)
        memmove((char *)to + row * to_pitch, (const char *)from + row * from_pitch, width);
    return cudaSuccess;
}
cudaError_t cudaMemset(void *memory, int value, size_t size) { return memset(memory, value, size), cudaSuccess; }
cudaError_t cudaMemsetAsync(void *memory, int value, size_t size, cudaStream_t stream) {
    return (void)stream, cudaMemset(memory, value, size);
}

/* --- cuBLAS, cuDNN: what hands something back -------------------------------------------------------------------- */

cublasStatus_t cublasGetMathMode(cublasHandle_t handle, cublasMath_t *mode) {
    return (void)handle, *mode = CUBLAS_DEFAULT_MATH, CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation, cublasLtMatrixLayout_t a,
                                              cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t results[], int *found) {
    (void)handle, (void)operation, (void)a, (void)b, (void)c, (void)d, (void)preference, (void)wanted;
    memset(results, 0, sizeof *results);
    return *found = 1, CUBLAS_STATUS_SUCCESS;
}

size_t cudnnGetVersion(void) { return CUDNN_VERSION; }
const char *cudnnGetErrorString(cudnnStatus_t status) { return status ? "fake error" : "CUDNN_STATUS_SUCCESS"; }
void cudnnGetLastErrorString(char *message, size_t size) { if (size) *message = 0; }

cudnnStatus_t cudnnGetStream(cudnnHandle_t handle, cudaStream_t *stream) {
    return (void)handle, *stream = NULL, CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetTensorNdDescriptor(const cudnnTensorDescriptor_t descriptor, int wanted, cudnnDataType_t *type,
                                         int *rank, int dims[], int strides[]) {
    (void)descriptor;
    *type = CUDNN_DATA_FLOAT;
    *rank = wanted;
    memset(dims, 0, (size_t)wanted * sizeof *dims);
    memset(strides, 0, (size_t)wanted * sizeof *strides);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetRNNTempSpaceSizes(cudnnHandle_t handle, cudnnRNNDescriptor_t rnn, cudnnForwardMode_t mode,
                                        cudnnRNNDataDescriptor_t x, size_t *work, size_t *reserve) {
    (void)handle, (void)rnn, (void)mode, (void)x;
    if (work) *work = 0;
    if (reserve) *reserve = 0;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetRNNWeightParams(cudnnHandle_t handle, cudnnRNNDescriptor_t rnn, int32_t layer, size_t size,
                                      const void *space, int32_t id, cudnnTensorDescriptor_t m, void **matrix,
                                      cudnnTensorDescriptor_t b, void **bias) {
    (void)handle, (void)rnn, (void)layer, (void)size, (void)id, (void)m, (void)b;
    *matrix = *bias = (void *)space;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDropoutGetStatesSize(cudnnHandle_t handle, size_t *size) {
    return (void)handle, *size = 0, CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t no_bytes(size_t *size) { return *size = 0, CUDNN_STATUS_SUCCESS; }

cudnnStatus_t cudnnGetReductionWorkspaceSize(cudnnHandle_t handle, const cudnnReduceTensorDescriptor_t reduce,
                                             const cudnnTensorDescriptor_t a, const cudnnTensorDescriptor_t c, size_t *size) {
    return (void)handle, (void)reduce, (void)a, (void)c, no_bytes(size);
}
cudnnStatus_t cudnnGetReductionIndicesSize(cudnnHandle_t handle, const cudnnReduceTensorDescriptor_t reduce,
                                           const cudnnTensorDescriptor_t a, const cudnnTensorDescriptor_t c, size_t *size) {
    return (void)handle, (void)reduce, (void)a, (void)c, no_bytes(size);
}
cudnnStatus_t cudnnGetConvolutionForwardWorkspaceSize(cudnnHandle_t handle, const cudnnTensorDescriptor_t x,
                                                      const cudnnFilterDescriptor_t w, const cudnnConvolutionDescriptor_t c,
                                                      const cudnnTensorDescriptor_t y, cudnnConvolutionFwdAlgo_t algorithm,
                                                      size_t *size) {
    return (void)handle, (void)x, (void)w, (void)c, (void)y, (void)algorithm, no_bytes(size);
}

/* --- cuDNN's graph API: any descriptor is one zeroed block, any list has one element ------------------------------ */

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t *descriptor) {
    (void)type;
    return *descriptor = calloc(1, 64), CUDNN_STATUS_SUCCESS;
}

static size_t element_size(cudnnBackendAttributeType_t type) {
    return type == CUDNN_TYPE_INT64 || type == CUDNN_TYPE_DOUBLE || type == CUDNN_TYPE_VOID_PTR ? 8 : 4;
}

cudnnStatus_t cudnnBackendGetAttribute(const cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t wanted, int64_t *count, void *elements) {
    (void)descriptor, (void)name;
    if (count) *count = 1;
    if (elements && wanted && type != CUDNN_TYPE_BACKEND_DESCRIPTOR) memset(elements, 0, element_size(type));
    return CUDNN_STATUS_SUCCESS;
}
