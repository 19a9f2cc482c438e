# What of src/ belongs to one operating system, and what Windows needs of compiler and linker.
#
# stretto_select_system(<list>): takes from a list of sources what this system does not compile: the other's folder of
# platform/, and on Windows the readers of flight recorders, for which flight_absent.cpp stands in (docs/windows.md).
function(stretto_select_system STRETTO_list)
  set(kept ${${STRETTO_list}})
  if(WIN32)
    list(FILTER kept EXCLUDE REGEX "/platform/linux/")
    list(FILTER kept EXCLUDE REGEX "/observe/flight_(folder|process|sources)\\.cpp$")
  else()
    list(FILTER kept EXCLUDE REGEX "/platform/windows/|/observe/flight_absent\\.cpp$")
  endif()
  set(${STRETTO_list} ${kept} PARENT_SCOPE)
endfunction()

set(STRETTO_SYSTEM_LIBRARIES ${CMAKE_DL_LIBS})
# The sources use attributes, builtins, vector types and inline assembly that GCC and clang have, clang-cl among them.
if(CMAKE_CXX_COMPILER_ID STREQUAL MSVC)
  message(FATAL_ERROR "Microsoft's cl cannot compile Stretto: its reductions are written with the vector types of GCC and "
                      "clang. Use clang-cl, which works with cl's headers and libraries: cmake --preset windows-msvc.")
endif()
if(NOT WIN32)
  return()
endif()
if(STRETTO_CUDA STREQUAL ON)
  message(FATAL_ERROR "Ranks on GPUs do not run on Windows: configure with -DSTRETTO_CUDA=OFF.")
endif()
set(STRETTO_SYSTEM_LIBRARIES ws2_32 iphlpapi bcrypt synchronization ntdll advapi32)
# Windows 10: WSAPoll tells of refused connections from there on.
add_compile_definitions(_WIN32_WINNT=0x0A00 NOMINMAX WIN32_LEAN_AND_MEAN)
if(MSVC)
  # clang-cl. Never tried.
  add_compile_options(/Zc:__cplusplus /utf-8)
  return()
endif()
# The C++ runtime goes into each file. Formats are checked where the same sources are compiled for Linux: this compiler
# takes printf's for those of Microsoft's C library, which are not the ones that are used.
add_compile_definitions(__USE_MINGW_ANSI_STDIO=1)
add_compile_options(-Wno-format -Wno-format-extra-args)
add_link_options(-static)
# GCC does not keep the stack at more than 16 bytes on Windows (its bug 54412): instructions that take vectors from an
# address of any kind.
add_compile_options(-Wa,-muse-unaligned-vector-move)
