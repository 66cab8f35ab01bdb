# Flags shared by every target, and the two functions the folders use.

find_program(CCACHE ccache)
if(CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
endif()

add_library(redlite_flags INTERFACE)
target_include_directories(redlite_flags INTERFACE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
# -ffp-contract=off: an expression means the same on every compiler; where a fused multiply-add is
# wanted it is written as one. The same tokens then give the same bits everywhere.
target_compile_options(redlite_flags INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion -Wnon-virtual-dtor -Woverloaded-virtual
  -ffp-contract=off)
if(REDLITE_WERROR)
  target_compile_options(redlite_flags INTERFACE -Werror)
endif()
if(REDLITE_SANITIZE)
  target_compile_options(redlite_flags INTERFACE -fsanitize=${REDLITE_SANITIZE} -fno-omit-frame-pointer)
  target_link_options(redlite_flags INTERFACE -fsanitize=${REDLITE_SANITIZE})
  if(REDLITE_SANITIZE MATCHES "undefined")
    target_compile_options(redlite_flags INTERFACE -fno-sanitize-recover=undefined)
  endif()
endif()
if(REDLITE_COVERAGE)
  target_compile_options(redlite_flags INTERFACE --coverage -O0)
  target_link_options(redlite_flags INTERFACE --coverage)
endif()

# Builds that want to be quick (lint, sanitizers, fuzzing) compile a folder's files together (CMAKE_UNITY_BUILD). So names in anonymous namespaces differ within a folder, or the file is among these.
# redlite_apart(a.cc ...)
function(redlite_apart)
  set_source_files_properties(${ARGN} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

# redlite_library(name SOURCES a.cc b.cc [DEPENDS redlite_base fmt::fmt ...])
# One static library for one folder of src/. Dependencies point downwards only (docs/architecture.md).
function(redlite_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_link_libraries(${name} PUBLIC redlite_flags ${ARG_DEPENDS})
  # Not the arithmetic nor what measures: no fuzz target reaches them, and their tests would take longer.
  if(REDLITE_FUZZ AND NOT name MATCHES "^redlite_(cpu|gpu|machine|synth)")
    target_compile_options(${name} PRIVATE -fsanitize=fuzzer-no-link)
  endif()
  if(REDLITE_PIC)  # for the shared library and the Python module
    set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  endif()
endfunction()

# redlite_test(name SOURCES a_test.cc [DEPENDS ...] [LABELS slow])
# A GoogleTest program registered with ctest as one test; fast unless labelled otherwise. Those labelled threads
# are what ThreadSanitizer runs on (target thread_tests).
function(redlite_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;DEPENDS;LABELS" ${ARGN})
  if(NOT ARG_LABELS)
    set(ARG_LABELS fast)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 900)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  # Tests of a folder have helpers of the same name, and the headers that take long are compiled already.
  set_target_properties(${name} PROPERTIES UNITY_BUILD OFF)
  target_link_libraries(${name} PRIVATE redlite_flags ${ARG_DEPENDS} GTest::gmock_main)
  # Tests and commands spend their time in the libraries: compile them quickly.
  target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-O1> $<$<CONFIG:RelWithDebInfo>:-O0>)
  target_precompile_headers(${name} REUSE_FROM redlite_test_headers)
  target_compile_definitions(${name} PRIVATE
    REDLITE_SOURCE_DIR="${PROJECT_SOURCE_DIR}"
    REDLITE_DEMO_MODEL="${PROJECT_SOURCE_DIR}/models/redlite-tales-32M.gguf")
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT})
  foreach(label fast thread)
    if(ARG_LABELS MATCHES ${label})
      add_dependencies(${label}_tests ${name})
    endif()
  endforeach()
endfunction()
