# `cmake --install`: what others compile and link against. Component `stretto` is the library under its own name with
# its headers and its CMake and pkg-config files; component `nccl` is the same library as libnccl.so.2, apart, because
# on a library path it takes the place of NVIDIA's.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

install(TARGETS stretto LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT stretto)
install(TARGETS stretto_nccl LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT nccl)
# Under their own names only: as libnccl-profiler.so and libnccl-net.so NCCL would load them into every job.
install(TARGETS stretto_profiler stretto_net LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT stretto)
install(DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR}/include/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT stretto
  FILES_MATCHING PATTERN "*.h")

# stretto_install_interface(<prefix> <libdir> <includedir> <install options>...): what finds the library below `prefix`,
# relative to its own place, so that an installed tree can be moved.
function(stretto_install_interface prefix libdir includedir)
  set(made ${CMAKE_CURRENT_BINARY_DIR}/interface/${prefix})
  set(cmakedir ${libdir}/cmake/stretto)
  configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/stretto-config.cmake.in ${made}/stretto-config.cmake
    INSTALL_DESTINATION ${cmakedir} INSTALL_PREFIX /anywhere PATH_VARS libdir includedir)
  write_basic_package_version_file(${made}/stretto-config-version.cmake COMPATIBILITY SameMinorVersion)
  file(RELATIVE_PATH up /${libdir}/pkgconfig /)
  configure_file(${PROJECT_SOURCE_DIR}/cmake/stretto.pc.in ${made}/stretto.pc @ONLY)
  install(FILES ${made}/stretto-config.cmake ${made}/stretto-config-version.cmake DESTINATION ${prefix}${cmakedir} ${ARGN})
  install(FILES ${made}/stretto.pc DESTINATION ${prefix}${libdir}/pkgconfig ${ARGN})
endfunction()
stretto_install_interface("" ${CMAKE_INSTALL_LIBDIR} ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT stretto)
