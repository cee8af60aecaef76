#!/bin/sh
# compile.sh TARGET: compiles the stand-in for CUDA's runtime to the library TARGET, with $CC or gcc and without CUDA.
set -eu
here=$(dirname "$0")
exec "${CC:-gcc}" -std=c11 -O2 -fPIC -shared -Wall -Wextra -Werror -o "$1" \
    "$here/runtime.c" "$here/resolver.c" "$here/libraries.c" "$here/driver.c"
