/* Stand-in for CUDA's driver with an H200 and a Quadro M2200. Error numbers and names are those of cuda.h. */
#include "steering.h"

int cuInit(unsigned f) { return begin("FAKE_CUDA"); }
int cuGetErrorName(int c, const char **t) {
  switch (c) {
    case 3: *t = "CUDA_ERROR_NOT_INITIALIZED"; return 0;
    case 100: *t = "CUDA_ERROR_NO_DEVICE"; return 0;
    case 500: *t = "CUDA_ERROR_NOT_FOUND"; return 0;
    case 803: *t = "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"; return 0;
    case 804: *t = "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE"; return 0;
    default: *t = 0; return 1;
  }
}
int cuDriverGetVersion(int *v) {
  const char *stated = getenv("FAKE_CUDA_VERSION");
  *v = stated ? atoi(stated) : 12090;
  return 0;
}
int cuDeviceGetCount(int *n) {
  puts("a line of the driver's own");
  *n = getenv("FAKE_MIG") ? 1 : 2;
  return 0;
}
int cuDeviceGet(int *d, int i) { *d = i; return unknown(__func__); }
int cuDeviceGetName(char *s, int n, int d) {
  SAY(getenv("FAKE_MIG") ? "NVIDIA A100-SXM4-80GB MIG 1g.10gb" : d ? "Quadro M2200" : "NVIDIA H200");
}
int cuDeviceTotalMem_v2(size_t *b, int d) {
  *b = getenv("FAKE_MIG") ? 9728ull << 20 : d ? 4ull << 30 : 139ull << 30;
  return unknown(__func__);
}
int cuDeviceGetAttribute(int *v, int a, int d) {
  *v = getenv("FAKE_MIG") ? (a == 75 ? 8 : 0) : a == 75 ? (d ? 5 : 9) : (d ? 2 : 0);
  return unknown(__func__);
}
int cuDeviceGetUuid_v2(unsigned char *u, int d) {
  static const unsigned char slice[] = "\xfe\xb8\x88\x91\x03\x21\x5f\xef\x9c\x87\xd4\xaf\x3b\x54\x25\x9e";
  if (getenv("FAKE_MIG")) memcpy(u, slice, 16); else memset(u, d ? 0x22 : 0x11, 16);
  return unknown(__func__);
}
