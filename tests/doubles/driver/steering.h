/* Environment variables that control the stand-ins of a driver's libraries. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
/* FAKE_CUDA_VERSION: the CUDA version that libcuda reports, such as 11040. FAKE_CUDA, FAKE_NVML: the
 * number that cuInit or nvmlInit_v2 returns, "hang" (the process id is written to the file FAKE_PID)
 * or "crash". */
static int begin(const char *who) {
  const char *what = getenv(who);
  if (!what) return 0;
  if (!strcmp(what, "crash")) raise(SIGSEGV);
  if (!strcmp(what, "hang")) {
    FILE *f = fopen(getenv("FAKE_PID"), "w"); fprintf(f, "%d", getpid()); fclose(f);
    for (;;) pause();
  }
  return atoi(what);
}
/* FAKE_UNKNOWN: the names of the calls that fail, separated by commas. FAKE_MIG: the machine has the A100 of
 * tests/data/nvidia-smi/mig.txt instead of both cards. */
static int unknown(const char *call) {
  char all[256], one[128];
  if (!getenv("FAKE_UNKNOWN")) return 0;
  snprintf(all, sizeof all, ",%s,", getenv("FAKE_UNKNOWN"));
  snprintf(one, sizeof one, ",%s,", call);
  return strstr(all, one) ? 3 : 0;
}
#define SAY(text) do { if (unknown(__func__)) return 3; strncpy(s, text, n); return 0; } while (0)
