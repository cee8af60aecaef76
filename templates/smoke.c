/* ortpacks-smoke: load a package's host library through the C API, ask for the CUDA provider, run models.
 *
 *   ortpacks-smoke HOST_LIBRARY [MODEL INPUT... [-- MODEL INPUT...]...]
 *   INPUT = NAME:TYPE:DIMS:FILE   TYPE f32, i32 or i64, DIMS like 1x512 ("scalar" for none), FILE raw little-endian
 *
 * Prints one JSON object on one line for each model, or one without outputs for no model: version, providers,
 * what the CUDA provider said, the provider used, float outputs.
 * Exits 0 when everything asked for ran (on the CPU if CUDA said no), 1 with a message when something did not.
 * It links against nothing of ORT or CUDA: what it proves holds for any program that opens the library. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <onnxruntime_c_api.h>

enum { MAX_INPUTS = 8, MAX_OUTPUTS = 8, MAX_DIMS = 8, NAME_LENGTH = 128 };

typedef struct {
    char name[NAME_LENGTH];
    void *data;
    OrtValue *value;
} Tensor;

static const struct {
    const char *name;
    size_t size;
    ONNXTensorElementDataType type;
} types[] = {
    {"f32", 4, ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT},
    {"i32", 4, ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32},
    {"i64", 8, ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64},
};

static const OrtApi *api;

static void fail(const char *what, const char *why) {
    fprintf(stderr, "ortpacks-smoke: %s: %s\n", what, why);
    exit(1);
}

static void check(OrtStatus *status, const char *what) {
    if (status != NULL) fail(what, api->GetErrorMessage(status));
}

static void print_string(const char *text) {
    putchar('"');
    for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
        if (*c == '"' || *c == '\\') printf("\\%c", *c);
        else if (*c < 0x20) printf("\\u%04x", *c);
        else putchar(*c);
    }
    putchar('"');
}

static const char *load_api(const char *library) {
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL) fail("cannot load the host library", dlerror());
    const OrtApiBase *(*base)(void) = (const OrtApiBase *(*)(void))dlsym(handle, "OrtGetApiBase");
    if (base == NULL) fail("not an ONNX Runtime library", dlerror());
    api = base()->GetApi(ORT_API_VERSION);
    if (api == NULL) fail("the host library is older than this program", base()->GetVersionString());
    return base()->GetVersionString();
}

static void print_providers(void) {
    char **names;
    int count;
    check(api->GetAvailableProviders(&names, &count), "listing providers");
    printf(",\"providers\":[");
    for (int i = 0; i < count; i++) {
        if (i) putchar(',');
        print_string(names[i]);
    }
    putchar(']');
    check(api->ReleaseAvailableProviders(names, count), "releasing providers");
}

/* NULL when CUDA was taken, else the reason it was not. */
static OrtStatus *ask_for_cuda(OrtSessionOptions *options) {
    OrtCUDAProviderOptionsV2 *cuda = NULL;
    OrtStatus *status = api->CreateCUDAProviderOptions(&cuda);
    if (status == NULL) status = api->SessionOptionsAppendExecutionProvider_CUDA_V2(options, cuda);
    if (cuda != NULL) api->ReleaseCUDAProviderOptions(cuda);
    return status;
}

static OrtStatus *open_session(const OrtEnv *env, const char *model, int with_cuda, OrtSession **session) {
    OrtSessionOptions *options;
    check(api->CreateSessionOptions(&options), "session options");
    OrtStatus *status = with_cuda ? ask_for_cuda(options) : NULL;
    if (status == NULL && model != NULL) status = api->CreateSession(env, model, options, session);
    api->ReleaseSessionOptions(options);
    return status;
}

static OrtSession *session_with_fallback(const OrtEnv *env, const char *model) {
    OrtSession *session = NULL;
    OrtStatus *refused = open_session(env, model, 1, &session);
    printf(",\"cuda\":{\"ok\":%s,\"message\":", refused == NULL ? "true" : "false");
    print_string(refused == NULL ? "" : api->GetErrorMessage(refused));
    printf("},\"provider\":\"%s\"", refused == NULL ? "cuda" : "cpu");
    if (refused != NULL) {
        api->ReleaseStatus(refused);
        check(open_session(env, model, 0, &session), "opening the model on the CPU");
    }
    return session;
}

static void *read_exactly(const char *path, size_t bytes) {
    FILE *file = fopen(path, "rb");
    if (file == NULL) fail("cannot read input", path);
    char *data = malloc(bytes + 1);
    if (data == NULL) fail("out of memory", path);
    if (fread(data, 1, bytes + 1, file) != bytes) fail("input has the wrong size", path);
    fclose(file);
    return data;
}

static size_t parse_dims(const char *text, int64_t *dims, size_t *rank) {
    size_t elements = 1;
    *rank = 0;
    if (strcmp(text, "scalar") == 0) return 1;
    while (*text && *rank < MAX_DIMS) {
        char *end;
        dims[*rank] = strtoll(text, &end, 10);
        if (end == text || dims[*rank] < 1) fail("bad dimensions", text);
        elements *= (size_t)dims[(*rank)++];
        text = *end == 'x' ? end + 1 : end;
    }
    return elements;
}

static size_t parse_type(const char *name) {
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(name, types[i].name) == 0) return i;
    fail("a type is f32, i32 or i64, not", name);
    return 0;
}

static Tensor parse_input(const char *argument) {
    Tensor tensor;
    char type[4], shape[64], path[512];
    int64_t dims[MAX_DIMS];
    size_t rank;
    if (sscanf(argument, "%127[^:]:%3[^:]:%63[^:]:%511s", tensor.name, type, shape, path) != 4)
        fail("an input is NAME:TYPE:DIMS:FILE, not", argument);
    const size_t kind = parse_type(type);
    const size_t bytes = parse_dims(shape, dims, &rank) * types[kind].size;
    OrtMemoryInfo *memory;
    tensor.data = read_exactly(path, bytes);
    check(api->CreateCpuMemoryInfo(OrtDeviceAllocator, OrtMemTypeDefault, &memory), "memory info");
    check(api->CreateTensorWithDataAsOrtValue(memory, tensor.data, bytes, dims, rank, types[kind].type, &tensor.value),
          tensor.name);
    api->ReleaseMemoryInfo(memory);
    return tensor;
}

static void print_floats(const char *name, OrtValue *value) {
    OrtTensorTypeAndShapeInfo *info;
    size_t count;
    float *data;
    ONNXTensorElementDataType type;
    check(api->GetTensorTypeAndShape(value, &info), name);
    check(api->GetTensorElementType(info, &type), name);
    check(api->GetTensorShapeElementCount(info, &count), name);
    api->ReleaseTensorTypeAndShapeInfo(info);
    if (type != ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT) fail("only float outputs are printed", name);
    check(api->GetTensorMutableData(value, (void **)&data), name);
    print_string(name);
    printf(":[");
    for (size_t i = 0; i < count; i++) printf("%s%.9g", i ? "," : "", data[i]);
    putchar(']');
}

static void run(OrtSession *session, int count, char **arguments) {
    const char *input_names[MAX_INPUTS], *output_names[MAX_OUTPUTS];
    const OrtValue *inputs[MAX_INPUTS];
    Tensor tensors[MAX_INPUTS];
    OrtValue *outputs[MAX_OUTPUTS] = {0};
    OrtAllocator *allocator;
    size_t output_count;
    if (count > MAX_INPUTS) fail("too many inputs", arguments[MAX_INPUTS]);
    for (int i = 0; i < count; i++) {
        tensors[i] = parse_input(arguments[i]);
        input_names[i] = tensors[i].name;
        inputs[i] = tensors[i].value;
    }
    check(api->GetAllocatorWithDefaultOptions(&allocator), "allocator");
    check(api->SessionGetOutputCount(session, &output_count), "outputs");
    if (output_count > MAX_OUTPUTS) fail("too many outputs", "the model");
    for (size_t i = 0; i < output_count; i++)
        check(api->SessionGetOutputName(session, i, allocator, (char **)&output_names[i]), "output name");
    check(api->Run(session, NULL, input_names, inputs, (size_t)count, output_names, output_count, outputs), "running");
    printf(",\"outputs\":{");
    for (size_t i = 0; i < output_count; i++) {
        if (i) putchar(',');
        print_floats(output_names[i], outputs[i]);
        api->ReleaseValue(outputs[i]);
        check(api->AllocatorFree(allocator, (void *)output_names[i]), "output name");
    }
    putchar('}');
    for (int i = 0; i < count; i++) {
        api->ReleaseValue(tensors[i].value);
        free(tensors[i].data);
    }
}

/* One line of JSON. The arguments are a model and its inputs, or nothing. */
static void try_out(const OrtEnv *env, const char *version, int count, char **arguments) {
    printf("{\"version\":");
    print_string(version);
    print_providers();
    OrtSession *session = session_with_fallback(env, count > 0 ? arguments[0] : NULL);
    if (session != NULL) {
        run(session, count - 1, arguments + 1);
        api->ReleaseSession(session);
    }
    printf("}\n");
}

static int until_dashes(int count, char **arguments) {
    int found = 0;
    while (found < count && strcmp(arguments[found], "--") != 0) found++;
    return found;
}

int main(int argc, char **argv) {
    OrtEnv *env;
    setvbuf(stdout, NULL, _IONBF, 0); /* of a program that hangs, what it said is known */
    if (argc < 2) fail("usage", "ortpacks-smoke HOST_LIBRARY [MODEL INPUT... [-- MODEL INPUT...]...]");
    const char *version = load_api(argv[1]);
    check(api->CreateEnv(ORT_LOGGING_LEVEL_ERROR, "ortpacks-smoke", &env), "environment");
    int first = 2;
    do {
        const int count = until_dashes(argc - first, argv + first);
        try_out(env, version, count, argv + first);
        first += count + 1;
    } while (first < argc);
    return 0;
}
