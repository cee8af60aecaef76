"""The answers of ``list``, ``rollback`` and ``uninstall``, which work on installed packages.

Packages are removed in an order that leaves a whole one in use, or none, at whatever moment it is killed.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, Iterator, List, Optional, Tuple

from builder.client.commands.select_package import package_value
from builder.client.install.current import (
    before,
    detach,
    drop,
    in_use,
    installed,
    pointed,
    require_ours,
    size_of_files,
    switch,
    versions,
)
from builder.client.install.prefix import Prefix, clear_parts, make_folders, read_info
from builder.client.install.source import locate, without_network
from builder.client.install.unpack import verify
from builder.client.world import ClientOptions, CommandAnswer, World, head, require_yes
from builder.errors import IntegrityError, NothingToDoError
from builder.files.disk import disk_errors, remove
from builder.files.file_lock import exclusive
from builder.formats.index import Index, IndexPackage
from builder.formats.text import mib


@dataclass(frozen=True)
class Version:
    """A package that lies under the prefix; whether it is whole, only ``verify`` knows."""

    folder: Path
    name: str
    onnxruntime: Optional[str]
    installed_at: Optional[str]
    size: int
    """Bytes of its files; some may be shared with other versions."""
    role: Optional[str]
    """``current``, ``previous`` or nothing."""


def answer_list(world: World, options: ClientOptions) -> CommandAnswer:
    """What the release offers and what is installed. Quick: nothing is hashed."""
    index = _release(world, options)
    here = _versions(options.prefix)
    offered = index.packages if index else ()
    value = {
        **head("list"),
        "prefix": str(options.prefix.root),
        "tag": index.tag if index else None,
        "offered": [_offer_value(package, options.prefix) for package in offered],
        "installed": [_version_value(version) for version in here],
    }
    said = [f"installed under {options.prefix.root}:", *(map(_version_line, here) if here else ["  nothing"])]
    if index:
        said += [f"release {index.tag}:", *(_offer_line(package, options.prefix) for package in offered)]
    return CommandAnswer(value, tuple(said))


def answer_rollback(world: World, options: ClientOptions) -> CommandAnswer:
    """Go back to the package that was in use before, once every byte of it is proved."""
    prefix = options.prefix
    now, target = installed(prefix).name, _target(prefix)
    require_yes(world, options, f"Go back from {now} to {target.name}?")
    with _changing(world, prefix):
        now, target = installed(prefix).name, _target(prefix)
        problems = verify(target).problems
        if problems:
            raise IntegrityError(f"{target.name} is damaged, so {now} stays in use: {'; '.join(problems)}")
        switch(prefix, target, world.symlink)
    value = {**head("rollback"), "from": now, "to": target.name, "folder": str(target)}
    return CommandAnswer(value, (f"In use, every file verified: {target}", f"No longer in use: {now}"))


def answer_uninstall(world: World, options: ClientOptions) -> CommandAnswer:
    """Remove all that was installed, or with ``--old`` all that is not in use. What is not ours stays."""
    prefix = options.prefix
    if pointed(prefix) is None and not versions(prefix):
        raise NothingToDoError(f"No package is installed under {prefix.root}.")
    what = "all packages that are not in use" if options.old else "all packages"
    require_yes(world, options, f"Remove {what} under {prefix.root}?")
    with _changing(world, prefix):
        gone = remove_old(prefix) if options.old else remove_all(prefix)
    value = {
        **head("uninstall"),
        "removed": list(gone.names),
        "freed": gone.freed,
        "in_use": in_use(prefix),
        "left": [str(path) for path in gone.left],
    }
    return CommandAnswer(value, tuple(_farewell(gone, prefix)))


@contextmanager
def _changing(world: World, prefix: Prefix) -> Iterator[None]:
    """With the lock held; what the disk refuses is a ``DiskError``."""
    with disk_errors(prefix.root):
        require_ours(prefix)
        with exclusive(prefix.lock, lambda: world.say("Waiting for another command to finish.")):
            make_folders(prefix)
            clear_parts(prefix)
            yield


def _target(prefix: Prefix) -> Path:
    name = before(prefix)
    if name is None:
        raise NothingToDoError(f"{in_use(prefix)} is in use, and no package before it is here to go back to.")
    return prefix.versions / name


def _release(world: World, options: ClientOptions) -> Optional[Index]:
    """The index, where there is one to ask and the user wants it."""
    if options.local or not options.index:
        return None
    return locate(options.index, without_network(world.web) if options.offline else world.web).index


def _versions(prefix: Prefix) -> List[Version]:
    now, previous = in_use(prefix), before(prefix)
    roles = {previous: "previous", now: "current"}
    return [_version(folder, roles.get(folder.name)) for folder in versions(prefix)]


def _version(folder: Path, role: Optional[str]) -> Version:
    try:
        info = read_info(folder)
    except IntegrityError:
        info = {}
    name, version, when = (_text(info.get(key)) for key in ("name", "version", "installedAt"))
    return Version(folder, name or folder.name, version, when, size_of_files(folder), role)


def _text(value: object) -> Optional[str]:
    return value if isinstance(value, str) else None


def _version_value(version: Version) -> Dict[str, object]:
    return {
        "name": version.name,
        "folder": str(version.folder),
        "onnxruntime": version.onnxruntime,
        "installed_at": version.installed_at,
        "size": version.size,
        "role": version.role,
    }


def _version_line(version: Version) -> str:
    role = f", {version.role}" if version.role else ""
    return f"  {version.folder.name}: {mib(version.size)}{role}"


def _offer_value(package: IndexPackage, prefix: Prefix) -> Dict[str, object]:
    own = {"platform": package.platform, "onnxruntime": package.onnxruntime.version}
    sizes = {"installed_size": package.installed_size, "here": prefix.folder(package).is_dir()}
    return {**package_value(package), **own, **sizes}


def _offer_line(package: IndexPackage, prefix: Prefix) -> str:
    here = ", here" if prefix.folder(package).is_dir() else ""
    return f"  {package.file}: {mib(package.size)}, {mib(package.installed_size)} installed{here}"


def _farewell(gone: Gone, prefix: Prefix) -> Tuple[str, ...]:
    removed = f"Removed, {mib(gone.freed)} freed: {', '.join(gone.names) or 'nothing'}"
    now = in_use(prefix)
    if now is not None:
        return (removed, f"In use: {now}")
    return (removed, *(f"Not ours, it stays: {path}" for path in gone.left))


@dataclass(frozen=True)
class Gone:
    """What was removed, and the bytes that the disk has free by it."""

    names: Tuple[str, ...]
    freed: int
    left: Tuple[Path, ...]
    """What lies under the prefix and is not ours."""


def remove_old(prefix: Prefix) -> Gone:
    """All but the package in use. Only with the lock held."""
    now = in_use(prefix)
    return _dropped(prefix, tuple(folder for folder in versions(prefix) if folder.name != now))


def remove_all(prefix: Prefix) -> Gone:
    """Everything of ours: first the pointer, then the packages, the lock last. Only with the lock held."""
    detach(prefix)
    gone = _dropped(prefix, versions(prefix))
    for path in (prefix.gpu_info, prefix.history, prefix.downloads, prefix.parts, prefix.lock):
        with suppress(PermissionError):  # Windows keeps the lock while it is held
            remove(path)
    for folder in (prefix.state, prefix.versions, prefix.root):
        with suppress(OSError):  # somebody else's things are in it
            folder.rmdir()
    left = tuple(sorted(prefix.root.iterdir())) if prefix.root.is_dir() else ()
    return Gone(gone.names, gone.freed, left)


def _dropped(prefix: Prefix, folders: Tuple[Path, ...]) -> Gone:
    freed = drop(prefix, folders)
    return Gone(tuple(folder.name for folder in folders), freed, ())
