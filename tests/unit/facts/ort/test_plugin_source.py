"""Tests of what is read of a plug-in's source, on texts of our own."""

import hashlib

from builder.facts.ort.plugin_source import is_of_plugin, left_out, plugin_in

OLDEST, OWN = "plugin-ep-cuda/MIN_ONNXRUNTIME_VERSION", "plugin-ep-cuda/VERSION_NUMBER"

API = "include/onnxruntime/core/session/onnxruntime_c_api.h"

SCHEMAS = "onnxruntime/core/graph/contrib_ops"

TEXTS = {
    "VERSION_NUMBER": "1.30.0\n",
    OLDEST: "\n1.24.4\n",
    OWN: "0.2.0\n",
    API: "// no ORT_API_VERSION 9\n#ifndef X\n#define ORT_API_VERSION 30\n",
    f"{SCHEMAS}/b.cc": "two",
    f"{SCHEMAS}/a.h": "one",
    f"{SCHEMAS}/cpu/other.cc": "not read",
}


def test_each_fact_has_its_line() -> None:
    made = plugin_in(TEXTS)
    assert made
    assert made.contrib_schemas
    said = (made.version, made.oldest_host, made.api_version)
    assert [*map(str, said)] == [f"{OWN}:1: 0.2.0", f"{OLDEST}:2: 1.24.4", f"{API}:3: 30"]
    parts = f"{SCHEMAS}/a.h\0one\0{SCHEMAS}/b.cc\0two\0"
    assert made.contrib_schemas.value == hashlib.sha256(parts.encode()).hexdigest()
    assert [path for path in TEXTS if is_of_plugin(path)] == [*TEXTS][1:-1]


def test_a_source_without_a_plugin_says_nothing() -> None:
    for path in (OLDEST, API):
        assert plugin_in({key: text for key, text in TEXTS.items() if key != path}) is None
    assert plugin_in({**TEXTS, OLDEST: "1.24\n"}) is None
    without = plugin_in({key: text for key, text in TEXTS.items() if key != OWN and SCHEMAS not in key})
    assert without
    assert (without.version.value, without.contrib_schemas) == ("1.30.0", None)


def test_operators_that_only_the_provider_registers_are_left_out() -> None:
    kernel = "ONNX_OPERATOR_{}KERNEL_EX(\n    {}, {}, 1, kCudaExecutionProvider, x);\n"
    sources = {
        "contrib_ops/cuda/search.cc": kernel.format("", "BeamSearch", "kMSDomain"),
        "contrib_ops/cuda/training.cc": "#ifdef ENABLE_TRAINING_OPS\n"
        + kernel.format("", "Gather", "kMSDomain")
        + "#endif\n",
        "collective.cc": kernel.format("", "AllReduce", "kMSDomain"),
        "core/if.cc": kernel.format("VERSIONED_", "If", "kOnnxDomain")
        + kernel.format("TYPED_", "At", "kOnnxDomain")
        + "KERNEL_CLASS_NAME(kCudaExecutionProvider, kOnnxDomain, 1, X)",
        "core/other.cc": kernel.format("", "Odd", "kOtherDomain"),
        "core/plugin/if.cc": "#define MADE(x) " + kernel.format("", "If", "kOnnxDomain"),
    }
    texts = {
        "include/onnxruntime/core/graph/constants.h": (
            'constexpr const char* kOnnxDomain = "";\nconstexpr const char* kMSDomain = "com.microsoft";\n'
        )
    }
    in_provider = {"onnx/of_a_library.cc", *sources} - {"core/plugin/if.cc", "collective.cc"}
    missing = left_out(texts, sources, in_provider, {"core/plugin/if.cc"})
    assert missing == {"": ("At",), "com.microsoft": ("BeamSearch",)}
    assert left_out(texts, sources, in_provider, sources) == {}
