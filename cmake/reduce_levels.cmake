# Target flags of the reduction levels: the same source (src/primitives/host/reduce_kernels.hpp), compiled once
# per level. -ffp-contract=off keeps the levels' results equal to the last bit; -O3 is fixed because vector code
# without inlining would be slower than none. The baseline file gets no target flags at all.
set(STRETTO_LEVEL_FOLDER ${CMAKE_CURRENT_SOURCE_DIR}/src/primitives/host)
set(STRETTO_LEVEL_FLAGS -O3 -ffp-contract=off -fno-math-errno)

set_source_files_properties(${STRETTO_LEVEL_FOLDER}/reduce_scalar.cpp PROPERTIES COMPILE_OPTIONS
                            "${STRETTO_LEVEL_FLAGS}")
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64|amd64")
  set(STRETTO_AVX2_FLAGS ${STRETTO_LEVEL_FLAGS} -mavx2 -mbmi2 -mf16c)
  # The two warnings: GCC 12's own AVX-512 intrinsics start from values they leave undefined on purpose.
  set(STRETTO_AVX512_FLAGS ${STRETTO_AVX2_FLAGS} -mavx512f -mavx512bw -mavx512dq -mavx512vl
                           -mprefer-vector-width=512 -Wno-uninitialized -Wno-maybe-uninitialized)
  set_source_files_properties(${STRETTO_LEVEL_FOLDER}/reduce_avx2.cpp PROPERTIES COMPILE_OPTIONS
                              "${STRETTO_AVX2_FLAGS}")
  set_source_files_properties(${STRETTO_LEVEL_FOLDER}/reduce_avx512.cpp PROPERTIES COMPILE_OPTIONS
                              "${STRETTO_AVX512_FLAGS}")
endif()
