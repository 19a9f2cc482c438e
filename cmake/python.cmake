# The Python package's compiled half: stretto/_native (nanobind, over include/nccl.h and include/stretto.h alone), and
# beside it in the wheel the two shared libraries and the headers, so that `pip install stretto` also serves C programs
# and LD_PRELOAD. Everything is in the install component `python`, the only one that a wheel holds.
option(STRETTO_BUILD_PYTHON "Build the Python extension module" OFF)
if(NOT STRETTO_BUILD_PYTHON)
  return()
endif()

find_package(Python 3.11 REQUIRED COMPONENTS Interpreter Development.Module)
execute_process(COMMAND ${Python_EXECUTABLE} -m nanobind --cmake_dir OUTPUT_VARIABLE nanobind_ROOT
                OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
find_package(nanobind CONFIG REQUIRED)

file(GLOB STRETTO_PYTHON_SOURCES CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/python/native/*.cpp)
nanobind_add_module(stretto_python NB_STATIC ${STRETTO_PYTHON_SOURCES})
# The binding sees the public headers and nothing of src/.
target_include_directories(stretto_python PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/include)
target_link_libraries(stretto_python PRIVATE $<TARGET_LINKER_FILE:stretto>)
target_compile_options(stretto_python PRIVATE -Wall -Wextra -Werror)
add_dependencies(stretto_python stretto)
set_target_properties(stretto_python PROPERTIES OUTPUT_NAME _native INSTALL_RPATH "$ORIGIN/lib")

# A wheel holds no symbolic links, so there the library's name and its SONAME are both libstretto.so. Only in a wheel's
# own build: elsewhere the version number in the name stays.
if(SKBUILD)
  set_property(TARGET stretto PROPERTY SOVERSION)
endif()
install(TARGETS stretto_python LIBRARY DESTINATION stretto COMPONENT python)
install(TARGETS stretto stretto_nccl LIBRARY DESTINATION stretto/lib COMPONENT python NAMELINK_SKIP)
install(DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR}/include/ DESTINATION stretto/include COMPONENT python
        FILES_MATCHING PATTERN "*.h")
