#!/bin/sh
echo "$*" >> "$CALLS"
[ "$1 $2" != "pr list" ] || cat "$OPEN"
