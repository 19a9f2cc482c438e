# `cmake --install`: what others compile and link against. Component `stretto` is the library under its own name with
# its headers and its CMake and pkg-config files; component `nccl` is the same library as libnccl.so.2, apart, because
# on a library path it takes the place of NVIDIA's.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

install(TARGETS stretto LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT stretto)
install(TARGETS stretto_nccl LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT nccl)
# Under its own name only: as libnccl-profiler.so NCCL would load it into every job.
install(TARGETS stretto_profiler LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT stretto)
install(DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR}/include/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT stretto
  FILES_MATCHING PATTERN "*.h")

set(STRETTO_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/stretto)
configure_package_config_file(
  ${CMAKE_CURRENT_LIST_DIR}/stretto-config.cmake.in ${CMAKE_CURRENT_BINARY_DIR}/stretto-config.cmake
  INSTALL_DESTINATION ${STRETTO_CMAKE_DIR}
  PATH_VARS CMAKE_INSTALL_LIBDIR CMAKE_INSTALL_INCLUDEDIR)
write_basic_package_version_file(
  ${CMAKE_CURRENT_BINARY_DIR}/stretto-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/stretto-config.cmake
  ${CMAKE_CURRENT_BINARY_DIR}/stretto-config-version.cmake DESTINATION ${STRETTO_CMAKE_DIR} COMPONENT stretto)

# Relative to the file's own place, so that an installed tree can be moved.
file(RELATIVE_PATH STRETTO_PC_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(${CMAKE_CURRENT_LIST_DIR}/stretto.pc.in ${CMAKE_CURRENT_BINARY_DIR}/stretto.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/stretto.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT stretto)
