# The Python package's compiled half: stretto/_native (nanobind, over include/nccl.h and include/stretto.h alone), and
# beside it in the wheel the two shared libraries, the plugins and the headers, so that `pip install stretto`
# also serves C programs and LD_PRELOAD. Everything is in the install component `python`, the only one that a wheel
# holds. The empty plugin is for `stretto trace`'s own overhead runs and is in no other component.
option(STRETTO_BUILD_PYTHON "Build the Python extension module" OFF)
if(NOT STRETTO_BUILD_PYTHON)
  return()
endif()

find_package(Python 3.10 REQUIRED COMPONENTS Interpreter Development.Module)
execute_process(COMMAND ${Python_EXECUTABLE} -m nanobind --cmake_dir OUTPUT_VARIABLE nanobind_ROOT
                OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
find_package(nanobind CONFIG REQUIRED)

# A wheel holds no symbolic links, so the package's own library has no number in its name or SONAME: it is the same
# objects once more, beside the numbered libstretto.so.0 that `cmake --install` gives to the system.
set(STRETTO_PYTHON_OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/python)
stretto_shared(stretto_wheel stretto 0)
set_property(TARGET stretto_wheel PROPERTY SOVERSION)
set_target_properties(stretto_wheel PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${STRETTO_PYTHON_OUTPUT})

file(GLOB STRETTO_PYTHON_SOURCES CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/python/native/*.cpp)
nanobind_add_module(stretto_python NB_STATIC ${STRETTO_PYTHON_SOURCES})
# The binding sees the public headers and nothing of src/.
target_include_directories(stretto_python PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/include)
target_link_libraries(stretto_python PRIVATE $<TARGET_LINKER_FILE:stretto_wheel>)
target_compile_options(stretto_python PRIVATE -Wall -Wextra $<$<BOOL:${STRETTO_WERROR}>:-Werror>)
add_dependencies(stretto_python stretto_wheel)
set_target_properties(stretto_python PROPERTIES
  OUTPUT_NAME _native LIBRARY_OUTPUT_DIRECTORY ${STRETTO_PYTHON_OUTPUT} INSTALL_RPATH "$ORIGIN/lib")

# All that the component `python` holds of a build, for those who build nothing else.
add_custom_target(stretto_package DEPENDS stretto_python stretto_wheel stretto_nccl stretto_profiler stretto_profiler_empty
  stretto_net)

# Left out of a plain `cmake --install`: the build folder may be one that `make build` shares between both.
install(TARGETS stretto_python LIBRARY DESTINATION stretto COMPONENT python EXCLUDE_FROM_ALL)
install(TARGETS stretto_wheel stretto_nccl stretto_profiler stretto_profiler_empty stretto_net
        LIBRARY DESTINATION stretto/lib COMPONENT python NAMELINK_SKIP EXCLUDE_FROM_ALL)
install(DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR}/include/ DESTINATION stretto/include COMPONENT python EXCLUDE_FROM_ALL
        FILES_MATCHING PATTERN "*.h")
stretto_install_interface(stretto/ lib include COMPONENT python EXCLUDE_FROM_ALL)
# The page of `stretto trace view`, where npm has built it.
install(FILES ${CMAKE_CURRENT_SOURCE_DIR}/viewer/dist/viewer.html DESTINATION stretto/trace COMPONENT python
        EXCLUDE_FROM_ALL OPTIONAL)

# `stretto bench` and `stretto tune` from a wheel: the drivers, and the sources of those that peers' compilers build. A
# checkout with benchmarks has them in its build folder already.
if(NOT STRETTO_BUILD_BENCHMARKS)
  set(STRETTO_DRIVERS_USE stretto_wheel)
  include(${CMAKE_CURRENT_SOURCE_DIR}/benchmarks/drivers.cmake)
  set_target_properties(${STRETTO_DRIVERS} PROPERTIES INSTALL_RPATH "$ORIGIN/../../lib")
  install(TARGETS ${STRETTO_DRIVERS} RUNTIME DESTINATION stretto/bench/bin COMPONENT python EXCLUDE_FROM_ALL
          LIBRARY DESTINATION stretto/bench/bin COMPONENT python EXCLUDE_FROM_ALL)
  install(DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR}/benchmarks/ DESTINATION stretto/bench/native COMPONENT python
          EXCLUDE_FROM_ALL FILES_MATCHING PATTERN "*.hpp" PATTERN "openmpi*_driver.cpp" PATTERN "cuda" EXCLUDE PATTERN "net" EXCLUDE PATTERN "peers" EXCLUDE)
endif()
