"""Factory of sources of ONNX Runtime that were made up: a version, a list of archives, and CMake files."""

import hashlib
import os
from pathlib import Path

from tests.support import ort_source, ran

HOST = "host.example"

NAMES = {"abseil_cpp": "abseil_cpp", "eigen": "Eigen3", "json": "nlohmann_json"}
"""Dependencies by their name in ``deps.txt``, with that for ``FetchContent``."""

_HOW = (
    *("-c", "user.name=nobody", "-c", "user.email=nobody@example.org", "-c", "commit.gpgsign=false"),
    *("-c", "gc.auto=0", "-c", "protocol.file.allow=always"),
)

_WHEN = dict.fromkeys(("GIT_AUTHOR_DATE", "GIT_COMMITTER_DATE"), "2025-03-08T00:00:00Z")


def git(folder: Path, *words: str) -> str:
    """Run git in a folder as nobody, at ``_WHEN``, and return what it prints."""
    return ran(["git", *_HOW, *words], cwd=folder, env={**os.environ, **_WHEN}, check=True).stdout.strip()


def url_of(name: str) -> str:
    """Return the address of a dependency's archive."""
    return f"https://{HOST}/{name}/archive/v1.zip"


def archive(name: str) -> bytes:
    """Return the bytes of a dependency's archive."""
    return f"the archive of {name}".encode()


def lay_source(folder: Path, version: str = "1.29.0", names: tuple[str, ...] = tuple(NAMES)) -> Path:
    """Write a source into a new folder and return the folder."""
    sha1s = {name: hashlib.sha1(archive(name), usedforsecurity=False).hexdigest() for name in names}
    rows = "".join(f"{name};{url_of(name)};{sha1}\n" for name, sha1 in sha1s.items())
    uses = "".join(f"FetchContent_Declare({NAMES[name]} URL ${{DEP_URL_{name}}})\n" for name in names)
    texts = {
        **ort_source.FILES,
        "VERSION_NUMBER": f"{version}\n",
        "cmake/deps.txt": f"#Name;Url;SHA1\n{rows}",
        "cmake/CMakeLists.txt": ort_source.FILES["cmake/CMakeLists.txt"] + uses,
        "onnxruntime/core/a.cc": "int a;\n",
        ".gitignore": "build/\n",
    }
    for path, text in texts.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
    return folder


def commit(folder: Path, tag: str = "") -> str:
    """Commit all files of a folder, in a new repository if there is none, and return the commit."""
    if not (folder / ".git").exists():
        git(folder, "init", "--quiet", "--initial-branch=main")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--message", "a commit")
    if tag:
        git(folder, "tag", tag)
    return git(folder, "rev-parse", "HEAD")


def lay_mirror(folder: Path, *names: str) -> Path:
    """Write archives below a mirror's folder, by host and path, and return the folder."""
    for name in names or NAMES:
        file = folder / url_of(name).removeprefix("https://")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(archive(name))
    return folder
