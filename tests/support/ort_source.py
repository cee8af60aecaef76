"""A made-up source of ORT in other words than the real one, from which the rules of a build are read."""

from collections.abc import Mapping

from builder.facts.ort.rule_reader import read_rules
from builder.facts.ort.source_rules import SourceRules
from builder.facts.ort.source_tree import SourceTree
from builder.io.wiring import Wiring
from tests.support import ROOT

CMAKE = """cmake_minimum_required(VERSION 3.30)
project(onnxruntime C CXX)
include(CMakeDependentOption)
list(APPEND CMAKE_MODULE_PATH ${PROJECT_SOURCE_DIR}/external)
if("${CMAKE_C_COMPILER_ID}" STREQUAL "GNU" AND CMAKE_C_COMPILER_VERSION VERSION_LESS 13.2)
  message(FATAL_ERROR "gcc is too old")
endif()
if(NOT DEFINED CMAKE_CXX_STANDARD)
  set(CMAKE_CXX_STANDARD 23)
endif()
option(onnxruntime_USE_CUDA "" OFF)
cmake_dependent_option(onnxruntime_WITH_FAST "" ON "onnxruntime_USE_CUDA" OFF)
option(onnxruntime_WITH_FP2 "" ON)
set(onnxruntime_NVCC_THREADS 4 CACHE STRING "")
set(CODE ${PROJECT_SOURCE_DIR}/../onnxruntime)
get_filename_component(CODE "${CODE}" ABSOLUTE)
if(onnxruntime_USE_CUDA)
  include(cuda_setup)
  prepare()
  if(onnxruntime_WITH_FP2)
    if(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 12.8)
      message(FATAL_ERROR "FP2 needs CUDA 12.8")
    endif()
  endif()
  if(onnxruntime_WITH_FAST)
    list(APPEND FLAGS -DWITH_FAST=1)
  endif()
  include(cuda_provider.cmake)
endif()
option(onnxruntime_BUILD_SHARED_LIB "" OFF)
option(onnxruntime_USE_FULL_PROTOBUF "" OFF)
option(onnxruntime_BUILD_UNIT_TESTS "" ON)
option(onnxruntime_DISABLE_CONTRIB_OPS "" OFF)
option(onnxruntime_USE_FLASH_ATTENTION "" OFF)
option(onnxruntime_USE_LEAN_ATTENTION "" OFF)
option(onnxruntime_USE_MEMORY_EFFICIENT_ATTENTION "" OFF)
"""

SETUP = """macro(prepare)
  set(LEAST 12.5)
  if(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS LEAST)
    message(FATAL_ERROR "nvcc is older than " ${LEAST})
  endif()
  if(NOT CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES "75;130")
  endif()
  set(FAST_ONES 90 130)
  unset(MADE)
  unset(PTX)
  foreach(ARCH IN LISTS CMAKE_CUDA_ARCHITECTURES)
    if(ARCH MATCHES "^([0-9]+)(a?)(-real)?$")
      if(CMAKE_MATCH_1 IN_LIST FAST_ONES)
        list(APPEND MADE "${CMAKE_MATCH_1}a-real")
      else()
        list(APPEND MADE "${CMAKE_MATCH_1}-real")
      endif()
    elseif(ARCH MATCHES "-virtual$")
      set(PTX ${ARCH})
    else()
      message(FATAL_ERROR "no architecture: ${ARCH}")
    endif()
  endforeach()
  set(CMAKE_CUDA_ARCHITECTURES ${MADE} ${PTX})
endmacro()
"""

PROVIDER = """file(GLOB_RECURSE units "${CODE}/contrib_ops/cuda/*.cu" "${CODE}/core/providers/cuda/*.cu")
function(take pattern result)
  set(taken "${units}")
  list(FILTER taken INCLUDE REGEX "${pattern}")
  set(rest "${units}")
  list(FILTER rest EXCLUDE REGEX "${pattern}")
  set(${result} "${taken}" PARENT_SCOPE)
  set(units "${rest}" PARENT_SCOPE)
endfunction()
function(from least result)
  set(kept)
  foreach(entry IN LISTS CMAKE_CUDA_ARCHITECTURES)
    string(REGEX MATCH "^[0-9]+" number "${entry}")
    if(number GREATER_EQUAL ${least})
      list(APPEND kept ${entry})
    endif()
  endforeach()
  set(${result} "${kept}" PARENT_SCOPE)
endfunction()
function(part name)
  cmake_parse_arguments(PARSE_ARGV 1 _P "" "FOR" "OF")
  add_library(onnxruntime_providers_cuda_${name} OBJECT ${_P_OF})
  set_target_properties(onnxruntime_providers_cuda_${name} PROPERTIES CUDA_ARCHITECTURES "${_P_FOR}")
  target_link_libraries(onnxruntime_providers_cuda PRIVATE onnxruntime_providers_cuda_${name})
endfunction()
take("/fast_attention/" fast)
take("/big/" big)
from(130 newest)
if(newest)
  take("/wgmma/" wgmma)
endif()
add_library(onnxruntime_providers_cuda MODULE ${units})
target_link_libraries(onnxruntime_providers_cuda PRIVATE CUDA::cudart CUDNN::cudnn_all)
from(80 list)
if(list)
  part(fast_attention FOR "${list}" OF ${fast})
else()
  target_sources(onnxruntime_providers_cuda PRIVATE ${fast})
endif()
from(75 list)
if(list)
  part(big FOR "${list}" OF ${big})
endif()
if(newest)
  part(wgmma FOR "130a-real" OF ${wgmma})
endif()
"""

FAST = """/* bool is_supported(const cudaDeviceProp& old) { return old.major >= 7; } */

bool is_supported(const cudaDeviceProp& card, int heads) {
  bool ampere = card.major == 8;
  return (ampere || (card.major == 9 && card.minor == 0)) && heads > 0;
}
"""

STEPS = """void run(const Params& params) {
  if (sm >= 86) {
    run_steps_sm86(params);
  } else if (sm >= 60) {
    run_steps_sm60(params);
  }
}
"""

EXPERTS = """void dispatch() {
  if (sm_ >= 70 && sm_ < 75) {
    gemm<T, cutlass::arch::Sm70>(x);
  } else if (sm_ >= 75 && sm_ < 90) {
    gemm<T, cutlass::arch::Sm75>(x);
  } else {
    ORT_THROW("not here");
  }
}
"""

_CONTRIB = "onnxruntime/contrib_ops/cuda"

GUARDED = "// A unit.\n#if WITH_FAST\n__global__ void kernel() {}\n#endif\n"

FILES: Mapping[str, str] = {
    "VERSION_NUMBER": "1.40.0\n",
    "cmake/CMakeLists.txt": CMAKE,
    "cmake/external/cuda_setup.cmake": SETUP,
    "cmake/cuda_provider.cmake": PROVIDER,
    f"{_CONTRIB}/fast_attention/api.cc": FAST,
    f"{_CONTRIB}/fast_attention/fast_32.cu": GUARDED,
    f"{_CONTRIB}/fast_attention/fast_64.cu": GUARDED,
    f"{_CONTRIB}/steps/steps.cu": STEPS,
    f"{_CONTRIB}/steps/steps_sm60.cu": "__global__",
    f"{_CONTRIB}/steps/steps_sm86.cu": "__global__",
    f"{_CONTRIB}/moe/experts_template.h": EXPERTS,
    f"{_CONTRIB}/moe/experts_a.cu": '#include "contrib_ops/cuda/moe/experts_template.h"\n',
    f"{_CONTRIB}/moe/experts_b.cu": '#include "contrib_ops/cuda/moe/experts_template.h"\n',
    f"{_CONTRIB}/front.cu": "#include <cudnn_frontend.h>\n",
    f"{_CONTRIB}/big/one.cu": "#if __CUDA_ARCH__ >= 530\n#endif\n",
    f"{_CONTRIB}/big/two.cu": "",
    f"{_CONTRIB}/wgmma/three.cu": "\n#if __CUDA_ARCH__ < 1300 && __CUDA_ARCH__ > 530\n#endif",
    "onnxruntime/core/providers/cuda/plain.cu": "",
}
"""The texts of the source by path below its root."""


def rules(more: Mapping[str, str] = FILES) -> SourceRules:
    """Return the rules that are read from the source with CMake; ``more``: files in place of its own."""
    files = {**FILES, **more}
    scripts = {path: text for path, text in files.items() if path.startswith("cmake/")}
    with Wiring(ROOT).cmake(scripts, [path for path in files if path not in scripts]) as configure:
        return read_rules(SourceTree.read(files), configure, {"onnxruntime_USE_CUDA": "ON"})
