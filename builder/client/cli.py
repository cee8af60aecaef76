"""The command line: arguments in, text or JSON out, an exit code back."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Callable, Iterator, Mapping, Sequence

from builder.client.answers import COMMANDS, Options, World
from builder.client.env import SHELLS
from builder.client.layout import Prefix, default_prefix
from builder.client.offer import AUTO, WISHES
from builder.client.source import default_index
from builder.errors import BuilderError

INTERRUPTED = 130

_HELP = {
    "detect": "show the NVIDIA GPUs of this machine and how they were found",
    "select": "show which package fits this machine and why",
    "install": "download, verify and install the package that fits; on a machine without GPU: nothing",
    "verify": "hash the installed package again",
    "env": "print what to set so that an application finds the installed package",
    "recommend": "show the largest model that this machine can hold",
}
_LAYOUT = "full: everything in one archive; thin: NVIDIA's libraries from this machine or their wheels"
_LOOK_IN = "an environment that may have NVIDIA's libraries (PyTorch's, say); may be repeated"
_EPILOG = """\
exit codes:
  0  done; also when the answer is the CPU
  2  wrong flag, environment variable or index
  3  nothing is installed
  4  nothing here can unpack zstd, or has pip
  7  bytes are not what they should be
  9  --variant has no package for this platform, or not in that --layout
 10  a download did not come through
 11  the disk is full or cannot be written
130  interrupted

environment:
  ORTPACKS_INDEX         default of --index
  ORTPACKS_FORCE_CC      state the GPUs: 8.6 or 8.6,5.2; none for no GPU
  ORTPACKS_FORCE_DRIVER  state the driver's version: 570.133.07
  ORTPACKS_LOOK_IN       more folders for --look-in, as in PATH
  CUDA_VISIBLE_DEVICES   respected
  PIP_...                pip fetches NVIDIA's libraries: its index, proxy and certificates
"""


def main(
    argv: Sequence[str],
    world: World,
    home: Path,
    out: Callable[[str], None],
    err: Callable[[str], None],
) -> int:
    """Run one command and return its exit code; ``SystemExit`` for ``--help`` and bad flags."""
    arguments = _parser().parse_args(argv)
    try:
        answer = COMMANDS[arguments.command](world, _options(arguments, world.around.env, home))
    except BuilderError as error:
        err(f"ortpacks: {error}")
        return error.exit_code
    except KeyboardInterrupt:
        err("ortpacks: interrupted; what was installed before is unchanged")
        return INTERRUPTED
    value = json.dumps(answer.value, indent=2, ensure_ascii=False)
    out(value if arguments.json else "\n".join(answer.lines))
    return answer.code


def _options(arguments: argparse.Namespace, env: Mapping[str, str], home: Path) -> Options:
    given = vars(arguments)
    prefix: Path = given.get("prefix") or default_prefix(env, home)
    return Options(
        prefix=Prefix(prefix.expanduser().absolute()),
        index=given.get("index") or env.get("ORTPACKS_INDEX") or default_index(),
        variant=given.get("variant"),
        dialect=given.get("shell") or "sh",
        layout=given.get("layout") or AUTO,
        look_in=tuple(_look_in(given.get("look_in") or [], env)),
    )


def _look_in(given: Sequence[Path], env: Mapping[str, str]) -> Iterator[Path]:
    yield from (folder.expanduser().absolute() for folder in given)
    named = env.get("ORTPACKS_LOOK_IN", "").split(os.pathsep)
    yield from (Path(name).expanduser().absolute() for name in named if name)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ortpacks",
        description="Finds the ONNX Runtime GPU package that fits this machine and installs it.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, text in _HELP.items():
        _add_flags(name, commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}."))
    return parser


def _add_flags(name: str, command: argparse.ArgumentParser) -> None:
    command.add_argument("--json", action="store_true", help="print JSON (docs/schemas/client.schema.json)")
    if name in {"select", "install", "recommend"}:
        command.add_argument(
            "--index", metavar="URL|FILE|DIR", help="the release's index.json, or its folder"
        )
        command.add_argument("--variant", metavar="NAME", help="take this variant, whatever the GPU")
    if name in {"install", "verify", "env"}:
        command.add_argument("--prefix", type=Path, metavar="DIR", help="default: ~/.local/share/ortpacks")
    if name == "install":
        command.add_argument("--layout", choices=WISHES, default=AUTO, help=_LAYOUT)
        command.add_argument("--look-in", type=Path, metavar="DIR", action="append", help=_LOOK_IN)
    if name == "env":
        command.add_argument("--shell", choices=sorted(SHELLS), default="sh", help="default: sh")
