# The tests that run on Windows, and under Wine: `make test-windows`. Whatever needs POSIX itself is in a file named
# *_posix_test.cpp, or is left out here by name. docs/windows.md says what that leaves.
set(STRETTO_GTEST_SOURCES /usr/src/googletest CACHE PATH "GoogleTest's sources (Debian: googletest)")
set(INSTALL_GTEST OFF)
set(BUILD_GMOCK OFF)
set(gtest_disable_pthreads OFF)
add_subdirectory(${STRETTO_GTEST_SOURCES} ${CMAKE_CURRENT_BINARY_DIR}/googletest EXCLUDE_FROM_ALL)

file(GLOB harness CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/harness/*.cpp)
list(FILTER harness EXCLUDE REGEX "/processes\\.cpp$")
add_library(stretto_harness STATIC ${harness} windows/processes.cpp harness/cuda/absent.cpp)
target_include_directories(stretto_harness PUBLIC ${CMAKE_CURRENT_SOURCE_DIR})
target_link_libraries(stretto_harness PUBLIC stretto_objects gtest stretto_warnings)
target_compile_options(stretto_harness PUBLIC -include ${CMAKE_CURRENT_SOURCE_DIR}/windows/posix.hpp)

# stretto_windows_tests(<folder> <test>... [LEFT_OUT <filter>]): a program of the folder's tests of these names, without those
# that the filter chooses.
function(stretto_windows_tests folder)
  cmake_parse_arguments(PARSE_ARGV 1 ARG "" "LEFT_OUT" "")
  set(sources ${ARG_UNPARSED_ARGUMENTS})
  list(TRANSFORM sources PREPEND ${folder}/)
  list(TRANSFORM sources APPEND _test.cpp)
  add_executable(${folder}_tests ${sources})
  target_link_libraries(${folder}_tests PRIVATE stretto_harness gtest_main)
  # Tests of the net plugin, which is not built here, are left out.
  target_compile_definitions(${folder}_tests PRIVATE STRETTO_NET="")
  add_test(NAME ${folder} COMMAND ${folder}_tests --gtest_filter=-${ARG_LEFT_OUT})
  # Ranks wait for each other, and there are two cores: one program at a time.
  set_tests_properties(${folder} PROPERTIES TIMEOUT 1200 RUN_SERIAL ON FAIL_REGULAR_EXPRESSION "Running 0 tests")
endfunction()
stretto_windows_tests(base json log parameters siphash stable_sort status types unknown_variables watch)
stretto_windows_tests(platform clock fence futex identity kept_memory network_interface poller process
  shared_memory socket thread_local)
stretto_windows_tests(primitives copy norm reduce sleep)
# What a process says once is heard by whoever is first, so that test has a process of its own.
set(once Choose.AnImpossibleRowIsIgnoredWithOneLine)
stretto_windows_tests(planner choose chosen copies explain forced gpu_table hosts model norm pulls rank_order table
  LEFT_OUT ${once})
add_test(NAME planner_once COMMAND planner_tests --gtest_filter=${once})
set_tests_properties(planner_once PROPERTIES TIMEOUT 60 RUN_SERIAL ON FAIL_REGULAR_EXPRESSION "Running 0 tests")
stretto_windows_tests(algorithms chaos cost shape)
stretto_windows_tests(net abi every_net wire LEFT_OUT */EveryNet.*/Plugin*)
stretto_windows_tests(bootstrap hostile lifetime membership session unique_id wire)
stretto_windows_tests(communicator core/disagreement core/failure core/far core/health core/turns
  LEFT_OUT HostsOfProcesses.UseTheNetPluginThatIsNamed)
# The test that is left out reads what flight recorders have written.
stretto_windows_tests(api arguments conformance groups life meeting_calls newer_calls norm norm_calls one_sided transfers
  LEFT_OUT OneSided.OperationsAreRecorded)

# A program as users build one: it links stretto.dll, which Wine looks for in the folders of WINEPATH.
add_executable(program_tests windows/program.cpp)
target_include_directories(program_tests PRIVATE ${PROJECT_SOURCE_DIR}/include)
target_link_libraries(program_tests PRIVATE $<TARGET_LINKER_FILE:stretto> gtest_main stretto_warnings)
add_dependencies(program_tests stretto)
add_test(NAME program COMMAND program_tests)
set_tests_properties(program PROPERTIES TIMEOUT 120 RUN_SERIAL ON FAIL_REGULAR_EXPRESSION "Running 0 tests"
  ENVIRONMENT "WINEPATH=$<TARGET_FILE_DIR:stretto>")
include(${PROJECT_SOURCE_DIR}/benchmarks/two_processes.cmake)
