"""Factory of what a source says of its plug-in: 1.30's rules with facts that stand in no source."""

from dataclasses import replace

from builder.facts.ort.configured import SourceLine
from builder.facts.ort.known_rules import rules_for
from builder.facts.ort.source_rules import Fact, PluginSource, SourceRules

LINE = SourceLine("plugin/x", 3)

OPTION = "onnxruntime_BUILD_CUDA_EP_AS_PLUGIN"

FACTS = PluginSource(
    version=Fact("0.2.0", LINE),
    oldest_host=Fact("1.24.4", LINE),
    api_version=Fact("30", LINE),
    contrib_schemas=Fact("ab" * 32, LINE),
    left_out={"com.microsoft": ("BeamSearch",)},
)


def plugin_rules() -> SourceRules:
    """Return the rules of 1.30's development state, and what its plug-in adds."""
    read = rules_for("1.30.0")
    options = {**read.options, OPTION: Fact("OFF", LINE)}
    linked = tuple(name for name in read.linked if name != "CUDA::curand")
    return replace(read, options=options, linked=linked, plugin=FACTS)
