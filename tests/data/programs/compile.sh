echo "compiling $1"
if grep -q broken "$1"; then echo "$1: error: it is broken" >&2; exit 1; fi
cp "$1" "$3"
echo "1000 2000 1500 524288 0 $3" >>units.log
