"""``variants.yaml``: text to a ``Project``, or every problem of the file at once."""

from __future__ import annotations

from collections.abc import Sequence

from builder.config import sections
from builder.config.compatibility import check_models, check_pins, check_providers, check_variants
from builder.config.document import open_document
from builder.config.problems import nearest
from builder.config.tree import read_yaml
from builder.errors import NothingToDoError, ValidationError
from builder.project.variants import Project, Variant

FORMAT = 1

_SECTIONS = ("onnxruntime", "cuda", "cudnn", "bases", "variants", "check", "bundle", "publish", "models")


def load_project(text: str, path: str) -> Project:
    """Read ``variants.yaml``; ``path`` is the name that messages begin with.

    Raises ``ParseError`` where it is not YAML. Else all problems are raised together, as ``SchemaError`` if
    any is one of shape, else ``ValidationError`` if any is one of a value, else ``CompatibilityError``.
    """
    root = read_yaml(text, path)
    keys = open_document(root, FORMAT, _SECTIONS, optional=("providers",))
    project = Project(
        onnxruntime=sections.read_onnxruntime(keys["onnxruntime"]),
        cuda=sections.read_cuda(keys["cuda"]),
        cudnn=sections.read_cudnn(keys["cudnn"]),
        bases=sections.read_bases(keys["bases"]),
        variants=sections.read_variants(keys["variants"]),
        check=sections.read_check(keys["check"]),
        bundle=sections.read_bundle(keys["bundle"]),
        publish=sections.read_publish(keys["publish"]),
        models=sections.read_models(keys["models"]),
        providers=sections.read_providers(keys["providers"]),
    )
    check_pins(project, root)
    check_variants(project, root)
    check_providers(project, root)
    check_models(project, root)
    root.problems.raise_if_any()
    return project


def pick_variants(project: Project, names: Sequence[str], all_: bool) -> tuple[Variant, ...]:
    """The packages asked for: all in the file's order, or those named, each once, in the order given.

    Variants come first, then providers.

    Raises ``ValidationError`` for names that are not in the project, ``NothingToDoError`` without a name.
    """
    unknown = [name for name in dict.fromkeys(names) if name not in project.packages]
    if unknown:
        raise ValidationError([_unknown_variant(name, project) for name in unknown])
    if not names and not all_:
        known = ", ".join(project.packages)
        raise NothingToDoError(f"No variant is chosen. Name some with --variant ({known}), or give --all.")
    chosen = project.packages if all_ else dict.fromkeys(names)
    return tuple(project.packages[name] for name in chosen)


def _unknown_variant(name: str, project: Project) -> str:
    listed = ", ".join(project.packages)
    return f"{name!r} is not a variant (there are: {listed}). {nearest(name, project.packages)}".rstrip()
