printf 'python %s\n' "$*" >>"$CALLS"
case "$*" in
--version) echo Python 3.12.0 ;;
"-m venv .venv") mkdir -p .venv/bin && cp "$0" .venv/bin/python ;;
"-m pip"*) exit "${PIP_EXIT:-0}" ;;
"-m builder.build.verbs.engine_need"*) exit "${NEED_EXIT:-0}" ;;
"-m builder.build.verbs.command_line"*) printf '[%s]' "$@"; echo ;;
esac
