# Most of the time that most files take to compile goes into the standard library's headers, so those that many include
# are read once. The objects are the same without it. Not where compilations are cached (ccache): a cache needs
# each file's own text, and that build, which CI's is, also finds the file that lacks an include of its own.
if(CMAKE_CXX_COMPILER_LAUNCHER)
  return()
endif()
target_precompile_headers(stretto_objects PRIVATE
  <algorithm> <array> <atomic> <chrono> <cstdint> <cstdio> <cstring> <deque> <functional> <map>
  <memory> <mutex> <optional> <span> <string> <thread> <unordered_map> <utility> <vector>)
# They are compiled with flags of their own, which must fit those of the header.
set_source_files_properties(${STRETTO_LEVEL_FOLDER}/reduce_scalar.cpp ${STRETTO_LEVEL_FOLDER}/reduce_avx2.cpp
  ${STRETTO_LEVEL_FOLDER}/reduce_avx512.cpp PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
