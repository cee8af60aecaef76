/* What the stand-ins of a driver's libraries are steered with. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
/* FAKE_CUDA_VERSION: what libcuda serves, 11040. FAKE_CUDA, FAKE_NVML: a number to return, "hang" (the pid goes to the file FAKE_PID) or "crash" */
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
/* FAKE_UNKNOWN: the calls that fail, with commas between. FAKE_MIG: there is the A100 of tests/data/nvidia-smi/mig.txt instead */
static int unknown(const char *call) {
  char all[256], one[128];
  if (!getenv("FAKE_UNKNOWN")) return 0;
  snprintf(all, sizeof all, ",%s,", getenv("FAKE_UNKNOWN"));
  snprintf(one, sizeof one, ",%s,", call);
  return strstr(all, one) ? 3 : 0;
}
#define SAY(text) do { if (unknown(__func__)) return 3; strncpy(s, text, n); return 0; } while (0)
