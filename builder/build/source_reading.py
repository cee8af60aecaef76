"""What a base's source says of builds: read from the source itself, unless it is stored for its release.

A source is read as it is repaired (``config.repairs``). A reading takes 10 to 25 CPU seconds. It is kept in
the cache, by the source's pin and all that it depends on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from dataclasses import replace
from itertools import product
from pathlib import Path

from builder.config.inputs import Input, Pin, ort_wheel
from builder.config.profiles import is_plugin_known, known_options, reading_settings
from builder.config.repairs import of_form
from builder.config.variants import Base
from builder.console import Reporter
from builder.errors import ParseError, ValidationError
from builder.facts.gpu.compatibility import NVCCS
from builder.facts.gpu.table import KNOWN_SM
from builder.facts.ort import known_rules
from builder.facts.ort.configured import LIST, Call, Configure, SourceLine, Trace
from builder.facts.ort.known_rules import DATA, ReadSource, is_read, read_sources, rules_for, text_of
from builder.facts.ort.plugin_source import is_of_plugin, left_out, plugin_in
from builder.facts.ort.rule_reader import read_rules
from builder.facts.ort.source_rules import SourceRules
from builder.facts.ort.source_tree import BELOW, SourceTree, is_wanted
from builder.farm.repair import Repair, advice, repaired
from builder.files.atomic_write import write_file
from builder.files.file_lock import exclusive
from builder.formats.package_names import PackageForm, Profile
from builder.io import cmake
from builder.io.store import texts_in
from builder.io.wiring import Wiring
from builder.publish.image import commit_of

_READER = (
    *Path(known_rules.__file__).parent.glob("*.py"),
    *Path(cmake.__file__).parent.glob("*cmake*"),
)
"""What a reading depends on besides the source."""


def rules_of(
    wiring: Wiring, base: Base, reporter: Reporter, form: PackageForm = PackageForm.PROVIDER
) -> SourceRules | None:
    """Return the rules of a base's source for packages of a form. The source is fetched if needed.

    ``None`` where those that are stored for its version hold (``rules_for``): of a release's own source, and
    of one without a pin. Stored rules are those of providers. Raises ``ParseError`` and what fetching does.
    """
    item, version = base.source.item, base.ort_version
    is_stored = item.is_release(version) and (is_read(version) or not wiring.is_trial)
    if form is PackageForm.PLUGIN:
        is_stored = is_read(version) and item.is_release(version) and not is_plugin_known(rules_for(version))
    if is_stored or wiring.lock.is_open(item):
        return None
    return _kept(wiring, item, base.toolkit.version, reporter, form)


def other_host(wiring: Wiring, base: Base, unpack: Callable[[Input], Path]) -> str:
    """Return why the official host library of a base's version is not of its source; empty if it is.

    The commit that the library names is compared with the source's. Empty too where ``variants.yaml`` names a
    source of no commit. ``unpack`` returns the folder of a wheel's files.
    """
    source, wheel = base.source.item, ort_wheel(base.ort_version)
    is_release, pin = source.is_release(base.ort_version), wiring.lock.pins.get(source.key, Pin())
    if not wiring.is_trial and (is_release or not pin.revision):
        return ""
    try:
        host = next(unpack(wheel).glob("onnxruntime/capi/libonnxruntime.so.*"))
    except ValidationError as error:  # the index has no such version
        return error.headline.rstrip(".")
    commit = commit_of(host.read_bytes())
    if is_release or (commit and not pin.is_dirty and (pin.revision or "").startswith(commit)):
        return ""
    state = (pin.revision or "")[: len(commit)] + (" with changes" if pin.is_dirty else "")
    return f"{wheel.spec} was built from commit {commit}, and not from {state or source.public}"


def store_rules(wiring: Wiring, reporter: Reporter) -> None:
    """Write the rules of releases that are pinned as sources, and whose own source was not read, to ``DATA``.

    Raises what ``rules_of`` does.
    """
    bases = wiring.project.bases.values()
    unread = {
        base.ort_version: base.source.item
        for base in bases
        if base.source.item.is_release(base.ort_version) and not is_read(base.ort_version)
        if not wiring.lock.is_open(base.source.item)
    }
    made = [
        ReadSource(f"v{version}", version, _kept(wiring, item, NVCCS[-2], reporter, PackageForm.PROVIDER))
        for version, item in unread.items()
    ]
    if made:
        write_file(wiring.root / DATA, text_of((*read_sources(), *made), known_options()).encode())


def commands_of(wiring: Wiring, texts: Mapping[str, str]) -> Iterator[Call]:
    """Yield the commands that CMake runs for the builds of this project, as they are written.

    With what it looks for on a machine, and without. ``texts`` are those of a source's CMake files and list.
    Raises ``ParseError``.
    """
    with wiring.cmake(texts) as configure:
        for profile, cuda, found in product(Profile, (NVCCS[0], NVCCS[-1]), ("OFF", "ON")):
            settings = {**reading_settings(profile), "CMAKE_CUDA_COMPILER_VERSION": cuda}
            yield from configure({**settings, "READER_ANSWER": found}, Trace.WRITTEN).calls


def _kept(wiring: Wiring, item: Input, cuda: str, reporter: Reporter, form: PackageForm) -> SourceRules:
    settings = reading_settings(form=form)
    reader = [path.read_bytes() for path in sorted(_READER)]
    what = repr((wiring.lock.pins[item.key], cuda, sorted(settings.items()), of_form(form))).encode()
    file = wiring.cache / "rules" / f"{hashlib.sha256(b''.join((*reader, what))).hexdigest()[:32]}.json"
    with exclusive(file.with_suffix(".lock"), lambda: reporter.say("waiting: another reads the source")):
        if not file.exists():
            reporter.say(f"reading {item.spec}: some 20 s, once")
            rules = _read(wiring, item, cuda, reporter, form)
            write_file(file, known_rules.dumps(rules).encode())
        return known_rules.loads(SourceRules, file.read_text(encoding="utf-8"))


def _read(wiring: Wiring, item: Input, cuda: str, reporter: Reporter, form: PackageForm) -> SourceRules:
    tar = wiring.store(wiring.lock, reporter).fetch(item)
    to_repair = {repair.file for repair in of_form(form).values() if not repair.dependency}
    as_plugin = form is PackageForm.PLUGIN

    def is_used(path: str) -> bool:
        return is_wanted(path) or path in to_repair or (as_plugin and is_of_plugin(path))

    try:
        texts = texts_in(tar, is_used, item.folders_above, (".cc", ".cu"))
        repairs = repair_texts(texts, form)
        plugin = plugin_in(texts) if as_plugin else None
        files = {path: "" if path.startswith(BELOW) else text for path, text in texts.items()}
        with wiring.cmake(files) as configure:
            source = SourceTree.read(texts)
            rules = read_rules(source, configure, reading_settings(form=form), cuda=cuda)
            if plugin:
                missing = left_out(texts, source.texts, *_compiled(configure, cuda))
                plugin = replace(plugin, left_out=missing)
        return replace(rules, repairs=repairs, plugin=plugin)
    except ParseError as error:
        error.what = f"{item.spec}: {error.what}"
        raise


def _compiled(configure: Configure, cuda: str) -> Iterator[set[str]]:
    """Yield the paths below ``BELOW`` that are compiled for a provider, then those for a plug-in."""
    for form in (PackageForm.PROVIDER, PackageForm.PLUGIN):
        settings = {**reading_settings(form=form), "CMAKE_CUDA_COMPILER_VERSION": cuda}
        targets = configure({**settings, LIST: f"{KNOWN_SM[-1]}-real"}, Trace.NOTHING).targets
        yield {path.removeprefix(BELOW) for target in targets.values() for path in target.sources}


def repair_texts(
    texts: MutableMapping[str, str], form: PackageForm = PackageForm.PROVIDER
) -> Mapping[str, SourceLine]:
    """Repair the texts of a source by path, and return the repairs that it needs by name, with their lines.

    They are those of packages of ``form``. Raises ``ParseError`` for a repair that does not fit.
    """
    places: dict[str, SourceLine] = {}
    for name, repair in of_form(form).items():
        if not repair.dependency and repair.file in texts and repair.beside in {"", *places}:
            texts[repair.file], line = _repaired(texts[repair.file], repair)
            places |= {name: SourceLine(repair.file, line)} if line else {}
    return places


def _repaired(text: str, repair: Repair) -> tuple[str, int]:
    try:
        return repaired(text, repair)
    except ValueError as error:
        raise ParseError(
            f"repair {repair.name} does not fit {repair.file}", cause=str(error), advice=advice(repair)
        ) from error
