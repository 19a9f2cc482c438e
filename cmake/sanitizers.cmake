# STRETTO_SANITIZER: `thread` finds races; `address` finds errors of memory and undefined behaviour, and is also the build
# that the fuzz programs run in, because libFuzzer's coverage of the sources costs a test little.
set(STRETTO_NO_UNDEFINED -Wl,--no-undefined)
if(STRETTO_BUILD_FUZZERS AND NOT (CMAKE_CXX_COMPILER_ID MATCHES Clang AND STRETTO_SANITIZER STREQUAL address))
  message(FATAL_ERROR "STRETTO_BUILD_FUZZERS needs clang and AddressSanitizer: configure with "
                      "-DCMAKE_CXX_COMPILER=clang++-14 -DSTRETTO_SANITIZER=address")
endif()
if(NOT STRETTO_SANITIZER)
  return()
endif()
if(STRETTO_SANITIZER STREQUAL thread)
  set(checks -fsanitize=thread)
elseif(STRETTO_SANITIZER STREQUAL address)
  # Left out: copies of no bytes from or to null, and places within buffers that are null since this rank has none; values of
  # C enumerations that callers make up, which is what nccl.h's functions check; functions of other libraries (NVML, plugins),
  # called by types of our own.
  set(checks -fsanitize=address,undefined -fno-sanitize=nonnull-attribute,pointer-overflow,enum -fno-sanitize-recover=undefined)
  if(CMAKE_CXX_COMPILER_ID MATCHES Clang)
    list(APPEND checks -fno-sanitize=function)
  endif()
else()
  message(FATAL_ERROR "STRETTO_SANITIZER is ${STRETTO_SANITIZER}; it must be thread, address or empty.")
endif()
# Of debug information only the lines, which is what a report shows: the rest is a third of the compile time.
add_compile_options(${checks} -fno-omit-frame-pointer -g1 -O1)
add_link_options(${checks})
if(CMAKE_CXX_COMPILER_ID MATCHES Clang)
  # Its runtime is in the program alone, where a library finds it when it is loaded. GCC says by itself what is on.
  set(STRETTO_NO_UNDEFINED "")
  string(TOUPPER __SANITIZE_${STRETTO_SANITIZER}__ name)
  add_compile_definitions(${name})
endif()
