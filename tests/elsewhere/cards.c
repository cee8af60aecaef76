/* Stand-in for NVIDIA's driver, libcuda and NVML in one library. CARDS, DRIVER and CUDA are given by -D.
 * The library answers questions on its cards; it cannot run a kernel. */
#include <string.h>

typedef struct { const char *name; int major, minor, mib; } Card;
static const Card cards[] = {CARDS};
enum { COUNT = sizeof cards / sizeof *cards, NVML_NOT_SUPPORTED = 3 };

static int say(char *to, const char *text, unsigned size) { strncpy(to, text, size); return 0; }

int cuInit(unsigned flags) { return 0; }
int cuDriverGetVersion(int *version) { *version = CUDA; return 0; }
int cuDeviceGetCount(int *count) { *count = COUNT; return 0; }
int cuDeviceGet(int *device, int index) { *device = index; return 0; }
int cuDeviceGetName(char *name, int size, int device) { return say(name, cards[device].name, size); }
int cuDeviceTotalMem_v2(size_t *bytes, int device) { *bytes = (size_t)cards[device].mib << 20; return 0; }
int cuDeviceGetUuid_v2(unsigned char *uuid, int device) { memset(uuid, 0x11 * (device + 1), 16); return 0; }
int cuDeviceGetAttribute(int *value, int which, int device) {
  *value = which == 75 ? cards[device].major : which == 76 ? cards[device].minor : 0;
  return 0;
}

int nvmlInit_v2(void) { return 0; }
const char *nvmlErrorString(int code) { return "Not Supported"; }
int nvmlSystemGetDriverVersion(char *version, unsigned size) { return say(version, DRIVER, size); }
int nvmlSystemGetCudaDriverVersion_v2(int *version) { *version = CUDA; return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = COUNT; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, const Card **card) { *card = cards + index; return 0; }
int nvmlDeviceGetName(const Card *card, char *name, unsigned size) { return say(name, card->name, size); }
int nvmlDeviceGetUUID(const Card *card, char *uuid, unsigned size) {
  static const char form[] = "GPU-11111111-1111-1111-1111-111111111111";
  say(uuid, form, size);
  for (char *c = uuid + 4; *c; c++) *c += *c == '1' ? card - cards : 0;
  return 0;
}
int nvmlDeviceGetCudaComputeCapability(const Card *card, int *major, int *minor) {
  *major = card->major;
  *minor = card->minor;
  return 0;
}
int nvmlDeviceGetMemoryInfo(const Card *card, unsigned long long *memory) {
  memory[0] = (unsigned long long)card->mib << 20;
  return 0;
}
int nvmlDeviceGetMigMode(const Card *card, unsigned *now, unsigned *later) { return NVML_NOT_SUPPORTED; }
