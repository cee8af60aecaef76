/* An application that opens ONNX Runtime like Rust's crate ort: dlopen of the path in ORT_DYLIB_PATH,
 * OrtGetApiBase, the API of the number API (given by -D), and the version, which it prints. */
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
