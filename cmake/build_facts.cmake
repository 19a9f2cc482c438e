# Which commit the sources in SOURCE are of. Run at each build, as commits come between configurations, to write OUTPUT, which
# says how this build was made (src/api/build.hpp), if that has changed:
#   cmake -DSOURCE=... -DOUTPUT=... -DCOMPILER=... -DNVCC=... -DKERNELS=... -P build_facts.cmake
# and where a source package is made, whose cmake/commit is the file:
#   cmake -DSOURCE=... -DCOMMIT=... -P build_facts.cmake
# Included, it has that done.
if(NOT CMAKE_SCRIPT_MODE_FILE)
  set(facts ${CMAKE_CURRENT_BINARY_DIR}/generated/build_facts.cpp)
  set(command ${CMAKE_COMMAND} -DSOURCE=${CMAKE_CURRENT_SOURCE_DIR} -DOUTPUT=${facts}
    "-DCOMPILER=${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}")
  if(STRETTO_CUDA_FOUND)
    list(JOIN STRETTO_CUDA_CODE " " kernels)
    list(APPEND command -DNVCC=${STRETTO_NVCC_VERSION} "-DKERNELS=${kernels}")
  endif()
  list(APPEND command -P ${CMAKE_CURRENT_LIST_FILE})
  # Now too, for whoever only parses the sources.
  execute_process(COMMAND ${command} COMMAND_ERROR_IS_FATAL ANY)
  add_custom_target(stretto_build_facts BYPRODUCTS ${facts} COMMAND ${command} VERBATIM)
  add_dependencies(stretto_objects stretto_build_facts)
  target_sources(stretto_objects PRIVATE ${facts})
  return()
endif()

cmake_policy(VERSION 3.22)
set(commit "")
find_program(GIT git)
if(EXISTS ${SOURCE}/cmake/commit)
  file(READ ${SOURCE}/cmake/commit commit)
elseif(GIT)
  execute_process(COMMAND ${GIT} -C ${SOURCE} rev-parse --show-toplevel --short=12 HEAD
    OUTPUT_VARIABLE lines RESULT_VARIABLE failed ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
  # Sources that were unpacked within another repository have no commit of their own.
  if(NOT failed)
    string(REPLACE "\n" ";" lines "${lines}")
    list(GET lines 0 top)
    file(REAL_PATH "${top}" top)
    file(REAL_PATH "${SOURCE}" source)
    if(top STREQUAL source)
      list(GET lines 1 commit)
      execute_process(COMMAND ${GIT} -C ${SOURCE} diff-index --quiet HEAD RESULT_VARIABLE changed ERROR_QUIET)
      if(changed)
        string(APPEND commit " with changes")
      endif()
    endif()
  endif()
endif()
if(COMMIT)
  file(WRITE ${COMMIT} "${commit}")
else()
  file(CONFIGURE OUTPUT ${OUTPUT} @ONLY CONTENT
"// Made by cmake/build_facts.cmake.
#include \"api/build.hpp\"

stretto::api::BuildFacts stretto::api::buildFacts() {
  return {\"@commit@\", \"@COMPILER@\", \"@NVCC@\", \"@KERNELS@\"};
}
")
endif()
