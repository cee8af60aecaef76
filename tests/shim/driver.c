/* A driver without a device: what there is of libcuda.so.1 for the machines that have none.
 *
 * A provider of ORT 1.21 with the contrib ops opens libcuda.so.1 while it is being loaded (a static CUDADriverWrapper,
 * contrib_ops/cuda/bert/tensorrt_fused_multihead_attention/cudaDriverWrapper.cc) and requires these names. Where the
 * file or a name is missing it means to throw, over a bridge that is not up yet: the process dies of SIGSEGV. 1.23.2
 * refuses in words. */
#define NO_DEVICE 100
#define REFUSES(name) \
    int name(void) { return NO_DEVICE; }

REFUSES(cuInit)
REFUSES(cuGetErrorName)
REFUSES(cuFuncSetAttribute)
REFUSES(cuLinkComplete)
REFUSES(cuModuleUnload)
REFUSES(cuLinkDestroy)
REFUSES(cuModuleLoadData)
REFUSES(cuLinkCreate_v2)
REFUSES(cuModuleGetFunction)
REFUSES(cuLinkAddFile_v2)
REFUSES(cuLinkAddData_v2)
REFUSES(cuLaunchCooperativeKernel)
REFUSES(cuLaunchKernel)
REFUSES(cuDeviceGetAttribute)
REFUSES(cuFuncSetCacheConfig)
