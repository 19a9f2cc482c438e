# Which tests run where. `ctest -L` and `-LE` choose by these labels:
#
#   sanitized   under the sanitizers: ranks are threads of one process there, which is what a sanitizer can follow
#   one_thread  of those, what computes on one thread: no races to find, and minutes under ThreadSanitizer
#   timed       holds a time against a limit, which says nothing on a machine that others share: `make timed`, not CI
#   hostile     random faults for a while
#   gpu         needs a GPU: tools/gpu
#
# A folder's tests are one test of ctest; a suite that is labelled here is one of its own, named <folder>.<suite>. What
# waits for a fault to be noticed within a time runs without other tests (RUN_SERIAL); the others share the cores. `make
# test` has compilers work beside all of them, at the lowest priority.
set(STRETTO_SANITIZED base platform net primitives memory topology algorithms bootstrap planner observe communicator api plugins)
set(STRETTO_FOLDERS_OF_ONE_THREAD planner)
set(STRETTO_ALONE algorithms api bootstrap communicator)

# Suites whose ranks or helpers are processes are of no folder's sanitized tests: they have no label.
set(STRETTO_SUITES_OF_PROCESSES
  api.ChildInTheMaking api.EveryCollectiveOfProcesses api.Fork api.GroupOfProcesses api.LargeOfProcesses
  bootstrap.HostProcesses bootstrap.Interface bootstrap.Processes communicator.Connect communicator.DeviceWatch
  communicator.DirectLoss communicator.EncryptedHosts communicator.FarProfilerCalls communicator.FarProfilerFaults
  communicator.HostsOfProcesses communicator.ManyRanksOnHosts communicator.ProfilerCalls
  communicator.ProfilerSampling memory.ForkedImports net.TcpSilence
  observe.DoctorOfProcesses observe.FlightOfProcesses observe.Liveness
  platform.FencedProcess platform.ForkedChild platform.ForkedThread platform.FutexOfProcesses plugins.ProfilerProcess)
set(STRETTO_SUITES_OF_ONE_THREAD
  primitives.Copy primitives.EveryNarrowFloat primitives.EveryType primitives.Reduce)
# Run once more with every rank a host of its own: over the net that connects hosts.
set(STRETTO_SUITES_BETWEEN_HOSTS
  api.EveryCollective api.EveryCollectiveOfProcesses api.Messages api.Deterministic
  communicator.EveryDisagreement communicator.EveryWait communicator.Absence communicator.Abort
  api.Norm api.NormDisagreement)
# Suites of processes that run once more as hosts of several ranks.
set(STRETTO_SUITES_ON_TWO_HOSTS api.EveryCollectiveOfProcesses api.LargeOfProcesses)
set(STRETTO_SUITES_TIMED communicator.ManyRanksCost observe.FlightCost planner.ChooseCost)

# Conformance has owners: the plain build runs every type and operator with every algorithm, a sanitizer one case in so
# many of each algorithm, as it follows how data moves and not what is computed.
set(STRETTO_SANITIZED_SHARE 8)

function(stretto_set_up_test name folder)
  set_tests_properties(${name} PROPERTIES TIMEOUT ${STRETTO_TEST_TIMEOUT})
  if(folder IN_LIST STRETTO_ALONE)
    set_tests_properties(${name} PROPERTIES RUN_SERIAL ON)
  endif()
  if(STRETTO_SANITIZER)
    set_tests_properties(${name} PROPERTIES ENVIRONMENT STRETTO_TEST_SHARE=${STRETTO_SANITIZED_SHARE})
  endif()
endfunction()

# stretto_add_suites(<folder> <out> LABELS <label>... SUITES <folder>.<suite>...): a test for each suite of the folder; adds
# to `out` the filter that chooses them.
function(stretto_add_suites folder out)
  cmake_parse_arguments(PARSE_ARGV 2 ARG "" "" "LABELS;SUITES")
  foreach(name ${ARG_SUITES})
    if(NOT name MATCHES "^${folder}\\.(.+)$")
      continue()
    endif()
    set(filter "${CMAKE_MATCH_1}.*:*/${CMAKE_MATCH_1}.*")
    add_test(NAME ${name} COMMAND ${folder}_tests --gtest_filter=${filter})
    stretto_set_up_test(${name} ${folder})
    # A suite that has another name by now is no success.
    set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}" FAIL_REGULAR_EXPRESSION "Running 0 tests")
    string(APPEND ${out} ":${filter}")
  endforeach()
  set(${out} "${${out}}" PARENT_SCOPE)
endfunction()

function(stretto_add_suites_between_hosts folder)
  foreach(name ${STRETTO_SUITES_BETWEEN_HOSTS})
    if(NOT name MATCHES "^${folder}\\.(.+)$")
      continue()
    endif()
    add_test(NAME between_hosts.${name}
      COMMAND ${folder}_tests "--gtest_filter=${CMAKE_MATCH_1}.*:*/${CMAKE_MATCH_1}.*")
    set_tests_properties(between_hosts.${name} PROPERTIES TIMEOUT ${STRETTO_TEST_TIMEOUT} RUN_SERIAL ON
      ENVIRONMENT "STRETTO_LINK=net;STRETTO_TEST_SHARE=4" FAIL_REGULAR_EXPRESSION "Running 0 tests")
  endforeach()
  foreach(name ${STRETTO_SUITES_ON_TWO_HOSTS})
    if(NOT name MATCHES "^${folder}\\.(.+)$")
      continue()
    endif()
    add_test(NAME between_hosts.two.${name}
      COMMAND ${folder}_tests "--gtest_filter=${CMAKE_MATCH_1}.*:*/${CMAKE_MATCH_1}.*")
    set_tests_properties(between_hosts.two.${name} PROPERTIES TIMEOUT ${STRETTO_TEST_TIMEOUT} RUN_SERIAL ON
      ENVIRONMENT "STRETTO_TEST_HOSTS=2" FAIL_REGULAR_EXPRESSION "Running 0 tests")
  endforeach()
endfunction()

function(stretto_add_folder_test folder)
  set(labels)
  if(folder IN_LIST STRETTO_SANITIZED)
    set(labels sanitized)
  endif()
  if(folder IN_LIST STRETTO_FOLDERS_OF_ONE_THREAD)
    list(APPEND labels one_thread)
  endif()
  set(apart "")
  stretto_add_suites(${folder} apart SUITES ${STRETTO_SUITES_OF_PROCESSES})
  stretto_add_suites(${folder} apart LABELS timed SUITES ${STRETTO_SUITES_TIMED})
  stretto_add_suites(${folder} apart LABELS ${labels} one_thread SUITES ${STRETTO_SUITES_OF_ONE_THREAD})
  string(REGEX REPLACE "^:" "--gtest_filter=-" apart "${apart}")
  add_test(NAME ${folder} COMMAND ${folder}_tests ${apart})
  stretto_set_up_test(${folder} ${folder})
  set_tests_properties(${folder} PROPERTIES LABELS "${labels}" FAIL_REGULAR_EXPRESSION "Running 0 tests")
  stretto_add_suites_between_hosts(${folder})
endfunction()

# What `ctest -L sanitized` needs of a build; under ThreadSanitizer it leaves out what computes on one thread.
set(STRETTO_SANITIZED_HERE ${STRETTO_SANITIZED})
if(STRETTO_SANITIZER STREQUAL thread)
  list(REMOVE_ITEM STRETTO_SANITIZED_HERE ${STRETTO_FOLDERS_OF_ONE_THREAD})
endif()
list(TRANSFORM STRETTO_SANITIZED_HERE APPEND _tests OUTPUT_VARIABLE STRETTO_SANITIZED_PROGRAMS)
add_custom_target(sanitized_tests DEPENDS ${STRETTO_SANITIZED_PROGRAMS})
