# Toolchain file: programs for Windows, made by Debian's mingw-w64 and run by Wine.
#   apt-get install g++-mingw-w64-x86-64-posix wine64
#   cmake --preset windows-mingw            (CMakePresets.json; docs/windows.md)
# The flavour named win32 has no std::thread.
set(CMAKE_SYSTEM_NAME Windows)
set(CMAKE_SYSTEM_PROCESSOR x86_64)
set(CMAKE_CXX_COMPILER x86_64-w64-mingw32-g++-posix)
set(CMAKE_C_COMPILER x86_64-w64-mingw32-gcc-posix)
set(CMAKE_RC_COMPILER x86_64-w64-mingw32-windres)
set(CMAKE_FIND_ROOT_PATH /usr/x86_64-w64-mingw32)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
find_program(STRETTO_WINE NAMES wine64 wine wine64-stable PATHS /usr/lib/wine)
if(STRETTO_WINE)
  set(CMAKE_CROSSCOMPILING_EMULATOR ${STRETTO_WINE})
endif()
