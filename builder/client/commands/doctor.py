"""The command ``doctor`` examines the machine and the package in use, and reports what it finds.

ONNX Runtime in Python environments is recognised by the files that distributions own, and imported in a child
process. Libraries in ``LD_LIBRARY_PATH`` that the loader finds before the package's are recognised by their
names.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Callable, Dict, Iterable, Iterator, Mapping, Optional, Sequence, Tuple

from builder.client.commands.environment import DYLIB
from builder.client.commands.hosts import found_host
from builder.client.commands.python_distributions import broken_imports, distributions, plugin_wheels
from builder.client.commands.show_gpus import device_line, device_value
from builder.client.context import CommandAnswer, CommandContext
from builder.client.doctor import check_cuda, check_machine, check_package
from builder.client.doctor.advice import MachineFinding, advice_at, places
from builder.client.doctor.observations import (
    Cache,
    InstalledPackage,
    Kernel,
    ModelTrial,
    Observations,
    Outcome,
    SessionTrial,
    Shadow,
)
from builder.client.install.current import folder_in_use
from builder.client.install.prefix import INFO, Prefix, read_info
from builder.client.install.unpack import Verification, verify, verify_sizes
from builder.client.probe.detect import (
    FORCED_CAPABILITIES,
    FORCED_DRIVER,
    FORCED_MEMORY,
    VARIABLE,
    Surroundings,
    detect,
)
from builder.client.probe.system import LIBRARIES, driver_on_disk, read_kernel
from builder.client.selection.forms import ApplicationHost, host_refusal
from builder.client.trials.try_out import OrtTrials, host_of, model_file, no_host, reason
from builder.errors import BuilderError, CheckFailedError, ConfigError, NothingToDoError
from builder.files.digest import Digest, has_bytes
from builder.files.disk import is_file, is_folder, is_writable
from builder.finding import Severity
from builder.formats.index import entry_of
from builder.formats.manifest import FileEntry, Manifest
from builder.formats.package_names import CPU, CUDA, LIB, MANIFEST
from builder.formats.stored_file import StoredFile
from builder.formats.text import printable

_TEMPORARY = "/tmp"  # noqa: S108 it is only looked at

_MOST_DIGITS = 20
"""The most digits of a number of bytes that is read."""

_MOST_CHARACTERS = 4000
"""The most characters of an application's error that are searched, because the patterns are slow."""

_STATED = (FORCED_CAPABILITIES, FORCED_DRIVER, FORCED_MEMORY)


def answer_doctor(
    context: CommandContext,
    prefix: Prefix,
    look_in: Sequence[Path] = (),
    models: Sequence[str] = (),
    said: Optional[str] = None,
) -> CommandAnswer:
    """Examine the machine and the package in use. Exit code 6 when a finding is an error, else 0.

    ``look_in`` are environments that may hold NVIDIA's libraries, ``models`` model files to open, ``said`` is
    an application's error to explain.
    """
    if said is None:
        observed = examine(context, prefix, look_in, models)
    else:
        observed = examine_failure(context, prefix, said)
    findings = diagnose(observed)
    bad = any(finding.severity is Severity.ERROR for finding in findings)
    lines = (*_findings(findings), *_machine_lines(observed, ran=said is None))
    return CommandAnswer(_value(findings, observed), lines, CheckFailedError.exit_code if bad else 0)


def _findings(findings: Sequence[MachineFinding]) -> Iterator[str]:
    if all(finding.severity is Severity.NOTE for finding in findings):
        yield "Nothing is wrong."
    for finding in findings:
        yield f"{finding.code} {finding.severity.value}: {finding.seen}"
        yield f"  means: {finding.means}"
        yield f"  do: {finding.do}"


def _machine_lines(observed: Observations, *, ran: bool) -> Iterator[str]:
    yield "seen:"
    yield f"  {_place(observed)}"
    yield from (f"  {device_line(device)}" for device in observed.devices)
    yield f"  driver {observed.driver or 'unknown'}, CUDA {observed.cuda or 'unknown'}"
    if observed.installed is not None:
        yield f"  package {observed.installed.package.name} in {observed.installed.folder}"
    if ran and observed.trial is not None:
        yield f"  {_trial_line(observed.trial)}"
        yield from (f"    with {path}" for path in observed.trial.loaded)
    for model in observed.models:
        how = "opens" if model.failure is None else "does not open"
        yield f"  {model.model} {how} with {model.provider}"
    yield from (
        f"  {probe.name}: {probe.outcome.value}: {probe.detail}" for probe in observed.replies.values()
    )


def _place(observed: Observations) -> str:
    system = observed.system
    details = (system.container, system.sandbox, system.vgpu)
    named = next((text for text in details if text), None)
    title = places()[system.place].title
    return f"{title} ({named})" if named else title


def _trial_line(trial: SessionTrial) -> str:
    if trial.registered_by is not None:
        how = "registers" if trial.failure is None else "does not register"
        return f"{trial.registered_by} {how} the plug-in" + (f": {trial.failure}" if trial.failure else "")
    if trial.failure is None:
        return f"a session of one node ran on {trial.provider}"
    on_cpu = {True: ", on cpu it ran", False: ", on cpu it does not run either", None: ""}[trial.on_cpu]
    return f"a session of one node does not run on {trial.provider}{on_cpu}: {trial.failure}"


def _value(findings: Sequence[MachineFinding], observed: Observations) -> Dict[str, object]:
    return {
        "findings": [
            {
                "code": one.code,
                "severity": one.severity.value,
                "seen": one.seen,
                "means": one.means,
                "do": one.do,
            }
            for one in findings
        ],
        "place": observed.system.place,
        "platform": observed.platform,
        "driver": observed.driver,
        "cuda": observed.cuda,
        "devices": [device_value(device) for device in observed.devices],
        "package": observed.installed.package.name if observed.installed else None,
        "trial": asdict(observed.trial) if observed.trial else None,
        "models": [asdict(model) for model in observed.models],
        "probes": [
            {"name": probe.name, "outcome": probe.outcome.value, "detail": probe.detail}
            for probe in observed.replies.values()
        ],
    }


def diagnose(observed: Observations) -> Tuple[MachineFinding, ...]:
    """Return all findings, worst first, then by code. A cause is reported without its consequences."""
    rules = (*check_machine.RULES, *check_cuda.RULES, *check_package.RULES)
    findings: Dict[Tuple[str, str], MachineFinding] = {}
    for finding in (*_why_no_gpu(observed), *(finding for rule in rules for finding in rule(observed))):
        here = replace(finding, do=advice_at(finding, observed.system.place))
        findings.setdefault((finding.code, finding.seen), here)
    order = list(Severity)
    return tuple(sorted(findings.values(), key=lambda item: (order.index(item.severity), item.code)))


def _why_no_gpu(observed: Observations) -> Iterable[MachineFinding]:
    """Return the cause of CUDA having no GPU; empty where CUDA lists a GPU or itself fails with a number."""
    silent = observed.reply("libcuda").outcome in (Outcome.MISSING, Outcome.NONE)
    if not silent or any(check_cuda.failures(replace(observed, trial=None))):
        return []
    return next((causes for causes in (list(rule(observed)) for rule in check_machine.CAUSES) if causes), [])


def mounted_noexec(path: Path) -> bool:
    """Return whether the file system of ``path`` is mounted with noexec; false where that is unknown."""
    flag = getattr(os, "ST_NOEXEC", 0)
    try:
        return bool(flag and os.statvfs(path).f_flag & flag)
    except (OSError, AttributeError):
        return False


def examine(
    context: CommandContext, prefix: Prefix, look_in: Sequence[Path], models: Sequence[str]
) -> Observations:
    """Return the observations of this machine and of the package in use. Nothing is changed.

    Raises ``ValidationError`` for a model that is no file or no ONNX model, ``IntegrityError`` for a model
    that is cut short, ``NothingToDoError`` for a model where no package is installed.
    """
    files = [model_file(text, text, "Give a model's path.") for text in models]
    verdict, installed, broken = _package(prefix)
    environments = (*context.environments, *look_in)
    found, around = tuple(distributions(environments)), context.around
    observed = replace(
        _observed_machine(context),
        broken=broken,
        distributions=found,
        plugin_wheels=tuple(plugin_wheels(environments)),
        broken_imports=tuple(broken_imports(environments, found, around.ask, around.python)),
        cache=_cache(context),
    )
    places = [Path(context.around.env.get("TMPDIR") or _TEMPORARY)]
    if verdict is not None:
        places.insert(0, verdict.folder)
        if verdict.manifest.plugin:
            observed = replace(observed, application=found_host(context, read_info(verdict.folder)))
        trial, opened = _trials(verdict, observed, context, files)
        linux = context.platform.startswith("linux")
        observed = replace(
            observed,
            installed=installed,
            host=_elsewhere(verdict.folder, context.around.env),
            shadows=tuple(shadows(verdict.folder, verdict.manifest, context.around.env)) if linux else (),
            trial=trial,
            models=opened,
        )
    elif files:
        raise NothingToDoError(
            "--try: no package is installed in which a model could be opened.", advice="Run install first."
        )
    return replace(observed, noexec=tuple(str(place) for place in places if mounted_noexec(place)))


def examine_failure(context: CommandContext, prefix: Prefix, said: str) -> Observations:
    """Return the machine, the package in use, and the failed session that the error ``said`` describes.

    The package's files are not hashed and no session is run. Raises ``ConfigError`` where ``said`` is blank.
    """
    _, installed, broken = _package(prefix, verify_sizes)
    words = printable(" ".join(said.split()))[:_MOST_CHARACTERS]
    if not words:
        raise ConfigError("--said: the text is empty. Give the error's text in quotes.")
    failure, code = reason(words, words)
    trial = SessionTrial(CUDA, failure, code)
    observed = _observed_machine(context)
    hosts = tuple(_hosts(observed, context.around))
    wheels = tuple(plugin_wheels(context.environments))
    seen = replace(observed, hosts=hosts, plugin_wheels=wheels)
    return replace(seen, installed=installed, broken=broken, trial=trial)


def _hosts(observed: Observations, around: Surroundings) -> Iterator[str]:
    """Yield the host libraries of ONNX Runtime that a program finds before its own one."""
    windows = observed.system.place == "windows"
    variable, separator = ("PATH", ";") if windows else (LIBRARY_PATH, "[:;]")
    named = [Path(text) for text in re.split(separator, around.env.get(variable, "")) if text]
    system = ["Windows/System32"] if windows else ["usr/local/lib", *LIBRARIES]
    for folder in dict.fromkeys((*named, *map(around.root.joinpath, system))):
        with suppress(OSError):
            for path in sorted(folder.glob("onnxruntime.dll" if windows else "libonnxruntime.so*")):
                if not path.is_symlink():
                    yield str(path)


def _observed_machine(context: CommandContext) -> Observations:
    detection, env, root = detect(context.around), context.around.env, context.around.root
    linux = detection.system.os == "linux"
    return Observations(
        **{**vars(detection), "driver": detection.driver or (driver_on_disk(root) if linux else None)},
        platform=context.platform,
        kernel=read_kernel(root) if linux else Kernel(),
        cuda_visible=env.get(VARIABLE),
        stated=tuple(f"{name}={env[name]}" for name in _STATED if env.get(name)),
        outside=_outside(env),
    )


def _outside(env: Mapping[str, str]) -> Optional[InstalledPackage]:
    """Return the package that ``ORT_DYLIB_PATH`` names; ``None`` for one that the client installed."""
    named = env.get(DYLIB)
    folder = Path(named).parent.parent if named else None
    if folder is None or not is_file(folder / MANIFEST) or is_file(folder / INFO):
        return None
    with suppress(BuilderError, OSError):
        return _installed(verify_sizes(folder), {})
    return None


def _package(
    prefix: Prefix, read: Callable[[Path], Verification] = verify
) -> Tuple[Optional[Verification], Optional[InstalledPackage], Optional[str]]:
    """Return the package's verification, its description, and why it cannot be read.

    The last is ``None`` for a package that can be read, the others are ``None`` for one that cannot. All are
    ``None`` where no package is in use.
    """
    try:
        folder = folder_in_use(prefix)
        if folder is None:
            return None, None, _dangling(prefix)
        verdict = read(folder)
        return verdict, _installed(verdict, read_info(folder)), None
    except (BuilderError, OSError, ValueError) as error:
        return None, None, str(error)


def _dangling(prefix: Prefix) -> Optional[str]:
    for path in (prefix.pointer, prefix.current):
        if path.is_symlink() or path.exists():
            return f"{path} leads to no package."
    return None


def _installed(verdict: Verification, info: Mapping[str, object]) -> InstalledPackage:
    manifest = verdict.manifest
    support, gpu = info.get("support"), info.get("gpuName")
    return InstalledPackage(
        package=entry_of(manifest, StoredFile("", 0, "")),
        cuda=manifest.cuda,
        folder=str(verdict.folder),
        problems=verdict.problems,
        support=support if isinstance(support, str) else None,
        gpu=gpu if isinstance(gpu, str) else None,
    )


def _elsewhere(folder: Path, env: Mapping[str, str]) -> Optional[str]:
    """Return ``ORT_DYLIB_PATH`` where it does not lead into ``folder``; ``None`` in any other case."""
    named = env.get(DYLIB)
    try:
        return named if named and folder.resolve() not in Path(named).resolve().parents else None
    except (OSError, RuntimeError):  # a loop of links
        return named


def _trials(
    verdict: Verification, observed: Observations, context: CommandContext, files: Iterable[Path]
) -> Tuple[Optional[SessionTrial], Tuple[ModelTrial, ...]]:
    """Run a session of one node, and open the user's models, in a package whose files are whole.

    They run on the CPU where the package is for CUDA and libcuda lists no GPU. Returns ``None`` and no trials
    where a file is damaged or the package lists no host library.
    """
    manifest, trials = verdict.manifest, OrtTrials(context.around.ask, context.around.python)
    if manifest.plugin:
        if files:
            raise no_host(manifest, "--try")
        return _registered(verdict, observed.application, trials), ()
    host = host_of(verdict.folder, manifest)
    if verdict.problems or host is None:
        return None, ()
    no_gpu = manifest.provider == CUDA and not observed.reply("libcuda").devices
    provider = CPU if no_gpu else manifest.provider
    # The node first: its time limit allows for a cold disk and the driver's compiler, a model's does not.
    one_node = trials.compute(host, provider)
    opened = [ModelTrial(str(file), provider, trials.open(host, provider, file).failure) for file in files]
    return one_node, tuple(opened)


def _registered(
    verdict: Verification, host: Optional[ApplicationHost], trials: OrtTrials
) -> Optional[SessionTrial]:
    """Let the application's host register the plug-in in use; ``None`` where none can."""
    plugin = verdict.manifest.plugin
    if plugin is None or host is None or host.library is None or host_refusal(host, plugin):
        return None
    tried = trials.register(Path(host.library), verdict.folder / plugin.library)
    loaded = tuple(path for path in tried.loaded if "onnxruntime" not in Path(path).name)
    return SessionTrial(CUDA, tried.failure, tried.code, loaded=loaded, registered_by=host.where)


def _cache(context: CommandContext) -> Cache:
    env = context.around.env
    home = env.get("HOME")
    named = env.get("CUDA_CACHE_PATH") or (f"{home}/.nv/ComputeCache" if home else "")
    size = env.get("CUDA_CACHE_MAXSIZE", "")
    return Cache(
        disabled=env.get("CUDA_CACHE_DISABLE") == "1",
        max_bytes=int(size) if size.isdecimal() and len(size) <= _MOST_DIGITS else None,
        folder=named,
        writable=not named or is_writable(Path(named)),
    )


LIBRARY_PATH = "LD_LIBRARY_PATH"

_IN_NAME = re.compile(r"\.so\.(\d+(?:\.\d+)+)$")

_IN_FOLDER = re.compile(r".+-(\d[^-]*)\.dist-info")


def shadows(folder: Path, manifest: Manifest, env: Mapping[str, str]) -> Iterator[Shadow]:
    """Yield each library that a folder before the package's in ``LD_LIBRARY_PATH`` has under the same name.

    A file with the same bytes as the package's is left out.
    """
    entries = [entry for entry in manifest.files if entry.path.startswith(LIB)]
    for place in _before(folder / LIB, env):
        for entry in entries:
            path = place / entry.path[len(LIB) :]
            if is_file(path) and not has_bytes(path, Digest(entry.size, entry.sha256)):
                yield Shadow(path.name, str(path), _file_version(path), _own(entry, manifest))


def _before(lib: Path, env: Mapping[str, str]) -> Iterator[Path]:
    """Yield the folders in ``LD_LIBRARY_PATH`` before ``lib``: the loader searches them before RUNPATH.

    Source: ld.so(8). A colon or a semicolon separates folders; an empty name is the current folder, and is
    left out where that was removed.
    """
    named = env.get(LIBRARY_PATH, "")
    for name in re.split("[:;]", named) if named else ():
        with suppress(FileNotFoundError):  # from Path.cwd, which Path.resolve asks too
            place = Path(name or Path.cwd())
            if not is_folder(place):
                continue
            if place.resolve() == lib.resolve():
                return
            yield place


def _file_version(path: Path) -> Optional[str]:
    """Return the version in the name of the file that ``path`` links to, else that of its wheel.

    ``None`` where neither has one. The library is not loaded, so the version is not verified.
    """
    match = _IN_NAME.search(path.resolve().name)
    return match[1] if match else _of_wheel(path)


def _of_wheel(path: Path) -> Optional[str]:
    """Return the version of the wheel that ``path`` is from; ``None`` where none is found.

    ``site-packages/nvidia/cudnn/lib/X`` is from ``site-packages/nvidia_cudnn_cu12-VERSION.dist-info``.
    """
    if len(path.parts) < 5 or path.parts[-4] != "nvidia":  # noqa: PLR2004 the parts that the docstring names
        return None
    records = path.parents[3].glob(f"nvidia_{path.parts[-3]}_*.dist-info")
    return next((match[1] for match in (_IN_FOLDER.fullmatch(item.name) for item in records) if match), None)


def _own(entry: FileEntry, manifest: Manifest) -> str:
    """Return the version of a package's file: ``9.10.2.21`` for ``wheel:nvidia-cudnn-cu12==9.10.2.21``.

    Any file that is not from NVIDIA's wheels has ONNX Runtime's version.
    """
    if entry.source.startswith("wheel:nvidia-"):
        return entry.source.partition("==")[2]
    return manifest.onnxruntime.version
