/* An application that opens ONNX Runtime as Rust's crate ort does: the absolute path in ORT_DYLIB_PATH, then
 * OrtGetApiBase, its version, and the API by the number the application was compiled for, API. Nothing is linked. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct {
  const void *(*get_api)(unsigned);
  const char *(*version)(void);
} Base;

int main(void) {
  void *library = dlopen(getenv("ORT_DYLIB_PATH"), RTLD_LAZY | RTLD_LOCAL);
  if (library == NULL) return fprintf(stderr, "%s\n", dlerror()), 1;
  const Base *(*base)(void) = (const Base *(*)(void))dlsym(library, "OrtGetApiBase");
  if (base == NULL || base()->get_api(API) == NULL) return 2;
  return puts(base()->version()) < 0;
}
