/* Stand-in for NVML with the cards of libcuda.c in the order of their PCI addresses: the Quadro first. */
#include "steering.h"

static int gpus[2] = {1, 0}, slice = 7;
typedef unsigned long long u64;
int nvmlInit_v2(void) { return begin("FAKE_NVML"); }
const char *nvmlErrorString(int c) {
  return c == 9 ? "Driver Not Loaded" : c == 18 ? "Driver/library version mismatch" : "Not Supported";
}
int nvmlSystemGetDriverVersion(char *s, unsigned n) { SAY("570.133.07"); }
int nvmlSystemGetCudaDriverVersion_v2(int *v) { *v = 12080; return unknown(__func__); }
int nvmlDeviceGetCount_v2(unsigned *n) { *n = getenv("FAKE_MIG") ? 1 : 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **h) { *h = gpus + i; return unknown(__func__); }
int nvmlDeviceGetName(int *h, char *s, unsigned n) {
  SAY(getenv("FAKE_MIG") ? "NVIDIA A100-SXM4-80GB" : *h ? "Quadro M2200" : "NVIDIA H200");
}
int nvmlDeviceGetUUID(int *h, char *s, unsigned n) {
  SAY(*h == 7 ? "MIG-feb88891-0321-5fef-9c87-d4af3b54259e"
    : getenv("FAKE_MIG") ? "GPU-7fdaf0a5-179b-f636-d15d-daf243e3ff16"
    : *h ? "GPU-22222222-2222-2222-2222-222222222222" : "GPU-11111111-1111-1111-1111-111111111111");
}
int nvmlDeviceGetCudaComputeCapability(int *h, int *a, int *b) {
  *a = getenv("FAKE_MIG") ? 8 : *h ? 5 : 9; *b = !getenv("FAKE_MIG") && *h ? 2 : 0;
  return unknown(__func__);
}
int nvmlDeviceGetMemoryInfo(int *h, u64 *m) {
  m[0] = (*h == 7 ? 9728ull : getenv("FAKE_MIG") ? 81920ull : *h ? 4096ull : 143771ull) << 20;
  m[1] = *h == 0 && !getenv("FAKE_MIG") ? 9000ull << 20 : m[0] / 2; /* m[1]: free memory */
  return unknown(__func__);
}
int nvmlDeviceGetMigMode(int *h, unsigned *now, unsigned *later) {
  *now = *later = getenv("FAKE_MIG") != 0;
  return getenv("FAKE_MIG") ? 0 : 3;
}
int nvmlDeviceGetMaxMigDeviceCount(int *h, unsigned *n) { *n = 7; return unknown(__func__); }
int nvmlDeviceGetMigDeviceHandleByIndex(int *h, unsigned i, void **m) { *m = &slice; return i ? 6 : 0; }
