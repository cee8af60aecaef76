"""Tests of the repairs of ORT's source, each on a text of our own that has its symptom."""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from builder.config.repairs import all_repairs, cannot_run_below, dumps, of_form, repairs_for
from builder.facts.gpu.architectures import architectures
from builder.facts.ort.configured import SourceLine
from builder.facts.ort.known_rules import rules_for
from builder.farm.repair import Repair, main, repaired
from builder.formats.package_names import PackageForm
from tests.support import ROOT

MADE_UP: Mapping[str, Mapping[str, str]] = tomllib.loads(
    (ROOT / "tests/data/repairs.toml").read_text(encoding="utf-8")
)

LINE = SourceLine("cmake/x.cmake", 7)

PLUGIN_REPAIRS = [name for name in MADE_UP if name.startswith("plugin-")]

SAMPLE = Repair("a", "it is old", "x/a.cc", "old", "^old$", r"new \g<0>", "new", 53, ("1.0",))


def test_each_repair_is_tried_on_a_text_of_ours() -> None:
    assert [*MADE_UP] == [*all_repairs()]


@pytest.mark.parametrize("name", MADE_UP)
def test_a_repair_is_made_once(name: str) -> None:
    repair, text, expected = all_repairs()[name], MADE_UP[name]["before"], MADE_UP[name]["after"]
    made, line = repaired(text, repair)
    assert re.fullmatch(re.escape(expected).replace(r"\*", ".*"), made, re.DOTALL)
    assert line
    assert repaired(made, repair) == (made, 0)
    assert repaired("something else\n", repair) == ("something else\n", 0)
    with pytest.raises(ValueError, match=r"its pattern matches 2 times, not once, and line \d needs it"):
        repaired(text * 2, repair)


def test_what_a_repair_makes_is_looked_at() -> None:
    with pytest.raises(ValueError, match=r"what it makes of line 2 is not as it says"):
        repaired("1\nold\n", replace(SAMPLE, repaired="newest"))


def test_a_set_gets_the_repairs_that_it_needs() -> None:
    half, experts, _, abseil, cutlass, *_ = MADE_UP
    rules = replace(rules_for("1.30.0"), repairs=dict.fromkeys((half, experts, abseil), LINE))
    cases = {
        ("52,86", "cutlass"): [half, experts, abseil, cutlass],
        ("70", "cutlass"): [experts, abseil, cutlass],
        ("75", "json"): [abseil],
    }
    assert {
        case: [one.name for one in repairs_for(rules, architectures(case[0]), case[1:])] for case in cases
    } == cases
    older = rules_for("1.21.0")  # of C++ 17
    assert cutlass not in {one.name for one in repairs_for(older, architectures("52"), ["cutlass"])}
    assert not repairs_for(rules, (), ["cutlass"])  # of a package that is repacked


def test_operators_that_do_not_run_are_named_by_the_gpus() -> None:
    for form in PackageForm:
        assert {one.below: [*one.operators] for one in cannot_run_below(of_form(form).values())} == {
            "7.5": ["MoE", "QMoE"],
            "5.3": ["DecoderMaskedMultiHeadAttention", "DecoderMaskedSelfAttention", "GroupQueryAttention"],
        }


def test_what_is_compiled_for_one_form_alone_is_repaired_for_it_alone() -> None:
    """The plug-in's files are no part of a provider, and the reverse; kernels are in both."""
    rules = replace(rules_for("1.30.0"), repairs=dict.fromkeys(all_repairs(), LINE))
    names = {
        form: {one.name for one in repairs_for(rules, architectures("52"), ["cutlass"], form)}
        for form in PackageForm
    }
    assert {name for name in names[PackageForm.PROVIDER] if name.startswith("plugin-")} == set()
    assert names[PackageForm.PROVIDER] - names[PackageForm.PLUGIN] == {
        *("no-experts-without-their-units", "no-kernels-of-experts", "decoder-attention-from-5-3-on")
    }
    assert {*PLUGIN_REPAIRS, "gated-add-without-half-arithmetic"} <= names[PackageForm.PLUGIN]
    assert "plugin-without-experts" not in {
        one.name for one in repairs_for(rules, architectures("75"), [], PackageForm.PLUGIN)
    }


def test_a_source_with_a_kernel_of_its_own_is_left_alone() -> None:
    repair = all_repairs()["grouped-query-attention-says-why"]
    text = f"if (data.use_unfused) return;\n{MADE_UP[repair.name]['before']}"
    assert repaired(text, repair) == (text, 0)


def test_the_container_repairs_a_source_and_stops_where_a_repair_does_not_fit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, listed = tmp_path / "onnxruntime/x/a.cc", tmp_path / "repairs.json"
    file.parent.mkdir(parents=True)
    file.write_bytes("// größer\r\nold\n".encode())
    listed.write_text(dumps([SAMPLE, replace(SAMPLE, name="b", dependency="json")]), encoding="utf-8")
    assert main(tmp_path, listed) == 0
    assert file.read_bytes() == "// größer\r\nnew old\n".encode()
    assert capsys.readouterr().out == ("ortpacks: repair a: x/a.cc:2\nortpacks: repair b: not needed\n")
    assert main(tmp_path, listed) == 0
    assert "repair a: not needed\n" in capsys.readouterr().out
    file.write_text("old\nold\n", encoding="utf-8")
    assert main(tmp_path, listed) == 1
    assert capsys.readouterr().out.startswith(
        "ortpacks: repair a does not fit x/a.cc: its pattern matches 2 times, not once, and line 1 needs it. "
        "It was tried on 1.0. Mend it in builder/config/repairs.toml for this source,"
    )
    assert file.read_text(encoding="utf-8") == "old\nold\n"
