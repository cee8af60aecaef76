"""The verb ``bench`` measures embedding and writes the result as a table, JSON, a picture and a page."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from benchmarks import serving_page
from benchmarks.serving import Bench, facts, texts
from builder.build.own_programs import make_models
from builder.config.inputs import ort_wheel
from builder.errors import ValidationError
from builder.io.archive.client_zipapp import build_client
from builder.io.archive.unpacking import manifest_of
from builder.io.wiring import Wiring
from builder.prove.sample_models import EMBEDDER
from builder.prove.verify import unpacked

PROVIDERS = ("cpu", "cuda", "tensorrt", "directml", "coreml")

ALIASES = {"gpu": "cuda", "nvidia": "cuda", "trt": "tensorrt", "dml": "directml", "metal": "coreml"}
"""Names and aliases of the runtime layer's providers, which this process cannot import."""


_MOST_THREADS = 1024
"""The most threads that the runtime layer takes."""


def bench(
    wiring: Wiring,
    providers: Sequence[str],
    package: str | None,
    model: str | None,
    files: Mapping[str, str | None],
    threads: str | None,
) -> None:
    """Measure, print the table, and write the files of ``files``: ``figures``, ``svg`` and ``page``.

    Raises ``ValidationError`` for an unknown provider, an incomplete model folder, a bad thread count or a
    file that cannot be written, before anything is measured.
    """
    threads_used = _threads(threads)
    chosen = [_provider(name) for name in providers] or ["cpu", *(["cuda"] if package else [])]
    wanted = {kind: _writable(kind, file) for kind, file in files.items() if file}
    folder = _model(model) if model else make_models(wiring) / EMBEDDER
    with _package_env(wiring, package) as env:
        asked = Bench(
            model=folder,
            root=wiring.root,
            cache=wiring.cache,
            providers=chosen,
            package_env=env,
            threads=threads_used,
        )
        rows = asked.rows()
    wiring.reporter.say(serving_page.text(rows))
    told = facts(asked)
    if "figures" in wanted:
        wanted["figures"].write_text(serving_page.dumps(rows, told), encoding="utf-8")
    if "svg" in wanted:
        wanted["svg"].write_text(serving_page.picture(rows, wiring.templates), encoding="utf-8")
    if "page" in wanted:
        picture = os.path.relpath(wanted["svg"], wanted["page"].parent) if "svg" in wanted else None
        flags = {"package": package, "model": model, "threads": threads, **files}
        command = " ".join(["./run bench", *_words(providers, flags)])
        wanted["page"].write_text(serving_page.page(rows, told, command, picture), encoding="utf-8")


def _words(providers: Sequence[str], flags: Mapping[str, str | None]) -> Iterator[str]:
    """Yield the flags, as the user gave them, that say what is measured and where the results are written."""
    yield from (f"--provider {name}" for name in providers)
    yield from (f"--{name} {value}" for name, value in flags.items() if value)


def _provider(text: str) -> str:
    name = ALIASES.get(text, text)
    if name not in PROVIDERS:
        raise ValidationError(f"--provider {text!r} is none of {', '.join((*PROVIDERS, *ALIASES))}.")
    return name


def _writable(kind: str, text: str) -> Path:
    """Return the path of a result, whose folder is made here: a failure at the end would lose the results."""
    file = Path(text)
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
    place = file if file.exists() else file.parent
    if file.is_dir() or not file.parent.is_dir() or not os.access(place, os.W_OK):
        raise ValidationError(f"--{kind} {text} cannot be written. Name a file in a folder of yours.")
    return file


def _model(text: str) -> Path:
    folder = Path(text).absolute()
    for name in ("model.onnx", "tokenizer.json"):
        if not (folder / name).is_file():
            raise ValidationError(
                f"--model {text}: there is no {name} in it. Name a folder of an embedding model."
            )
    try:
        texts(folder)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValidationError(
            f"--model {text}: the vocabulary in its tokenizer.json has no words to make texts of."
        ) from error
    return folder


def _threads(text: str | None) -> int:
    if text is None:
        return len(os.sched_getaffinity(0))
    plain = text.isascii() and text.isdecimal() and len(text) <= len(str(_MOST_THREADS))
    if not plain or not 1 <= int(text) <= _MOST_THREADS:
        raise ValidationError(f"--threads {text[:20]!r}: a whole number from 1 to {_MOST_THREADS} is wanted.")
    return int(text)


@contextmanager
def _package_env(wiring: Wiring, package: str | None) -> Iterator[dict[str, str]]:
    """Yield the environment variables that make Python use a package under the official wheel of its version.

    They are empty without a package.
    """
    if package is None:
        yield {}
        return
    path = Path(package)
    version = manifest_of(path).onnxruntime.version
    wheel = wiring.store(wiring.lock, wiring.reporter).unpack(ort_wheel(version))
    client = build_client(wiring.root, wiring.cache / "bench" / "ortpacks.pyz", None)
    with unpacked(wiring, wiring.reporter, path) as folder:
        yield {
            "PYTHONPATH": str(wheel),
            "ORT_DYLIB_PATH": str(folder / "lib" / "libonnxruntime.so.1"),
            "ORTPACKS_CLIENT": str(client),
        }
