# tests/fuzz/<name>_fuzz.cpp becomes the libFuzzer program <name>_fuzz, of the objects that the tests run under the same
# sanitizers.
target_compile_options(stretto_objects PRIVATE -fsanitize=fuzzer-no-link)
file(GLOB STRETTO_FUZZERS CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/tests/fuzz/*_fuzz.cpp)
add_custom_target(fuzzers)
foreach(file ${STRETTO_FUZZERS})
  get_filename_component(name ${file} NAME_WE)
  add_executable(${name} EXCLUDE_FROM_ALL ${file})
  target_compile_options(${name} PRIVATE -fsanitize=fuzzer)
  target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  target_link_libraries(${name} PRIVATE stretto_objects stretto_warnings)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/fuzzers)
  add_dependencies(fuzzers ${name})
endforeach()
