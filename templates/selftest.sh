#!/bin/sh
# selftest.sh FOLDER COMMAND...: what the loader finds for every library in FOLDER, then COMMAND in its place.
#
# Prints "ldd PATH" and ldd's lines for each library, then "smoke"; what follows is COMMAND's.
set -eu
folder=$1
shift
unset LD_LIBRARY_PATH
for library in "$folder"/*; do
    echo "ldd $library"
    ldd "$library" 2>&1 || echo "ldd: exit $?"
done
echo smoke
exec "$@"
