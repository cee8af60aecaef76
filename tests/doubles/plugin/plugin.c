/* An execution provider for NVIDIA's GPUs, as a plug-in of stock hosts: MatMul of floats by a matrix.
 *
 * It computes on the CPU, on every such GPU that the host finds. CODE names a file with a fatbin container: then the
 * library is linked with a cudart, serves the devices of CUDA alone, and launches a kernel of the container for each
 * MatMul, so that a card without code refuses the first run, as it does with ONNX Runtime's own plug-in. */
#include <stdlib.h>

#include "ort_plugin.h"

enum { NVIDIA = 0x10de, MOST = 8 /* dimensions */ };
static const char NAME[] = "CUDAExecutionProvider";

static Table api, ep;
static void *registry;
static char option[64]; /* the session's ep.cuda.use_tf32 */

#define TRY(call) do { Status failed = (call); if (failed) return failed; } while (0)

const char *double_option(void) { return option; }

#ifdef CODE
typedef struct { unsigned x, y, z; } Dim3;
void **__cudaRegisterFatBinary(const void *wrapper);
void __cudaUnregisterFatBinary(void **handle);
void __cudaRegisterFunction(void **handle, const void *host, char *device, const char *name);
int cudaLaunchKernel(const void *function, Dim3 grid, Dim3 block, void **arguments, size_t shared, void *stream);
int cudaGetDeviceCount(int *count);
const char *cudaGetErrorString(int error);

__asm__(".section .nv_fatbin,\"a\"\n.balign 8\ndouble_code: .incbin \"" CODE "\"\n.text\n");
extern const char double_code[];
static const struct { int magic, version; const void *data, *others; } wrapper
    __attribute__((section(".nvFatBinSegment"))) = {0x466243b1, 1, double_code, NULL};
static char matmul; /* its address is the kernel's host function */
static void **code;

__attribute__((constructor)) static void load(void) {
    code = __cudaRegisterFatBinary(&wrapper);
    __cudaRegisterFunction(code, &matmul, "matmul", "matmul");
}
__attribute__((destructor)) static void unload(void) { __cudaUnregisterFatBinary(code); }

static const char *launch(void) {
    const int error = cudaLaunchKernel(&matmul, (Dim3){1, 1, 1}, (Dim3){1, 1, 1}, NULL, 0, NULL);
    return error ? cudaGetErrorString(error) : NULL;
}
#else
static int cudaGetDeviceCount(int *count) { return *count = 9, 0; }
static const char *launch(void) { return NULL; }
#endif

static Status compute(KernelImpl *kernel, void *context) {
    const void *values[2], *shape;
    float *data[3];
    int64_t sizes[2][MOST], rows = 1;
    size_t rank[2];
    void *out;
    const char *refused = launch();
    (void)kernel;
    if (refused) return api[CreateStatus](EP_FAIL, refused);
    for (size_t at = 0; at < 2; at++) {
        TRY(api[KernelContext_GetInput](context, at, &values[at]));
        TRY(api[GetTensorMutableData](values[at], &data[at]));
        TRY(api[GetTensorTypeAndShape](values[at], &shape));
        TRY(api[GetDimensionsCount](shape, &rank[at]));
        TRY(api[GetDimensions](shape, sizes[at], rank[at] < MOST ? rank[at] : MOST));
        api[ReleaseTensorTypeAndShapeInfo](shape);
    }
    const int64_t inner = sizes[0][rank[0] - 1], columns = sizes[0][rank[0] - 1] = sizes[1][rank[1] - 1];
    for (size_t at = 0; at + 1 < rank[0]; at++) rows *= sizes[0][at];
    TRY(api[KernelContext_GetOutput](context, (size_t)0, sizes[0], rank[0], &out));
    TRY(api[GetTensorMutableData](out, &data[2]));
    for (int64_t at = 0; rank[1] == 2 && at < rows * columns; at++) {
        data[2][at] = 0;
        for (int64_t by = 0; by < inner; by++)
            data[2][at] += data[0][at / columns * inner + by] * data[1][by * columns + at % columns];
    }
    return NULL;
}

static void *made(size_t size, const void *as) { return __builtin_memcpy(malloc(size), as, size); }

static Status create_kernel(void *state, const void *info, void **kernel) {
    const KernelImpl new = {.ort_version_supported = API, .Compute = compute, .Release = free};
    return (void)state, (void)info, *kernel = made(sizeof new, &new), NULL;
}

static Status make_registry(void) {
    const void *of_float;
    void *builder, *kernel;
    TRY(ep[GetTensorDataType](FLOAT, &of_float));
    TRY(ep[CreateKernelRegistry](&registry));
    TRY(ep[CreateKernelDefBuilder](&builder));
    TRY(ep[KernelDefBuilder_SetOperatorType](builder, "MatMul"));
    TRY(ep[KernelDefBuilder_SetSinceVersion](builder, 1, 99));
    TRY(ep[KernelDefBuilder_SetExecutionProvider](builder, NAME));
    TRY(ep[KernelDefBuilder_AddTypeConstraint](builder, "T", &of_float, (size_t)1));
    TRY(ep[KernelDefBuilder_Build](builder, &kernel));
    TRY(ep[KernelRegistry_AddKernel](registry, kernel, create_kernel, NULL));
    ep[ReleaseKernelDef](kernel), ep[ReleaseKernelDefBuilder](builder);
    return NULL;
}

static const char *name(void) { return NAME; }
static const char *version(void) { return "1.0.0"; }
static uint32_t vendor(void) { return NVIDIA; }

static Status get_capability(Ep *self, const void *graph, void *support) {
    size_t count;
    TRY(api[Graph_GetNumNodes](graph, &count));
    const void *nodes[count + 1], *kernel;
    TRY(api[Graph_GetNodes](graph, nodes, count));
    for (size_t at = 0; at < count; at++) {
        TRY(ep[EpGraphSupportInfo_LookUpKernel](support, nodes[at], &kernel));
        if (kernel) TRY(ep[EpGraphSupportInfo_AddSingleNode](support, nodes[at]));
    }
    return (void)self, NULL;
}

static Status no_transfer(EpFactory *self, void **transfer) { return (void)self, *transfer = NULL, NULL; }
static Status get_registry(Ep *self, const void **found) { return (void)self, *found = registry, NULL; }

static Status create_ep(EpFactory *self, const void *devices, const void *metadata, size_t count, const void *options,
                        const void *logger, void **new) {
    const Ep one = {.ort_version_supported = API, .GetName = name, .GetCapability = get_capability,
                    .GetKernelRegistry = get_registry};
    size_t size = sizeof option;
    const Status unset = api[GetSessionConfigEntry](options, "ep.cuda.use_tf32", option, &size);
    if (unset) api[ReleaseStatus](unset), *option = 0;
    return (void)self, (void)devices, (void)metadata, (void)count, (void)logger, *new = made(sizeof one, &one), NULL;
}

static void release_ep(EpFactory *self, void *one) { (void)self, free(one); }

static Status supported(EpFactory *self, const void *const *devices, size_t count, void **found, size_t most, size_t *number) {
    int there;
    *number = 0;
    if (cudaGetDeviceCount(&there)) there = 0;
    for (size_t at = 0; at < count && *number < most && *number < (size_t)there; at++) {
        const char id[] = {(char)('0' + *number), 0};
        void *pairs;
        if ((int)(size_t)api[HardwareDevice_Type](devices[at]) != GPU) continue;
        if ((uint32_t)(size_t)api[HardwareDevice_VendorId](devices[at]) != NVIDIA) continue;
        api[CreateKeyValuePairs](&pairs);
        api[AddKeyValuePair](pairs, "cuda_device_id", id);
        TRY(ep[CreateEpDevice](self, devices[at], pairs, NULL, &found[(*number)++]));
        api[ReleaseKeyValuePairs](pairs);
    }
    return NULL;
}

Status CreateEpFactories(const char *as, const ApiBase *base, const void *logger, void **factory, size_t most, size_t *count) {
    const EpFactory one = {.ort_version_supported = API, .GetName = name, .GetVendor = name, .CreateEp = create_ep,
                           .GetSupportedDevices = supported, .ReleaseEp = release_ep, .GetVendorId = vendor,
                           .GetVersion = version, .CreateDataTransfer = no_transfer};
    if (!(api = base->GetApi(API))) return base->GetApi(1)[CreateStatus](EP_FAIL, "the host is older than 1.24");
    ep = (Table)api[GetEpApi]();
    TRY(make_registry());
    return (void)as, (void)logger, (void)most, *count = 1, *factory = made(sizeof one, &one), NULL;
}

Status ReleaseEpFactory(void *factory) { return ep[ReleaseKernelRegistry](registry), free(factory), NULL; }
