"""Tests of what CMake would make of a source; ``tests/integration/test_cmake_trace.py`` asks CMake itself."""

from collections.abc import Sequence

import pytest

from builder.facts.ort.cmake_commands import ROOT, State, by_folder
from builder.facts.ort.cmake_language import SourceLine
from builder.facts.ort.cmake_run import configured, parsed
from builder.facts.ort.cmake_values import MAYBE, UNKNOWN
from tests.support.tables import table

LISTING = ("src/a.cu", "src/b.cu", "src/b.cc", "src/deep/c.cu", "other/d.cu")


def made_of(text: str, listing: Sequence[str] = LISTING, **settings: str) -> State:
    """Return what CMake would make of a ``CMakeLists.txt``; the variable ``OPEN`` is unknown."""
    files = {"CMakeLists.txt": text}
    return configured(parsed(files), {"OPEN": UNKNOWN, **settings}, by_folder(listing), unset=["NOT_SET"])


@pytest.mark.parametrize(("value", "script"), table("cmake/values.txt"))
def test_a_variable_has_the_value_that_cmake_gives_it(value: str, script: str) -> None:
    names = {"unknown": UNKNOWN, "empty": ""}
    wanted = names.get(value, value).replace("maybe;", f"{MAYBE};")
    assert made_of(script.replace(" | ", "\n")).value("X") == wanted


def test_what_a_program_answers_is_unknown_unless_it_is_given() -> None:
    text = "execute_process(COMMAND nvcc OUTPUT_VARIABLE VERSION)\nset(A b)\nfind_path(A stdio.h)\n"
    state = made_of(text, VERSION="12.4")
    assert (state.value("VERSION"), state.value("A")) == ("12.4", UNKNOWN)


def test_files_are_found_in_the_listing() -> None:
    text = (
        "set(HERE ${PROJECT_SOURCE_DIR}/../src)\nget_filename_component(HERE ${HERE} ABSOLUTE)\n"
        'file(GLOB FLAT CONFIGURE_DEPENDS "${HERE}/*.cu" "${HERE}/*.cuh")\n'
        'file(GLOB_RECURSE DEEP "${HERE}/*.cu")\nfile(GLOB ALL "${OPEN}/*.cu")\n'
    )
    state = made_of(text)
    assert state.value("FLAT") == f"{ROOT}/src/a.cu;{ROOT}/src/b.cu"
    assert state.value("DEEP") == f"{ROOT}/src/a.cu;{ROOT}/src/b.cu;{ROOT}/src/deep/c.cu"
    assert state.value("ALL") == UNKNOWN


def test_a_target_has_its_sources_its_architectures_and_the_line_that_asked_for_it() -> None:
    text = """
        function(add_part)
          cmake_parse_arguments(PARSE_ARGV 0 _PART "" "NAME;ARCHES" "SOURCES")
          add_library(${_PART_NAME} OBJECT ${_PART_SOURCES})
          set_target_properties("${_PART_NAME}" PROPERTIES FOLDER x CUDA_ARCHITECTURES "${_PART_ARCHES}")
          target_link_libraries(whole PRIVATE "${_PART_NAME}")
        endfunction()
        add_library(whole MODULE a.cu b.cu)
        add_part(NAME part ARCHES "80-real;90a-real" SOURCES c.cu d.cu)
        target_sources(whole PRIVATE e.cu)
        if(OPEN)
          target_sources(whole PRIVATE f.cu)
        endif()
        set_property(TARGET whole PROPERTY CUDA_ARCHITECTURES 75)
        if(TARGET part AND NOT TARGET none)
          set_property(TARGET part APPEND PROPERTY CUDA_ARCHITECTURES 75)
        endif()
        add_library(default SHARED)
        """
    made = made_of(text, CMAKE_CUDA_ARCHITECTURES="50;60").made
    assert (made["whole"].sources, made["whole"].possible) == (["a.cu", "b.cu", "e.cu"], ["f.cu"])
    assert (made["whole"].architectures, made["whole"].linked) == ("75", ["part"])
    assert (made["part"].sources, made["default"].architectures) == (["c.cu", "d.cu"], "50;60")
    assert made["part"].architectures == UNKNOWN  # whether the condition holds is not known
    assert made_of(text.replace("NOT TARGET none", "ON")).made["part"].architectures == UNKNOWN
    assert made_of(text.replace("TARGET part AND NOT TARGET none", "OFF")).made["part"].line == (
        SourceLine("CMakeLists.txt", 9)
    )


def test_a_refusal_has_its_text_its_line_and_the_version_that_it_asks_for() -> None:
    text = """set(LEAST 12.0)
        if(CUDA VERSION_LESS LEAST)
          message(FATAL_ERROR "older than " ${LEAST})
        endif()
        if(CUDA VERSION_GREATER_EQUAL 12.8)
        elseif(WISH)
          message(FATAL_ERROR "not before 12.8")
        endif()
        """
    (old,) = made_of(text, CUDA="11.4", WISH="OFF").refusals
    assert old[:4] == ("older than 12.0", SourceLine("CMakeLists.txt", 3), True, ("CUDA", "12.0"))
    (early,) = made_of(text, CUDA="12.4", WISH="ON").refusals
    assert (early.text, early.is_certain, early.minimum) == ("not before 12.8", True, ("", ""))
    assert early.condition == ["WISH"]
    assert made_of(text, CUDA="12.8", WISH="ON").refusals == []
    possible = made_of(text, CUDA=UNKNOWN, WISH="OFF").refusals
    assert [(refusal.is_certain, refusal.minimum) for refusal in possible] == [(False, ("CUDA", "12.0"))]
