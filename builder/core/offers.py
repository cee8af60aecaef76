"""Which entries of an index are one package: its layouts and kinds of archive."""

from __future__ import annotations

from typing import Dict, Iterable, Tuple

from builder.core.index import LAYOUTS, IndexPackage
from builder.core.naming import ARCHIVE_SUFFIXES, form_of


def distinct(packages: Iterable[IndexPackage]) -> Tuple[IndexPackage, ...]:
    """Each package once, in the index's order: full before thin, zstd before gzip."""
    first: Dict[Tuple[object, ...], IndexPackage] = {}
    for package in packages:
        known = first.setdefault(_identity(package), package)
        if _shape_rank(package) < _shape_rank(known):
            first[_identity(package)] = package
    return tuple(first.values())


def offers(packages: Iterable[IndexPackage], chosen: IndexPackage) -> Tuple[IndexPackage, ...]:
    """Everything that installs what ``chosen`` installs: its layouts and kinds of archive, best first."""
    return tuple(sorted((package for package in packages if is_same(package, chosen)), key=_shape_rank))


def is_same(one: IndexPackage, other: IndexPackage) -> bool:
    """Whether both install the same."""
    return _identity(one) == _identity(other)


def _identity(package: IndexPackage) -> Tuple[object, ...]:
    """What is the same in every layout and kind of archive of one package."""
    runs_on = (package.glibc, package.driver, tuple(sorted(package.capabilities.items())))
    return (package.variant, package.platform, package.provider, package.onnxruntime, *runs_on)


def _shape_rank(package: IndexPackage) -> Tuple[int, int, str]:
    """``file`` at the end: the same entries in another order are the same answer."""
    form = ARCHIVE_SUFFIXES.index(form_of(package.file).value)
    return (LAYOUTS.index(package.layout), form, package.file)
