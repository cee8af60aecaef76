
case $1 in
--list-elf) echo "ELF file    1: x.1.sm_50.cubin"; echo "a warning" >&2; exit 0;;
--list-ptx) echo "cuobjdump info    : File '$2' does not contain device code" >&2; exit 255;;
esac
