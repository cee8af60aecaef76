#!/bin/sh
# prove.sh [FLAGS]: run the kit's models on this machine's GPU and on its CPU, and write a proof into this folder.
#
# It needs Python 3.9 or newer and NVIDIA's driver, and no network. CUDA's and cuDNN's libraries, which a small
# package leaves out, are taken from Python environments (torch brings them) or a CUDA toolkit; the loader's own
# cache comes last. It ends within eight minutes. FLAGS are those of `ortpacks.pyz prove`.
set -eu
kit=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
python=${PYTHON:-python3}
paths=$("$python" -c 'import site, sys; print("\n".join([*sys.path, site.getusersitepackages()]))')

folders() {
    printf '%s\n' "$paths" "${CONDA_PREFIX:-/opt/conda}"/lib/python3*/site-packages \
        "${VIRTUAL_ENV:-}"/lib/python3*/site-packages /usr/local/lib/python3*/dist-packages |
        while IFS= read -r place; do printf '%s\n' "$place"/nvidia/*/lib; done
    printf '%s\n' "${CONDA_PREFIX:-/opt/conda}/lib" /usr/local/cuda*/lib64 /usr/local/cuda*/targets/x86_64-linux/lib
}

found=$(folders | while IFS= read -r folder; do
    for file in "$folder"/libcu[bdfr]*.so.*; do
        if [ -e "$file" ]; then printf ':%s' "$folder" && break; fi
    done
done)
echo "NVIDIA libraries: ${found:-only those of the system}" >&2
[ -z "$found" ] || export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:-${found#:}}${LD_LIBRARY_PATH:+$found}"
for host in "$kit"/host/*; do
    [ ! -e "$host" ] || export ORT_DYLIB_PATH="$host" # in which plug-ins run
done
limit='timeout -k 10 440'
command -v timeout >/dev/null || limit=''
for package in "$kit"/packages/*; do
    code=0
    [ ! -e "$package" ] || set -- "$@" --package "$package" # the last one counts; without any, the installed one
    $limit "$python" "$kit/ortpacks.pyz" prove --yes --samples "$kit/models" "$@" || code=$?
    [ $code -eq 9 ] || exit $code # 9: the package is for other cards
done
exit 9
