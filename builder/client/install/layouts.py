"""Rules for the choice among a package's archives: by layout and by compression."""

from __future__ import annotations

from typing import Callable, Optional, Sequence, Tuple

from builder.client.install.decompress import readable
from builder.errors import NoCompatiblePackageError
from builder.formats.index import IndexPackage
from builder.formats.package_names import Form, Layout, form_of
from builder.formats.text import amount


def within(offers: Sequence[IndexPackage], wish: Optional[str]) -> Tuple[IndexPackage, ...]:
    """Return the offers of the layout that the user asked for; all where ``wish`` is ``None``.

    Raises ``NoCompatiblePackageError`` where the package is not released in that layout.
    """
    mine = tuple(offer for offer in offers if wish in {None, offer.layout})
    if not mine:
        there = ", ".join(sorted({offer.layout for offer in offers}))
        raise NoCompatiblePackageError(
            f"--layout {wish}: {offers[0].name} is released in layout {there} only.",
            advice="Leave --layout out, or name that one.",
        )
    return mine


def pick(
    offers: Sequence[IndexPackage],
    wish: Optional[str],
    nothing_missing: Callable[[IndexPackage], bool],
) -> Tuple[IndexPackage, str]:
    """Return one of ``offers``, which ``within`` returned, best first; and the reason in a sentence.

    The thin layout is chosen where ``nothing_missing`` says that only its archive must be fetched, else the
    full one; zstd where it can be decompressed, else gzip.
    """
    usable = [offer for offer in offers if readable(form_of(offer.file))] or list(offers)
    full, thin = _first(usable, Layout.FULL), _first(usable, Layout.THIN)
    if full is None or thin is None:
        chosen, why = usable[0], _no_choice(offers, wish)
    elif nothing_missing(thin):
        saved = f"{amount(thin.size)} are fetched instead of {amount(full.size)}"
        chosen, why = thin, f"NVIDIA's libraries are on this machine, {saved}"
    else:
        chosen, why = full, "not all of NVIDIA's libraries are on this machine"
    return chosen, f"Layout {chosen.layout}: {why}.{_form_note(chosen, offers)}"


def _first(offers: Sequence[IndexPackage], layout: Layout) -> Optional[IndexPackage]:
    return next((offer for offer in offers if offer.layout == layout.value), None)


def _no_choice(offers: Sequence[IndexPackage], wish: Optional[str]) -> str:
    if wish is not None:
        return "as asked with --layout"
    one_layout = len({offer.layout for offer in offers}) == 1
    return "the release has no other" if one_layout else "nothing here can unpack the other"


def _form_note(chosen: IndexPackage, offers: Sequence[IndexPackage]) -> str:
    better = any(offer.layout == chosen.layout and form_of(offer.file) is Form.ZST for offer in offers)
    if form_of(chosen.file) is Form.GZ and better:
        return " As gzip: nothing here can unpack zstd."
    return ""
