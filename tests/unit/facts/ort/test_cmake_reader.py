"""Tests of the reader of CMake's language; ``tests/integration/test_cmake_trace.py`` asks CMake itself."""

import pytest

from builder.errors import ParseError
from builder.facts.ort.cmake_language import commands_in
from builder.facts.ort.cmake_run import reached
from tests.support.tables import table


def messages(files: dict[str, str], settings: dict[str, str] | None = None, *unknown: str) -> dict[str, bool]:
    """Return the texts of the messages that run or may run, and whether that is certain."""
    found = reached(files, settings or {}, unknown)
    return {run.command.arguments[0].text: run.is_certain for run in found if run.command.name == "message"}


def test_a_command_has_its_arguments_and_its_line() -> None:
    text = (
        'set(A "x;y" # a comment (with a paren\n  [[raw ${B}]] c\\ d)\n'
        '#[[ set(NOT read) ]] Message( (a) "" )\n'
    )
    first, second = commands_in(text, "x.cmake")
    assert [argument.text for argument in first.arguments] == ["A", "x;y", "raw ${B}", "c\\ d"]
    assert [argument.is_quoted for argument in first.arguments] == [False, True, True, False]
    assert (second.name, second.line) == ("message", 3)
    assert [argument.text for argument in second.arguments] == ["(", "a", ")", ""]


@pytest.mark.parametrize(
    "text", ["set(A\n", "set(A))\n", '"text"(A)\n', "set A\n", "set(A) ]\n", 'set("A)\n']
)
def test_what_is_no_cmake_is_refused_with_its_place(text: str) -> None:
    with pytest.raises(ParseError, match=r"^x\.cmake:1 is not understood"):
        commands_in(text, "x.cmake")


@pytest.mark.parametrize(("known", "condition"), table("cmake/conditions.txt"))
def test_a_condition_holds_or_not_or_nobody_knows(known: str, condition: str) -> None:
    text = f"project(ort)\nif({condition})\nmessage(then)\nelse()\nmessage(otherwise)\nendif()\n"
    both = {"then": False, "otherwise": False}
    wanted = {"holds": {"then": True}, "fails": {"otherwise": True}, "open": both}
    settings = {"GIVEN": "ON", "REFUSED": "OFF"}
    assert messages({"CMakeLists.txt": text}, settings, "OPEN") == wanted[known]


def test_of_several_branches_the_first_that_holds_runs() -> None:
    text = "if(OPEN)\nmessage(a)\nelseif(ON)\nmessage(b)\nelse()\nmessage(c)\nendif()\n"
    assert messages({"CMakeLists.txt": text}, {}, "OPEN") == {"a": False, "b": False}


def test_what_a_branch_that_does_not_run_contains_is_not_followed() -> None:
    text = "if(OFF)\nif(ON)\nmessage(a)\nendif()\nset(B ON)\nendif()\nif(B)\nmessage(b)\nendif()\n"
    assert messages({"CMakeLists.txt": f"project(B)\n{text}"}) == {"b": False}


def test_options_have_their_default_unless_they_are_set() -> None:
    text = (
        'option(A "a" ON)\noption(B "b")\noption(C "c" ON)\n'
        'cmake_dependent_option(D "d" ON "A;NOT B" OFF)\ncmake_dependent_option(E "e" ON "B" OFF)\n'
    )
    asked = "".join(f"if({name})\nmessage({name})\nendif()\n" for name in "ABCDE")
    assert messages({"CMakeLists.txt": text + asked}, {"C": "OFF"}) == {"A": True, "D": True}


def test_a_value_set_under_an_unknown_condition_is_unknown() -> None:
    text = "set(A ON)\nif(OPEN)\nset(A OFF)\nendif()\nif(A)\nmessage(a)\nendif()\n"
    assert messages({"CMakeLists.txt": text}, {}, "OPEN") == {"a": False}


def test_files_are_followed_by_name_by_module_and_through_a_list() -> None:
    files = {
        "CMakeLists.txt": "set(PARTS one two)\nif(OFF)\nlist(APPEND PARTS three)\nendif()\n"
        "list(APPEND PARTS four)\n"
        "foreach(part ${PARTS})\ninclude(parts/${part}.cmake)\nendforeach()\n"
        "include(deps)\nadd_subdirectory(inner)\nfind_package(Threads)\ninclude(FetchContent)\n",
        **{f"parts/{name}.cmake": f"message({name})\n" for name in ("one", "two", "three", "four")},
        "external/deps.cmake": "message(deps)\n",
        "inner/CMakeLists.txt": "message(inner)\n",
        "never.cmake": "message(never)\n",
    }
    assert messages(files) == dict.fromkeys(("one", "two", "four", "deps", "inner"), True)


def test_a_file_whose_name_is_not_known_may_be_read() -> None:
    files = {"CMakeLists.txt": "include(${FOUND}/more.cmake)\n", "a/more.cmake": "message(more)\n"}
    assert messages(files | {"a/other.cmake": "message(other)\n"}) == {"more": False}


def test_a_function_runs_where_it_is_called() -> None:
    text = (
        "function(fetch name)\nmessage(${name})\nset(A OFF)\nendfunction()\n"
        "function(unused)\nmessage(unused)\nendfunction()\n"
        "macro(turn value)\nset(B ${value})\nendmacro()\n"
        "set(A ON)\nFetch(a)\nturn(ON)\nif(OPEN)\nfetch(b)\nendif()\nif(A AND B)\nmessage(c)\nendif()\n"
    )
    found = [
        (run.command.line, run.is_certain)
        for run in reached({"CMakeLists.txt": text}, {}, ["OPEN"])
        if run.command.name == "message"
    ]
    assert found == [(2, True), (2, False), (18, True)]


def test_a_block_without_an_end_is_refused() -> None:
    with pytest.raises(ParseError, match=r"^CMakeLists\.txt:2: foreach has no endforeach"):
        messages({"CMakeLists.txt": "set(A b)\nforeach(x a b)\nmessage(a)\n"})
