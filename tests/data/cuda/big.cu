
extern "C" __global__ void blend(float *a, const float *b, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0;
    #pragma unroll 32
    for (int j = 0; j < 32; j++) sum += a[i * j] * b[i + j];
    if (i < n) a[i] = sum;
}
