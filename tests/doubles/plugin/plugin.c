/* An execution provider for GPUs of NVIDIA's, as a plug-in of stock hosts: MatMul of floats by a matrix.
 *
 * Without CODE it computes on the CPU, on every such GPU that the host finds. CODE names a file with a fatbin container:
 * then the library is linked with a cudart, serves the devices of CUDA alone, and launches the container's kernel for
 * each MatMul, so that a card without code for it refuses the first run, as it does with ONNX Runtime's own plug-in. */
#include <stdlib.h>
#include <string.h>

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
static int cudaGetDeviceCount(int *count) { return *count = 1 << 10, 0; }
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
        TRY(api[GetTensorMutableData](values[at], (void **)&data[at]));
        TRY(api[GetTensorTypeAndShape](values[at], &shape));
        TRY(api[GetDimensionsCount](shape, &rank[at]));
        TRY(api[GetDimensions](shape, sizes[at], rank[at] < MOST ? rank[at] : MOST));
        api[ReleaseTensorTypeAndShapeInfo](shape);
    }
    const int64_t inner = sizes[0][rank[0] - 1], columns = sizes[0][rank[0] - 1] = sizes[1][rank[1] - 1];
    for (size_t at = 0; at + 1 < rank[0]; at++) rows *= sizes[0][at];
    TRY(api[KernelContext_GetOutput](context, (size_t)0, sizes[0], rank[0], &out));
    TRY(api[GetTensorMutableData](out, (void **)&data[2]));
    for (int64_t at = 0; rank[1] == 2 && at < rows * columns; at++) {
        data[2][at] = 0;
        for (int64_t by = 0; by < inner; by++)
            data[2][at] += data[0][at / columns * inner + by] * data[1][by * columns + at % columns];
    }
    return NULL;
}

static void release(void *object) { free(object); }

static Status create_kernel(void *state, const void *info, KernelImpl **made) {
    (void)state, (void)info;
    *made = calloc(1, sizeof **made);
    **made = (KernelImpl){.ort_version_supported = API, .Compute = compute, .Release = release};
    return NULL;
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

static const char *name_of(const void *self) { return (void)self, NAME; }
static const char *vendor(const void *self) { return (void)self, "ortpacks' tests"; }
static uint32_t vendor_id(const void *self) { return (void)self, NVIDIA; }
static const char *version(const void *self) { return (void)self, "1.0.0"; }

static Status get_capability(Ep *self, const void *graph, void *support) {
    size_t count;
    (void)self;
    TRY(api[Graph_GetNumNodes](graph, &count));
    const void *nodes[count + 1];
    TRY(api[Graph_GetNodes](graph, nodes, count));
    for (size_t at = 0; at < count; at++) {
        const void *kernel;
        TRY(ep[EpGraphSupportInfo_LookUpKernel](support, nodes[at], &kernel));
        if (kernel) TRY(ep[EpGraphSupportInfo_AddSingleNode](support, nodes[at]));
    }
    return NULL;
}

static Status no_transfer(EpFactory *self, void **made) { return (void)self, *made = NULL, NULL; }
static Status get_registry(Ep *self, const void **found) { return (void)self, *found = registry, NULL; }

static Status create_ep(EpFactory *self, const void *const *devices, const void *const *metadata, size_t count,
                        const void *options, const void *logger, Ep **made) {
    size_t size = sizeof option;
    (void)self, (void)devices, (void)metadata, (void)count, (void)logger;
    const Status unset = api[GetSessionConfigEntry](options, "ep.cuda.use_tf32", option, &size);
    if (unset) api[ReleaseStatus](unset), *option = 0;
    *made = calloc(1, sizeof **made);
    **made = (Ep){.ort_version_supported = API, .GetName = name_of, .GetCapability = get_capability,
                  .GetKernelRegistry = get_registry};
    return NULL;
}

static void release_ep(EpFactory *self, void *made) { (void)self, free(made); }

static Status supported(EpFactory *self, const void *const *devices, size_t count, void **found, size_t most, size_t *number) {
    int there;
    *number = 0;
    if (cudaGetDeviceCount(&there)) there = 0;
    for (size_t at = 0; at < count && *number < most && *number < (size_t)there; at++) {
        char id[] = {(char)('0' + *number), 0};
        void *pairs;
        if ((int)(size_t)api[HardwareDevice_Type](devices[at]) != GPU) continue;
        if ((uint32_t)(size_t)api[HardwareDevice_VendorId](devices[at]) != NVIDIA) continue;
        api[CreateKeyValuePairs](&pairs);
        api[AddKeyValuePair](pairs, "cuda_device_id", id);
        TRY(ep[CreateEpDevice](self, devices[at], pairs, NULL, &found[*number]));
        api[ReleaseKeyValuePairs](pairs);
        ++*number;
    }
    return NULL;
}

Status CreateEpFactories(const char *named, const ApiBase *base, const void *logger, EpFactory **made, size_t most,
                         size_t *count) {
    (void)named, (void)logger, (void)most;
    if (!(api = base->GetApi(API))) return base->GetApi(1)[CreateStatus](EP_FAIL, "the host is older than 1.24");
    ep = (Table)api[GetEpApi]();
    TRY(make_registry());
    *made = calloc(1, sizeof **made);
    **made = (EpFactory){.ort_version_supported = API, .GetName = name_of, .GetVendor = vendor, .CreateEp = create_ep,
                         .GetSupportedDevices = supported, .ReleaseEp = release_ep, .GetVendorId = vendor_id,
                         .GetVersion = version, .CreateDataTransfer = no_transfer};
    *count = 1;
    return NULL;
}

Status ReleaseEpFactory(EpFactory *factory) {
    ep[ReleaseKernelRegistry](registry);
    return free(factory), NULL;
}
