/* The functions of cuBLAS, cuBLASLt and cuDNN that return a value. stubs.py writes all others, which only count calls. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_abi.h"

enum { CUDNN_VERSION = 91002 }; /* 9.10.2; a provider's cudnn_frontend compares it with its headers' version */

const char *cublasGetStatusName(int status) { return status ? "unknown" : "CUBLAS_STATUS_SUCCESS"; }
const char *cublasGetStatusString(int status) { return status ? "unknown" : "the operation completed successfully"; }

int cublasGetMathMode(void *handle, int *mode) { return (void)handle, *mode = 0, SUCCESS; }

int cublasLtMatmulAlgoGetHeuristic(void *handle, void *operation, void *a, void *b, void *c, void *d, void *preference,
                                   int wanted, void *results, int *found) {
    (void)handle, (void)operation, (void)a, (void)b, (void)c, (void)d, (void)preference, (void)wanted;
    memset(results, 0, HEURISTIC_RESULT_SIZE);
    return *found = 1, SUCCESS;
}

size_t cudnnGetVersion(void) { return CUDNN_VERSION; }
const char *cudnnGetErrorString(int status) { return status ? "unknown" : "CUDNN_STATUS_SUCCESS"; }
void cudnnGetLastErrorString(char *message, size_t size) {
    if (size) *message = 0;
}

int cudnnGetStream(void *handle, void **stream) { return (void)handle, *stream = NULL, SUCCESS; }

int cudnnGetTensorNdDescriptor(void *descriptor, int wanted, int *type, int *rank, int dims[], int strides[]) {
    (void)descriptor;
    *type = 0; /* CUDNN_DATA_FLOAT */
    *rank = wanted;
    memset(dims, 0, (size_t)wanted * sizeof *dims);
    memset(strides, 0, (size_t)wanted * sizeof *strides);
    return SUCCESS;
}

int cudnnGetRNNTempSpaceSizes(void *handle, void *rnn, int mode, void *x, size_t *work, size_t *reserve) {
    (void)handle, (void)rnn, (void)mode, (void)x;
    if (work) *work = 0;
    if (reserve) *reserve = 0;
    return SUCCESS;
}

int cudnnGetRNNWeightParams(void *handle, void *rnn, int32_t layer, size_t size, const void *space, int32_t id, void *m,
                            void **matrix, void *b, void **bias) {
    (void)handle, (void)rnn, (void)layer, (void)size, (void)id, (void)m, (void)b;
    *matrix = *bias = (void *)space;
    return SUCCESS;
}

int cudnnDropoutGetStatesSize(void *handle, size_t *size) { return (void)handle, *size = 0, SUCCESS; }

static int no_bytes(size_t *size) { return *size = 0, SUCCESS; }

int cudnnGetReductionWorkspaceSize(void *handle, void *reduce, void *a, void *c, size_t *size) {
    return (void)handle, (void)reduce, (void)a, (void)c, no_bytes(size);
}
int cudnnGetReductionIndicesSize(void *handle, void *reduce, void *a, void *c, size_t *size) {
    return (void)handle, (void)reduce, (void)a, (void)c, no_bytes(size);
}
int cudnnGetConvolutionForwardWorkspaceSize(void *handle, void *x, void *w, void *c, void *y, int algorithm, size_t *size) {
    return (void)handle, (void)x, (void)w, (void)c, (void)y, (void)algorithm, no_bytes(size);
}

/* --- cuDNN's graph API: any descriptor is one zeroed block, any list has one element ------------------------------ */

int cudnnBackendCreateDescriptor(int type, void **descriptor) {
    return (void)type, *descriptor = calloc(1, 64), SUCCESS;
}

static size_t element_size(int type) {
    return type == CUDNN_INT64 || type == CUDNN_DOUBLE || type == CUDNN_VOID_PTR ? 8 : 4;
}

int cudnnBackendGetAttribute(void *descriptor, int name, int type, int64_t wanted, int64_t *count, void *elements) {
    (void)descriptor, (void)name;
    if (count) *count = 1;
    if (elements && wanted && type != CUDNN_BACKEND_DESCRIPTOR) memset(elements, 0, element_size(type));
    return SUCCESS;
}
