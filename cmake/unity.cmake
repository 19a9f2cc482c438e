# STRETTO_UNITY=ON: the files of a folder that belong to one target are compiled together (CMake's unity builds). Most of
# the time that a file takes goes into headers, which are then read once per folder. For builds that compile everything
# once: CI, wheels, `make bench`. Without it a changed file is compiled alone, which is what whoever works on it wants.
#
# Files of one folder share their anonymous namespace then, so a name is defined once per folder. What a file lacks and its
# neighbour has does not show; one of the compilers of `make compilers`, clang with libc++, looks at each file by itself but those of tests.
option(STRETTO_UNITY "Compile the files of a folder together: faster from scratch, slower after a change" OFF)

# Not with others: socket_state.cpp, because <linux/tcp.h> and <netinet/tcp.h> define the same structures; and files
# that define the same names once per version of an interface, or once per library that they stand for.
set(STRETTO_NOT_UNITED "/platform/linux/socket_state\\.cpp$|/profiler/plugin_v[0-9]+\\.cpp$|/cuda_on_host/shim_[a-z]+\\.cpp$")

# Every target of a folder of the build and of those below it. CMake leaves out files with flags of their own. Called last,
# when all targets have their sources.
function(stretto_unite folder)
  get_property(targets DIRECTORY ${folder} PROPERTY BUILDSYSTEM_TARGETS)
  foreach(target ${targets})
    get_target_property(type ${target} TYPE)
    get_target_property(sources ${target} SOURCES)
    if(type MATCHES "^(INTERFACE_LIBRARY|UTILITY)$" OR NOT sources)
      continue()
    endif()
    foreach(source ${sources})
      cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY ${folder} NORMALIZE)
      cmake_path(GET source PARENT_PATH group)
      cmake_path(RELATIVE_PATH group BASE_DIRECTORY ${PROJECT_SOURCE_DIR})
      if(group MATCHES "^(src|plugins|benchmarks|tests|python)/?" AND NOT source MATCHES "${STRETTO_NOT_UNITED}")
        string(MAKE_C_IDENTIFIER "${group}" group)
        set_property(SOURCE ${source} TARGET_DIRECTORY ${target} PROPERTY UNITY_GROUP ${group})
      endif()
    endforeach()
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  endforeach()
  get_property(below DIRECTORY ${folder} PROPERTY SUBDIRECTORIES)
  foreach(subfolder ${below})
    stretto_unite(${subfolder})
  endforeach()
endfunction()

# Not on Windows, whose headers define common words as macros ("interface", "small").
if(STRETTO_UNITY AND NOT WIN32)
  stretto_unite(${CMAKE_CURRENT_SOURCE_DIR})
endif()
