"""Which of a package's layouts and kinds of archive this machine should take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable, Optional, Sequence, Tuple

from builder.errors import NoCompatiblePackageError
from builder.formats.index import IndexPackage
from builder.formats.package_names import Form, Layout, form_of

AUTO = "auto"

WISHES = (AUTO, *(layout.value for layout in Layout))
"""What ``--layout`` takes."""


@dataclass(frozen=True)
class Pick:
    """What to install, and why this and not its siblings."""

    package: IndexPackage
    why: str


def within(offers: Sequence[IndexPackage], wish: str) -> Tuple[IndexPackage, ...]:
    """The offers of the layout asked for. ``NoCompatiblePackageError`` where there is none."""
    mine = tuple(offer for offer in offers if wish in {AUTO, offer.layout})
    if not mine:
        there = ", ".join(sorted({offer.layout for offer in offers}))
        raise NoCompatiblePackageError(
            f"--layout {wish}: {offers[0].name} is released in layout {there} only."
        )
    return mine


def pick(
    offers: Sequence[IndexPackage],
    wish: str,
    readable: Callable[[Form], bool],
    nothing_missing: Callable[[IndexPackage], bool],
) -> Pick:
    """One of ``offers``, which are ``within`` the wish, best first.

    Thin where that costs no more than its archive (``nothing_missing``), else full. zstd where it is read.
    """
    usable = [offer for offer in offers if readable(form_of(offer.file))] or list(offers)
    full, thin = _first(usable, Layout.FULL), _first(usable, Layout.THIN)
    if full is None or thin is None:
        only = usable[0]
        return Pick(only, f"Layout {only.layout}: {_no_choice(offers, wish)}.{_form_note(only, offers)}")
    if nothing_missing(thin):
        saved = f"{_mib(thin.size)} are fetched instead of {_mib(full.size)}"
        return Pick(
            thin, f"Layout thin: NVIDIA's libraries are on this machine, {saved}.{_form_note(thin, offers)}"
        )
    note = _form_note(full, offers)
    return Pick(full, f"Layout full: not all of NVIDIA's libraries are on this machine.{note}")


def _first(offers: Sequence[IndexPackage], layout: Layout) -> Optional[IndexPackage]:
    return next((offer for offer in offers if offer.layout == layout.value), None)


def _no_choice(offers: Sequence[IndexPackage], wish: str) -> str:
    if wish != AUTO:
        return "as asked with --layout"
    alone = len({offer.layout for offer in offers}) == 1
    return "the release has no other" if alone else "nothing here can unpack the other"


def _form_note(chosen: IndexPackage, offers: Sequence[IndexPackage]) -> str:
    better = any(offer.layout == chosen.layout and form_of(offer.file) is Form.ZST for offer in offers)
    if form_of(chosen.file) is Form.GZ and better:
        return " As gzip: nothing here can unpack zstd."
    return ""


def _mib(size: int) -> str:
    return f"{size / 2**20:.0f} MiB"
