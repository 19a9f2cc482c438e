# The tests that run on Windows, and under Wine: `make test-windows`. Whatever needs POSIX itself is in a file named
# *_posix_test.cpp, or is left out here by name. docs/windows.md says what that leaves.
set(STRETTO_GTEST_SOURCES /usr/src/googletest CACHE PATH "GoogleTest's sources (Debian: googletest)")
set(INSTALL_GTEST OFF)
set(BUILD_GMOCK OFF)
set(gtest_disable_pthreads OFF)
add_subdirectory(${STRETTO_GTEST_SOURCES} ${CMAKE_CURRENT_BINARY_DIR}/googletest EXCLUDE_FROM_ALL)

# stretto_windows_harness(<sources>... OF <objects>): what the tests share, of that set of objects.
function(stretto_windows_harness)
  cmake_parse_arguments(PARSE_ARGV 0 ARG "" "OF" "")
  add_library(stretto_harness STATIC ${ARG_UNPARSED_ARGUMENTS} windows/now.cpp)
  target_include_directories(stretto_harness PUBLIC ${CMAKE_CURRENT_SOURCE_DIR})
  target_link_libraries(stretto_harness PUBLIC ${ARG_OF} gtest stretto_warnings)
  target_compile_options(stretto_harness PUBLIC -include ${CMAKE_CURRENT_SOURCE_DIR}/windows/posix.hpp)
endfunction()

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

# stretto_windows_costs(<objects>): what Windows costs (benchmarks/windows): that the program ends, and that its last case and
# its copies have numbers. Large pages may have none, as few users have the right to lock memory.
function(stretto_windows_costs objects)
  add_executable(platform_driver ${PROJECT_SOURCE_DIR}/benchmarks/windows/platform_driver.cpp)
  target_link_libraries(platform_driver PRIVATE ${objects} stretto_warnings)
  add_test(NAME platform_driver COMMAND platform_driver --rounds 1 --seconds 30 --bytes 67108864)
  set_tests_properties(platform_driver PROPERTIES TIMEOUT 120 RUN_SERIAL ON
    PASS_REGULAR_EXPRESSION "TCP, writes of 4096 KB\",\"unit\":\"GB/s\",\"values\":.[0-9]"
    FAIL_REGULAR_EXPRESSION "(futex of [^\"]*|memcpy[^\"]*[yB0]|event|pipe)\",\"unit\":\"[^\"]*\",\"values\":.null")
endfunction()

set(base_tests json log parameters siphash stable_sort status types unknown_variables watch)
set(platform_tests clock cores fence futex identity kept_memory memory_wish network_interface poller process
  shared_memory socket thread_local)
set(topology_tests facts machine)

# What CI has time for: the folders below the communicators, and nothing else is compiled (`make test-windows-part`).
if(STRETTO_WINDOWS_PART)
  set(lower ${STRETTO_SOURCES})
  list(FILTER lower INCLUDE REGEX "/src/(base|platform|topology)/")
  add_library(stretto_lower OBJECT ${lower})
  target_include_directories(stretto_lower PUBLIC ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
  target_link_libraries(stretto_lower PUBLIC Threads::Threads ${STRETTO_SYSTEM_LIBRARIES} PRIVATE stretto_warnings)
  set_target_properties(stretto_objects stretto stretto_nccl PROPERTIES EXCLUDE_FROM_ALL ON)
  stretto_windows_harness(harness/watchdog.cpp OF stretto_lower)
  foreach(folder base platform topology)
    stretto_windows_tests(${folder} ${${folder}_tests})
  endforeach()
  stretto_windows_costs(stretto_lower)
  return()
endif()

file(GLOB harness CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/harness/*.cpp)
list(FILTER harness EXCLUDE REGEX "/(processes|now)\\.cpp$")
stretto_windows_harness(${harness} windows/processes.cpp harness/cuda/absent.cpp OF stretto_objects)
stretto_windows_tests(base ${base_tests})
stretto_windows_tests(platform ${platform_tests} futex_processes)
stretto_windows_tests(topology ${topology_tests})
stretto_windows_costs(stretto_objects)
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
