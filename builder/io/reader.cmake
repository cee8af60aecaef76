# Configures a source without a compiler, so that builder/io/cmake.py can read in CMake's trace what CMake made of it.
# Commands that would start a program, write a file or look at this machine do nothing, and what they find is
# READER_ANSWER, ON unless it is given; those of READER_UNKNOWN do nothing either.
# The source lies in READER_SOURCE. Its refusals do not stop it.
cmake_minimum_required(VERSION ${CMAKE_VERSION})
project(reader NONE)
set(CMAKE_SOURCE_DIR ${READER_SOURCE}/cmake)

# The tools of this project's builds. A version is given, or newer than any that is asked for.
foreach(language IN ITEMS C CXX)
  set(CMAKE_${language}_COMPILER_ID GNU)
  if(NOT DEFINED CMAKE_${language}_COMPILER_VERSION)
    set(CMAKE_${language}_COMPILER_VERSION 99)
  endif()
endforeach()
set(CMAKE_CUDA_COMPILER nvcc)
set(CMAKE_CUDA_COMPILER_ID NVIDIA)
set(CUDAToolkit_VERSION ${CMAKE_CUDA_COMPILER_VERSION})
set(CMAKE_SIZEOF_VOID_P 8)
set(CMAKE_CUDA_HOST_COMPILER_ID GNU)
set(CMAKE_LIBRARY_ARCHITECTURE x86_64-linux-gnu)
set(CMAKE_SYSTEM_PROCESSOR x86_64)
set(CMAKE_HOST_SYSTEM_PROCESSOR x86_64)

if(NOT DEFINED READER_ANSWER)
  set(READER_ANSWER ON)
endif()

foreach(name IN ITEMS message cmake_minimum_required enable_language enable_testing ${READER_UNKNOWN}
    check_language add_custom_command add_test build_command configure_file export install write_file
    fetchcontent_declare fetchcontent_makeavailable fetchcontent_getproperties fetchcontent_populate externalproject_add
    target_compile_features target_link_libraries target_precompile_headers)
  cmake_language(EVAL CODE "macro(${name})\nendmacro()")
endforeach()

foreach(name IN ITEMS find_file find_library find_path find_program try_compile try_run)
  cmake_language(EVAL CODE "macro(${name} result)\nset(\${result} \${READER_ANSWER})\nendmacro()")
endforeach()

macro(find_package name)
  set(${name}_FOUND ${READER_ANSWER})
endmacro()

function(execute_process)
  cmake_parse_arguments(PARSE_ARGV 0 asked "" "OUTPUT_VARIABLE;RESULT_VARIABLE" "")
  if(asked_OUTPUT_VARIABLE AND NOT ${asked_OUTPUT_VARIABLE})
    set(${asked_OUTPUT_VARIABLE} ${READER_ANSWER} PARENT_SCOPE)
  endif()
  if(asked_RESULT_VARIABLE)
    set(${asked_RESULT_VARIABLE} 0 PARENT_SCOPE)
  endif()
endfunction()

function(file operation)
  if(operation MATCHES "^(GLOB|GLOB_RECURSE|READ|RELATIVE_PATH|STRINGS|TO_CMAKE_PATH)$")
    _file(${operation} ${ARGN})
    foreach(result IN ITEMS "${ARGV1}" "${ARGV2}")
      if(DEFINED "${result}")
        set(${result} "${${result}}" PARENT_SCOPE)
      endif()
    endforeach()
  endif()
endfunction()

macro(answer)
endmacro()

macro(include name)
  if(NOT "${name}" MATCHES "^(CheckLanguage|ExternalProject|FetchContent)$")
    _include("${name}" OPTIONAL RESULT_VARIABLE READER_FILE)
    if(NOT READER_FILE)
      answer(MISSING "${name}")
    endif()
  endif()
endmacro()

macro(project name)
  set(PROJECT_NAME ${name})
  set(PROJECT_SOURCE_DIR ${CMAKE_CURRENT_SOURCE_DIR})
  set(PROJECT_BINARY_DIR ${CMAKE_CURRENT_BINARY_DIR})
endmacro()

add_subdirectory(${READER_SOURCE}/cmake source)

foreach(name IN ITEMS CMAKE_CUDA_ARCHITECTURES CMAKE_CXX_STANDARD)
  get_directory_property(value DIRECTORY ${READER_SOURCE}/cmake DEFINITION ${name})
  answer(VALUE ${name} "${value}")
endforeach()
get_property(targets DIRECTORY ${READER_SOURCE}/cmake PROPERTY BUILDSYSTEM_TARGETS)
foreach(target IN LISTS targets)
  get_property(architectures TARGET ${target} PROPERTY CUDA_ARCHITECTURES)
  get_property(sources TARGET ${target} PROPERTY SOURCES)
  answer(TARGET ${target} "${architectures}" "${sources}")
endforeach()
answer(END)
_message(FATAL_ERROR "nothing is generated")
