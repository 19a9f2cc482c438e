# Most of the time that most files take to compile goes into the standard library's headers, so those that many include
# are read once. The objects are the same without it. Not where compilations are cached (ccache): a cache needs
# each file's own text. That a file lacks an include of its own shows in such a build, and in `make compilers`.
#
# stretto_precompile(<target> <header>...): the common headers and these, for the files of a target.
# stretto_precompiled_as(<target> <other>): what `other` has compiled already serves this target too.
function(stretto_precompile target)
  if(CMAKE_CXX_COMPILER_LAUNCHER)
    return()
  endif()
  target_precompile_headers(${target} PRIVATE
    <algorithm> <array> <atomic> <chrono> <cstdint> <cstdio> <cstring> <deque> <functional> <map>
    <memory> <mutex> <optional> <span> <string> <thread> <unordered_map> <utility> <vector> ${ARGN})
endfunction()

function(stretto_precompiled_as target other)
  if(NOT CMAKE_CXX_COMPILER_LAUNCHER)
    target_precompile_headers(${target} REUSE_FROM ${other})
  endif()
endfunction()

stretto_precompile(stretto_objects)
# They are compiled with flags of their own, which must fit those of the header.
set_source_files_properties(${STRETTO_LEVEL_FOLDER}/reduce_scalar.cpp ${STRETTO_LEVEL_FOLDER}/reduce_avx2.cpp
  ${STRETTO_LEVEL_FOLDER}/reduce_avx512.cpp PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
