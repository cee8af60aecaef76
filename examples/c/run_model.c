/* Run an ONNX model with ONNX Runtime's own C API on the installed package, or on the CPU with the reason:
 *
 *   cc run_model.c -o run_model -ldl        (onnxruntime_c_api.h: ONNX Runtime's archive, or Debian's libonnxruntime-dev)
 *   eval "$(ortpacks env)" && ./run_model model.onnx
 *
 * It links against nothing of ONNX Runtime. The package must be as new as the header, or newer. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include <onnxruntime_c_api.h>

enum { MOST_INPUTS = 16, MOST_DIMS = 16 };

static const OrtApi *api;

static void fail(const char *what, const char *why) {
    fprintf(stderr, "run_model: %s: %s\n", what, why);
    exit(1);
}

static void check(OrtStatus *status, const char *what) {
    if (status != NULL) fail(what, api->GetErrorMessage(status));
}

static OrtStatus *append_cuda(OrtSessionOptions *options) {
    OrtCUDAProviderOptionsV2 *cuda = NULL;
    OrtStatus *status = api->CreateCUDAProviderOptions(&cuda);
    if (status == NULL) status = api->SessionOptionsAppendExecutionProvider_CUDA_V2(options, cuda);
    if (cuda != NULL) api->ReleaseCUDAProviderOptions(cuda);
    return status;
}

/* A tensor of zeros, as input `index` of the session wants it; a length that the model leaves open is 1. */
static OrtValue *zeros(OrtSession *session, size_t index) {
    OrtTypeInfo *type;
    const OrtTensorTypeAndShapeInfo *shape;
    ONNXTensorElementDataType element;
    int64_t dims[MOST_DIMS], count = 1;
    size_t rank;
    check(api->SessionGetInputTypeInfo(session, index, &type), "an input's type");
    check(api->CastTypeInfoToTensorInfo(type, &shape), "an input's type");
    if (shape == NULL) fail("an input", "it is no tensor");
    check(api->GetTensorElementType(shape, &element), "an input's type");
    check(api->GetDimensionsCount(shape, &rank), "an input's shape");
    if (rank > MOST_DIMS) fail("an input", "it has too many dimensions");
    check(api->GetDimensions(shape, dims, rank), "an input's shape");
    for (size_t i = 0; i < rank; i++) count *= dims[i] = dims[i] > 0 ? dims[i] : 1;
    api->ReleaseTypeInfo(type);

    OrtMemoryInfo *memory;
    OrtValue *value;
    void *data = calloc((size_t)count, sizeof(int64_t)); /* no element is larger */
    if (data == NULL) fail("an input", "out of memory");
    check(api->CreateCpuMemoryInfo(OrtArenaAllocator, OrtMemTypeDefault, &memory), "memory");
    const size_t size = (size_t)count * (element == ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64 ? sizeof(int64_t) : sizeof(float));
    check(api->CreateTensorWithDataAsOrtValue(memory, data, size, dims, rank, element, &value), "an input");
    api->ReleaseMemoryInfo(memory);
    return value;
}

/* Opens the model and runs it once; NULL, or why that failed. */
static OrtStatus *run(const OrtEnv *env, const char *model, int on_gpu, size_t *outputs) {
    OrtSessionOptions *options;
    OrtSession *session = NULL;
    OrtAllocator *allocator;
    check(api->CreateSessionOptions(&options), "options");
    OrtStatus *status = on_gpu ? append_cuda(options) : NULL;
    if (status == NULL) status = api->CreateSession(env, model, options, &session);
    api->ReleaseSessionOptions(options);
    if (status != NULL) return status;

    size_t inputs;
    char *names[MOST_INPUTS], *results[MOST_INPUTS];
    OrtValue *given[MOST_INPUTS], *made[MOST_INPUTS] = {NULL};
    check(api->GetAllocatorWithDefaultOptions(&allocator), "memory");
    check(api->SessionGetInputCount(session, &inputs), "inputs");
    check(api->SessionGetOutputCount(session, outputs), "outputs");
    if (inputs > MOST_INPUTS || *outputs > MOST_INPUTS) fail(model, "it has too many inputs or outputs");
    for (size_t i = 0; i < inputs; i++) {
        check(api->SessionGetInputName(session, i, allocator, &names[i]), "an input");
        given[i] = zeros(session, i);
    }
    for (size_t i = 0; i < *outputs; i++) check(api->SessionGetOutputName(session, i, allocator, &results[i]), "an output");
    return api->Run(session, NULL, (const char *const *)names, (const OrtValue *const *)given, inputs,
                    (const char *const *)results, *outputs, made);
}

int main(int argc, char **argv) {
    if (argc != 2) fail("usage", "run_model MODEL.onnx");
    const char *library = getenv("ORT_DYLIB_PATH");
    if (library == NULL) fail("ORT_DYLIB_PATH is not set", "run eval \"$(ortpacks env)\" first");
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL) fail("the library does not load", dlerror());
    const OrtApiBase *(*base)(void) = (const OrtApiBase *(*)(void))dlsym(handle, "OrtGetApiBase");
    if (base == NULL) fail(library, "it is no ONNX Runtime");
    api = base()->GetApi(ORT_API_VERSION);
    if (api == NULL) fail("the package is older than this program's header", base()->GetVersionString());

    OrtEnv *env;
    size_t outputs = 0;
    check(api->CreateEnv(ORT_LOGGING_LEVEL_FATAL, "run_model", &env), "start");
    OrtStatus *refused = run(env, argv[1], 1, &outputs);
    if (refused != NULL) {
        fprintf(stderr, "Falling back to CPU: %s\n", api->GetErrorMessage(refused));
        api->ReleaseStatus(refused);
        check(run(env, argv[1], 0, &outputs), "the CPU");
    }
    printf("%s: %zu outputs\n", refused == NULL ? "cuda" : "cpu", outputs);
    return 0;
}
