# Run as a script (cmake -P, with NM and OBJECTS), this file is the test below; included, it sets the flags.
if(CMAKE_SCRIPT_MODE_FILE)
  set(seen 0)
  foreach(object ${OBJECTS})
    if(NOT object MATCHES "/reduce_(scalar|avx2|avx512)\\.cpp")
      continue()
    endif()
    execute_process(COMMAND ${NM} -C --defined-only ${object} OUTPUT_VARIABLE symbols RESULT_VARIABLE failed)
    if(failed)
      message(FATAL_ERROR "${NM} cannot read ${object}")
    endif()
    math(EXPR seen "${seen} + 1")
    string(REGEX MATCHALL "[^\n]* [WVuT] [^\n]*" shared "${symbols}")
    if(shared)
      message(FATAL_ERROR "${object} shares code with files compiled for other CPUs; the linker may keep this "
                          "level's copy for all of them. Move it into the unnamed namespace: ${shared}")
    endif()
  endforeach()
  if(NOT seen EQUAL 3)
    message(FATAL_ERROR "found ${seen} of the 3 level files among: ${OBJECTS}")
  endif()
  return()
endif()

# Target flags of the reduction levels: the same source (src/primitives/host/reduce_kernels.hpp), compiled once
# per level. -ffp-contract=off keeps the levels' results equal to the last bit; -O3 is fixed because vector code
# without inlining would be slower than none (sanitizers multiply its compile time, so they get -O1 without debug
# information). The baseline file gets no target flags at all.
set(STRETTO_LEVEL_FOLDER ${CMAKE_CURRENT_SOURCE_DIR}/src/primitives/host)
if(STRETTO_SANITIZER)
  set(STRETTO_LEVEL_FLAGS -O1 -g0 -ffp-contract=off)
  if(STRETTO_BUILD_FUZZERS)
    # No fuzz program comes here.
    list(APPEND STRETTO_LEVEL_FLAGS -fno-sanitize=fuzzer-no-link)
  endif()
else()
  set(STRETTO_LEVEL_FLAGS -O3 -ffp-contract=off)
endif()

# clang-cl takes clang's own options behind this word.
function(stretto_level_options list)
  if(MSVC)
    list(TRANSFORM ${list} PREPEND "/clang:")
    set(${list} ${${list}} PARENT_SCOPE)
  endif()
endfunction()

stretto_level_options(STRETTO_LEVEL_FLAGS)
set_source_files_properties(${STRETTO_LEVEL_FOLDER}/reduce_scalar.cpp PROPERTIES COMPILE_OPTIONS
                            "${STRETTO_LEVEL_FLAGS}")
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64|amd64")
  set(avx2 -mavx2 -mbmi2 -mf16c)
  set(avx512 -mavx512f -mavx512bw -mavx512dq -mavx512vl -mprefer-vector-width=512)
  stretto_level_options(avx2)
  stretto_level_options(avx512)
  set(STRETTO_AVX2_FLAGS ${STRETTO_LEVEL_FLAGS} ${avx2})
  if(STRETTO_SANITIZER STREQUAL address)
    # The scalar level is the same source, and looking for undefined behaviour doubles the time that each takes.
    list(APPEND STRETTO_AVX2_FLAGS -fno-sanitize=undefined)
  endif()
  set(STRETTO_AVX512_FLAGS ${STRETTO_AVX2_FLAGS} ${avx512})
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    # GCC 12's own AVX-512 intrinsics start from values that they leave undefined on purpose.
    list(APPEND STRETTO_AVX512_FLAGS -Wno-uninitialized -Wno-maybe-uninitialized)
  endif()
  set_source_files_properties(${STRETTO_LEVEL_FOLDER}/reduce_avx2.cpp PROPERTIES COMPILE_OPTIONS
                              "${STRETTO_AVX2_FLAGS}")
  set_source_files_properties(${STRETTO_LEVEL_FOLDER}/reduce_avx512.cpp PROPERTIES COMPILE_OPTIONS
                              "${STRETTO_AVX512_FLAGS}")
endif()

# No level may leave behind a function that the linker would merge with another level's.
if(STRETTO_BUILD_TESTS AND NOT STRETTO_SANITIZER AND NOT STRETTO_WINDOWS_PART)
  add_test(NAME reduce_levels_share_no_code
           COMMAND ${CMAKE_COMMAND} -DNM=${CMAKE_NM} "-DOBJECTS=$<TARGET_OBJECTS:stretto_objects>" -P
                   ${CMAKE_CURRENT_LIST_FILE})
endif()
