# Compiler settings and the two functions every folder uses: samara_library and samara_tests.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})

# ccache stores what uses precompiled headers only when it may ignore the macros and times of their build, and
# with paths relative to the checkout, so that a second clone finds what the first one compiled
find_program(CCACHE ccache)
if(CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
    CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${CCACHE})
endif()

# the Python of .venv, where torch, mujoco and nanobind live
set(SAMARA_VENV ${CMAKE_SOURCE_DIR}/.venv CACHE PATH "virtual environment made by scripts/setup")
if(SKBUILD)  # pip builds: for the Python that asked
  set(SAMARA_VENV_PYTHON ${Python_EXECUTABLE})
else()
  set(SAMARA_VENV_PYTHON ${SAMARA_VENV}/bin/python)
endif()
set(Python_EXECUTABLE ${SAMARA_VENV_PYTHON})

# Warnings are errors with the compilers that CI builds with; another one may have warnings of its own.
string(REGEX MATCH "^[0-9]+" compiler_major ${CMAKE_CXX_COMPILER_VERSION})
set(samara_werror)
if("${CMAKE_CXX_COMPILER_ID} ${compiler_major}" MATCHES "^(GNU 12|Clang 14)$")
  set(samara_werror -Werror)
endif()
# Numbers must not depend on the compiler's options: no contraction, nothing is built with -march=native.
add_library(samara_options INTERFACE)
target_compile_options(samara_options INTERFACE
  # gcc 12 reports its own std::string (bug 105651): these warnings are off there
  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict -Wno-stringop-overflow -Wno-stringop-overread -Wno-array-bounds>
  # sources that are compiled together are headers to gcc
  $<$<AND:$<CXX_COMPILER_ID:GNU>,$<BOOL:${CMAKE_UNITY_BUILD}>>:-Wno-subobject-linkage>
  -Wall -Wextra -Wpedantic -Wshadow -Wformat=2 ${samara_werror} -ffp-contract=off
  -fstack-protector-strong $<$<CXX_COMPILER_ID:GNU>:-ftrivial-auto-var-init=zero>
  $<$<CXX_COMPILER_ID:Clang>:-Wthread-safety>
  # gcc 13 takes references into views for dangling ones
  $<$<AND:$<CXX_COMPILER_ID:GNU>,$<VERSION_GREATER_EQUAL:$<CXX_COMPILER_VERSION>,13>>:-Wno-dangling-reference>
  # programs too, so that they share precompiled headers with libraries; -fpch-preprocess is for ccache
  -fPIC $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)
# one mode of toml++ in the whole program: two would share inline functions of different meaning
target_compile_definitions(samara_options INTERFACE _GLIBCXX_ASSERTIONS TOML_EXCEPTIONS=0
  $<$<CONFIG:Release>:_FORTIFY_SOURCE=2>)
target_link_options(samara_options INTERFACE -Wl,-z,relro,-z,now,-z,noexecstack)
target_include_directories(samara_options INTERFACE ${CMAKE_SOURCE_DIR}/src)
option(SAMARA_FUZZER "Fuzz targets as libFuzzer programs (clang)" OFF)
if(SAMARA_FUZZER)  # every library tells libFuzzer what it covers
  target_compile_options(samara_options INTERFACE -fsanitize=fuzzer-no-link)
endif()
if(SAMARA_SANITIZE)
  # instrumented code makes gcc 12 see uninitialised values inside fmt
  target_compile_options(samara_options INTERFACE -fsanitize=${SAMARA_SANITIZE} -fno-omit-frame-pointer
    $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized -Wno-uninitialized>)
  target_link_options(samara_options INTERFACE -fsanitize=${SAMARA_SANITIZE})
  if(SAMARA_SANITIZE STREQUAL "address,undefined")  # a null pointer that is read or written is the address sanitizer's find
    target_compile_options(samara_options INTERFACE -fno-sanitize=null)
  endif()
endif()

# Code that takes longer to optimize than to run is compiled with these options, as what uses the precompiled header that
# has them: libraries that work once a generation or less, tests, which check what is in the libraries, and what calls torch,
# where the time is spent in torch's own code.
set(samara_light $<$<CONFIG:Release>:-O1>)

# Headers precompiled once for each kind of code: samara_pch of libraries, samara_light_pch of light ones, samara_test_pch of
# tests, and (src/nn/torch) samara_torch_pch. samara_precompiled(name HEADER [LIGHT] [DEPS ...])
function(samara_precompiled name header)
  cmake_parse_arguments(ARG "LIGHT" "" "DEPS" ${ARGN})
  set(empty ${CMAKE_CURRENT_BINARY_DIR}/${name}.cc)
  file(CONFIGURE OUTPUT ${empty} CONTENT "")
  add_library(${name} OBJECT ${empty})
  target_link_libraries(${name} PRIVATE samara_options ${ARG_DEPS})
  if(ARG_LIGHT)
    target_compile_options(${name} PRIVATE ${samara_light})
  endif()
  target_precompile_headers(${name} PRIVATE ${header})
endfunction()
samara_precompiled(samara_pch ${CMAKE_SOURCE_DIR}/cmake/pch.h)
set(SAMARA_LIGHT_PCH samara_pch)
if(CMAKE_BUILD_TYPE STREQUAL "Release")
  set(SAMARA_LIGHT_PCH samara_light_pch)
  samara_precompiled(samara_light_pch ${CMAKE_SOURCE_DIR}/cmake/pch.h LIGHT)
endif()
if(SAMARA_TESTS)
  samara_precompiled(samara_test_pch ${CMAKE_SOURCE_DIR}/cmake/test_pch.h LIGHT
    DEPS fmt::fmt nlohmann_json::nlohmann_json GTest::gtest)
endif()

# samara_use_precompiled(target PCH): from here on the target is compiled as PCH is.
function(samara_use_precompiled name from)
  target_precompile_headers(${name} REUSE_FROM ${from})
  get_target_property(options ${from} COMPILE_OPTIONS)
  if(options)
    target_compile_options(${name} PRIVATE ${options})
  endif()
endfunction()

# samara_sources(VARIABLE FOLDER... [WITHOUT REGEX]): every *.cc of these folders (`.` is the current one) but tests.
function(samara_sources variable)
  cmake_parse_arguments(ARG "" "WITHOUT" "" ${ARGN})
  set(found)
  foreach(folder ${ARG_UNPARSED_ARGUMENTS})
    file(GLOB more CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${folder}/*.cc)
    list(APPEND found ${more})
  endforeach()
  list(FILTER found EXCLUDE REGEX "_test\\.cc$")
  if(ARG_WITHOUT)
    list(FILTER found EXCLUDE REGEX "${ARG_WITHOUT}")
  endif()
  set(${variable} ${found} PARENT_SCOPE)
endfunction()

# Templates of torch's headers cost more than the code that includes them: such targets compile `files` at a time. Fewer end
# sooner where there are more cores than such batches.
set(SAMARA_TORCH_BATCH "" CACHE STRING "source files that targets with torch compile at a time; empty: 16, of tests 8")
function(samara_share_torch_templates name files)
  if(SAMARA_TORCH_BATCH)
    set(files ${SAMARA_TORCH_BATCH})
  endif()
  set_target_properties(${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${files})
endfunction()

# Presets but `debug` compile several files of a folder at a time, since templates of shared headers cost more than the files
# (CMAKE_UNITY_BUILD): names in unnamed namespaces differ within a folder. Plug-ins of few files are compiled one by one.
function(samara_compile_apart)
  set_source_files_properties(${ARGN} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

# samara_library(name DEPS ... [SOURCES ...] [PCH samara_torch_pch] [LIGHT]): a static library of these sources, or of every *.cc
# of this folder but tests.
function(samara_library name)
  cmake_parse_arguments(ARG "LIGHT" "PCH" "DEPS;SOURCES" ${ARGN})
  if(NOT ARG_SOURCES)
    samara_sources(ARG_SOURCES .)
  endif()
  add_library(${name} STATIC ${ARG_SOURCES})
  target_link_libraries(${name} PUBLIC $<BUILD_INTERFACE:samara_options> ${ARG_DEPS})
  if(ARG_LIGHT)
    set(from ${SAMARA_LIGHT_PCH})
  elseif(ARG_PCH)
    set(from ${ARG_PCH})
  else()
    set(from samara_pch)
  endif()
  samara_use_precompiled(${name} ${from})
  if(ARG_PCH)
    samara_share_torch_templates(${name} 16)
  else()
    set(plugins ${ARG_SOURCES})
    list(FILTER plugins INCLUDE REGEX "/(classic|memory|maze|mujoco)/")
    samara_compile_apart(${plugins})
  endif()
endfunction()

# The thread sanitizer finds nothing in a test without threads: keeps the sources that name one or fork.
function(samara_with_threads variable)
  set(kept)
  foreach(source ${${variable}})
    file(STRINGS ${source} names REGEX "[Tt]hread|fork\\(" LIMIT_COUNT 1)
    if(names)
      list(APPEND kept ${source})
    endif()
  endforeach()
  set(${variable} ${kept} PARENT_SCOPE)
endfunction()

# samara_tests(name DEPS ... SUBFOLDERS ... | SOURCES ...): one GoogleTest program of every *_test.cc of this folder (and those), or
# of the sources named. foo_test.cc has namespace samara::foo_test: files use one name for different things, and are joined.
function(samara_tests name)
  if(NOT SAMARA_TESTS)
    return()
  endif()
  cmake_parse_arguments(ARG "" "PCH" "DEPS;SUBFOLDERS;SOURCES" ${ARGN})
  if(ARG_SOURCES)
    set(sources ${ARG_SOURCES})
  else()
    file(GLOB sources CONFIGURE_DEPENDS *_test.cc)
  endif()
  foreach(folder ${ARG_SUBFOLDERS})
    file(GLOB more CONFIGURE_DEPENDS ${folder}/*_test.cc)
    list(APPEND sources ${more})
  endforeach()
  if(SAMARA_SANITIZE STREQUAL "thread")
    samara_with_threads(sources)
  endif()
  if(NOT sources)
    return()
  endif()
  add_executable(${name} ${sources})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} GTest::gtest_main)
  target_compile_definitions(${name} PRIVATE SAMARA_SOURCE_DIR="${CMAKE_SOURCE_DIR}" SAMARA_PYTHON="${SAMARA_VENV_PYTHON}")
  if(ARG_PCH)
    samara_use_precompiled(${name} ${ARG_PCH})
    samara_share_torch_templates(${name} 8)
  else()
    samara_use_precompiled(${name} samara_test_pch)
  endif()
  add_test(NAME ${name} COMMAND ${name})
  # ctest begins with the longest, from the first run on
  set(long evo_test fleet_test train_torch_test rl_torch_test replica_test nn_test)
  list(FIND long ${name} place)
  if(place GREATER_EQUAL 0)
    math(EXPR cost "100 - ${place}")
    set_tests_properties(${name} PROPERTIES COST ${cost})
  endif()
endfunction()

# samara_cuda_sources(target FILE.cu...): objects that nvcc makes, and CUDA's runtime. Called by name instead of as CMake's
# language, which older versions know less of than the compiler. Machine code for Ampere and Hopper; newer GPUs compile the rest.
function(samara_cuda_sources name)
  get_filename_component(bin ${SAMARA_NVCC} DIRECTORY)
  get_filename_component(root ${bin} DIRECTORY)
  foreach(source ${ARGN})
    set(object ${CMAKE_CURRENT_BINARY_DIR}/${source}.o)
    add_custom_command(OUTPUT ${object} VERBATIM DEPFILE ${object}.d
      DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${source}
      COMMAND ${SAMARA_NVCC} -std=c++17 -O3 -fmad=false -Xcompiler -fPIC -I${CMAKE_SOURCE_DIR}/src
        -gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=sm_90 -gencode arch=compute_90,code=compute_90
        -split-compile=0 -MD -MF ${object}.d -c ${CMAKE_CURRENT_SOURCE_DIR}/${source} -o ${object}
      COMMENT "nvcc ${source}")
    target_sources(${name} PRIVATE ${object})
    set_source_files_properties(${object} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
  endforeach()
  find_library(SAMARA_CUDART cudart_static HINTS ${root}/lib64 ${root}/lib ${root}/targets/x86_64-linux/lib REQUIRED)
  target_link_libraries(${name} PUBLIC ${SAMARA_CUDART} Threads::Threads dl rt)
endfunction()
