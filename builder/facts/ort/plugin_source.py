"""What a source says of the plug-in that is made of it: its version, and which hosts register it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping

from builder.facts.ort.configured import SourceLine
from builder.facts.ort.source import VERSION_FILE
from builder.facts.ort.source_rules import Fact, PluginSource

_OLDEST_HOST = "plugin-ep-cuda/MIN_ONNXRUNTIME_VERSION"

_OWN_VERSION = "plugin-ep-cuda/VERSION_NUMBER"

_API = "include/onnxruntime/core/session/onnxruntime_c_api.h"

_DOMAINS = "include/onnxruntime/core/graph/constants.h"

_SCHEMAS = re.compile(r"onnxruntime/core/graph/contrib_ops/[^/]+\.(?:cc|h)")

_NUMBERS = re.compile(r"^\s*(\d+\.\d+\.\d+)\s*$", re.MULTILINE)

_API_VERSION = re.compile(r"^\s*#\s*define\s+ORT_API_VERSION\s+(\d+)\b", re.MULTILINE)

_KERNEL = re.compile(r"\bONNX_OPERATOR_\w*KERNEL_EX\(\s*(\w+)\s*,\s*(k\w+Domain)\s*,")
"""The beginning of a kernel's registration: its operator, and the constant with its domain."""

_TRAINING = re.compile(r"^#\s*ifdef ENABLE_TRAINING.*?^#\s*endif", re.DOTALL | re.MULTILINE)

_DOMAIN = re.compile(r'\b(k\w+Domain)\s*=\s*"([\w.]*)"')


def is_of_plugin(path: str) -> bool:
    """Return whether ``plugin_in`` reads the file of this path below a source's root."""
    return path in {_OLDEST_HOST, _OWN_VERSION, _API, _DOMAINS} or _SCHEMAS.fullmatch(path) is not None


def plugin_in(texts: Mapping[str, str]) -> PluginSource | None:
    """Return what the texts of a source say, by path; ``None`` for a source that makes no plug-in."""
    oldest, api = _fact(texts, _OLDEST_HOST, _NUMBERS), _fact(texts, _API, _API_VERSION)
    version = _fact(texts, _OWN_VERSION, _NUMBERS) or _fact(texts, VERSION_FILE, _NUMBERS)
    if oldest is None or api is None or version is None:
        return None
    return PluginSource(version, oldest, api, _schemas(texts))


def _fact(texts: Mapping[str, str], path: str, pattern: re.Pattern[str]) -> Fact | None:
    text = texts.get(path, "")
    match = pattern.search(text)
    return Fact(match[1], SourceLine.at(path, text, match.start(1))) if match else None


def _schemas(texts: Mapping[str, str]) -> Fact | None:
    """Return the sha256 over the sources of the schemas, each with its path, at the first of them."""
    paths = sorted(filter(_SCHEMAS.fullmatch, texts))
    content = "".join(f"{path}\0{texts[path]}\0" for path in paths)
    return Fact(hashlib.sha256(content.encode()).hexdigest(), SourceLine(paths[0], 1)) if paths else None


def left_out(
    texts: Mapping[str, str], sources: Mapping[str, str], in_provider: Iterable[str], in_plugin: Iterable[str]
) -> Mapping[str, tuple[str, ...]]:
    """Return the operators that the provider has kernels for and the plug-in lacks, sorted, by domain.

    ``texts`` as for ``plugin_in``; ``sources`` as ``SourceTree`` has them, and the paths among them that are
    compiled for each of the two.
    """
    domains = dict(_DOMAIN.findall(texts.get(_DOMAINS, "")))

    def kernels(compiled: Iterable[str]) -> set[tuple[str, str]]:
        some = (_TRAINING.sub("", sources[path]) for path in compiled if path in sources)
        named = (match for text in some for match in _KERNEL.findall(text))
        return {(domains[domain], name) for name, domain in named if domain in domains}

    missing = sorted(kernels(in_provider) - kernels(in_plugin))
    return {domain: tuple(name for of, name in missing if of == domain) for domain, _ in missing}
