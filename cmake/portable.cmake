# What a wheel holds runs on machines older than the one that builds it: STRETTO_GLIBC=2.28 links everything with that
# release's interface of glibc (glibc_interface makes it), with glibc_compat.cpp for what compilers' headers and the C++
# runtime take from newer ones, and with a C++ runtime of its own. The objects are those of any build.
set(STRETTO_GLIBC "" CACHE STRING "Release of glibc that what is built has to run on, say 2.28; empty: this machine's")
# How libraries and programs that are carried to other machines bring the compiler's runtime.
set(STRETTO_OWN_RUNTIME -static-libstdc++ -static-libgcc)
if(NOT STRETTO_GLIBC)
  return()
endif()

find_package(Python 3.10 REQUIRED COMPONENTS Interpreter)
set(folder ${CMAKE_CURRENT_BINARY_DIR}/glibc-${STRETTO_GLIBC})
execute_process(
  COMMAND ${Python_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/glibc_interface ${STRETTO_GLIBC} ${folder} ${CMAKE_CXX_COMPILER}
  COMMAND_ERROR_IS_FATAL ANY)
add_library(stretto_glibc_compat STATIC ${CMAKE_CURRENT_LIST_DIR}/glibc_compat.cpp)
target_link_libraries(stretto_glibc_compat PRIVATE stretto_warnings)
# Every machine has libgcc_s; GCC's static one asks for a function of glibc 2.35.
set(STRETTO_OWN_RUNTIME -static-libstdc++)
add_link_options(
  ${STRETTO_OWN_RUNTIME} -L${folder} -Wl,--push-state,--no-as-needed,-lpthread,-ldl,-lrt,--pop-state -Wl,--gc-sections -Wl,--allow-shlib-undefined)
link_libraries(stretto_glibc_compat)
