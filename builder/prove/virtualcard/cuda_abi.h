/* The parts of CUDA 12's and 13's binary interfaces that the stand-in uses, written for this project: it is compiled
 * without NVIDIA's headers.
 *
 * Sources: driver_types.h, cublasLt.h, cudnn_graph.h and cudnn_ops.h of CUDA 12.9 and cuDNN 9.10, driver_types.h of CUDA
 * 13.0; tests/integration/test_virtualcard_abi.py compares every offset, size and number with them. */
#ifndef ORTPACKS_CUDA_ABI_H
#define ORTPACKS_CUDA_ABI_H

#include <stddef.h>

enum {
    SUCCESS = 0,
    OUT_OF_MEMORY = 2,        /* cudaErrorMemoryAllocation */
    INSUFFICIENT_DRIVER = 35, /* cudaErrorInsufficientDriver */
    NO_DEVICE = 100,          /* cudaErrorNoDevice */
    NO_KERNEL_IMAGE = 209,    /* cudaErrorNoKernelImageForDevice */
    UNSUPPORTED_PTX = 222,    /* cudaErrorUnsupportedPtxVersion */
    NOT_SUPPORTED = 801,      /* cudaErrorNotSupported */
};

enum { /* of cudaDeviceAttr */
    MAX_THREADS_PER_BLOCK = 1,
    MAX_SHARED_MEMORY_PER_BLOCK = 8,
    WARP_SIZE = 10,
    MAX_REGISTERS_PER_BLOCK = 12,
    MULTIPROCESSOR_COUNT = 16,
    INTEGRATED = 18,
    MAX_THREADS_PER_MULTIPROCESSOR = 39,
    COMPUTE_CAPABILITY_MAJOR = 75,
    COMPUTE_CAPABILITY_MINOR = 76,
    MAX_SHARED_MEMORY_PER_MULTIPROCESSOR = 81,
    MAX_REGISTERS_PER_MULTIPROCESSOR = 82,
    MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97,
};

typedef struct {
    unsigned x, y, z;
} Dim3;

typedef struct { /* cudaDeviceProp */
    char name[256];
    char uuid[16];
    char luid[8];
    unsigned luidDeviceNodeMask;
    size_t totalGlobalMem;
    size_t sharedMemPerBlock;
    int regsPerBlock;
    int warpSize;
    size_t memPitch;
    int maxThreadsPerBlock;
    int maxThreadsDim[3];
    int maxGridSize[3];
    int clockRate;
    size_t totalConstMem;
    int major;
    int minor;
    size_t textureAlignment;
    size_t texturePitchAlignment;
    int deviceOverlap;
    int multiProcessorCount;
    int kernelExecTimeoutEnabled;
    int integrated;
    int between[54]; /* canMapHostMemory to memoryBusWidth, textures and surfaces among them */
    int l2CacheSize;
    int persistingL2CacheMaxSize;
    int maxThreadsPerMultiProcessor;
    int streamPrioritiesSupported;
    int globalL1CacheSupported;
    int localL1CacheSupported;
    size_t sharedMemPerMultiprocessor;
    int regsPerMultiprocessor;
    int managedMemory;
    int after[9]; /* isMultiGpuBoard to cooperativeLaunch and its deprecated variant */
    int cooperativeMultiDeviceLaunch;
    size_t sharedMemPerBlockOptin;
    int rest[82];
} DeviceProperties;

typedef struct { /* cudaDeviceProp of CUDA 13 */
    char name[256];
    char uuid[16];
    char luid[8];
    unsigned luidDeviceNodeMask;
    size_t totalGlobalMem;
    size_t sharedMemPerBlock;
    int regsPerBlock;
    int warpSize;
    size_t memPitch;
    int maxThreadsPerBlock;
    int maxThreadsDim[3];
    int maxGridSize[3];
    size_t totalConstMem;
    int major;
    int minor;
    size_t textureAlignment;
    size_t texturePitchAlignment;
    int multiProcessorCount;
    int integrated;
    int between[40]; /* canMapHostMemory to maxSurfaceCubemapLayered */
    size_t surfaceAlignment;
    int following[9]; /* concurrentKernels to memoryBusWidth */
    int l2CacheSize;
    int persistingL2CacheMaxSize;
    int maxThreadsPerMultiProcessor;
    int streamPrioritiesSupported;
    int globalL1CacheSupported;
    int localL1CacheSupported;
    size_t sharedMemPerMultiprocessor;
    int regsPerMultiprocessor;
    int managedMemory;
    int after[8]; /* isMultiGpuBoard to cooperativeLaunch */
    size_t sharedMemPerBlockOptin;
    int rest[82];
} DeviceProperties13;

typedef struct { /* cudaPointerAttributes; type 2 is device memory */
    int type;
    int device;
    void *devicePointer;
    void *hostPointer;
    long rest[8];
} PointerAttributes;

typedef struct { /* cudaFuncAttributes */
    size_t sharedSizeBytes;
    size_t constSizeBytes;
    size_t localSizeBytes;
    int maxThreadsPerBlock;
    int numRegs;
    int ptxVersion;
    int binaryVersion;
    int rest[26];
} FunctionAttributes;

enum { HEURISTIC_RESULT_SIZE = 96 }; /* cublasLtMatmulHeuristicResult_t; its state 0 is success */

enum { /* of cudnnBackendAttributeType_t */
    CUDNN_DOUBLE = 5,
    CUDNN_VOID_PTR = 6,
    CUDNN_INT64 = 3,
    CUDNN_BACKEND_DESCRIPTOR = 15,
};

int counted(const char *name);
int card_error(void);
int cubin_runs(int code);

#endif
