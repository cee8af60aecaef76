library=$1
command -v cuobjdump >/dev/null || exit 127
for kind in elf ptx; do
    cuobjdump --list-$kind "$library" >/tmp/$kind.out 2>/tmp/$kind.err
    echo $? >/tmp/$kind.code
done
for part in elf.code elf.out elf.err ptx.code ptx.out ptx.err; do
    printf '\n@@ %s\n' "$part"
    cat /tmp/$part
done
printf '\n@@ end\n'
