"""The command ``list`` shows the packages of the release and those that are installed."""

from __future__ import annotations

from pathlib import Path
from typing import Dict, Iterator, Mapping, Optional

from builder.client.commands.select_package import package_value, release
from builder.client.context import ClientOptions, CommandAnswer, CommandContext, head
from builder.client.install.current import in_use, previous_package, size_of_files, versions
from builder.client.install.prefix import Prefix, read_info
from builder.errors import IntegrityError, TransferError
from builder.formats.index import Index, IndexPackage
from builder.formats.text import amount


def answer_list(context: CommandContext, options: ClientOptions) -> CommandAnswer:
    """List the packages of the release and the installed ones, without hashing any file.

    The exit code is 10 where the release cannot be fetched; the installed packages are listed then too.
    """
    missed = None
    try:
        index = _release(context, options)
    except TransferError as error:
        index, missed = None, error
    here = list(_versions(options.prefix))
    offered = index.packages if index else ()
    value = {
        **head("list"),
        "prefix": str(options.prefix.root),
        "tag": index.tag if index else None,
        "offered": [_offer_value(package, options.prefix) for package in offered],
        "installed": here,
    }
    lines = [
        f"installed under {options.prefix.root}:",
        *(map(_version_line, here) if here else ["  nothing"]),
    ]
    if index:
        lines += [f"release {index.tag}:", *(_offer_line(package, options.prefix) for package in offered)]
    if missed is None:
        return CommandAnswer(value, tuple(lines))
    value["error"] = {"code": missed.exit_code, "message": str(missed)}
    return CommandAnswer(value, (*lines, f"release: {missed}"), missed.exit_code)


def _release(context: CommandContext, options: ClientOptions) -> Optional[Index]:
    """Return the release's index; ``None`` with ``--installed`` and where no index is known."""
    if options.local or not options.index:
        return None
    return release(context, options).index


def _versions(prefix: Prefix) -> Iterator[Dict[str, object]]:
    """Yield a description of each package under the prefix, whose files are not verified."""
    roles = {previous_package(prefix): "previous", in_use(prefix): "current"}
    for folder in versions(prefix):
        try:
            info = read_info(folder)
        except IntegrityError:
            info = {}
        name, version, when = (_text(info.get(key)) for key in ("name", "version", "installedAt"))
        yield {
            "name": name or folder.name,
            "folder": str(folder),
            "onnxruntime": version,
            "installed_at": when,
            "size": size_of_files(folder),
            "role": roles.get(folder.name),
        }


def _text(value: object) -> Optional[str]:
    return value if isinstance(value, str) else None


def _version_line(version: Mapping[str, object]) -> str:
    role = f", {version['role']}" if version["role"] else ""
    return f"  {Path(str(version['folder'])).name}: {amount(int(str(version['size'])))}{role}"


def _offer_value(package: IndexPackage, prefix: Prefix) -> Dict[str, object]:
    own = {"platform": package.platform, "onnxruntime": package.onnxruntime.version}
    sizes = {"installed_size": package.installed_size, "here": prefix.folder(package).is_dir()}
    return {**package_value(package), **own, **sizes}


def _offer_line(package: IndexPackage, prefix: Prefix) -> str:
    here = ", here" if prefix.folder(package).is_dir() else ""
    return f"  {package.file}: {amount(package.size)}, {amount(package.installed_size)} installed{here}"
