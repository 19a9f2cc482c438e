# Writes OUTPUT, a header with how this build was made, if that has changed. Run at each build, as commits come between
# configurations: cmake -DSOURCE=... -DOUTPUT=... -DCOMPILER=... -DCUDA=0|1 -P build_facts.cmake
set(commit "")
find_program(GIT git)
if(GIT)
  execute_process(COMMAND ${GIT} -C ${SOURCE} rev-parse --show-toplevel --short=12 HEAD
    OUTPUT_VARIABLE lines RESULT_VARIABLE failed ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
  # A source package that was unpacked within another repository has no commit of its own.
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
file(CONFIGURE OUTPUT ${OUTPUT} @ONLY CONTENT
"// Made by cmake/build_facts.cmake.
#define STRETTO_COMMIT \"@commit@\"
#define STRETTO_COMPILER \"@COMPILER@\"
#define STRETTO_CUDA @CUDA@
")
