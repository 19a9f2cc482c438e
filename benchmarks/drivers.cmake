# The drivers of `stretto bench`, `stretto audit` and `stretto p2p`, of a checkout (benchmarks/CMakeLists.txt) and of the Python package (cmake/python.cmake).
# stretto_driver sees the public headers only, as a user's program does, and links the target STRETTO_DRIVERS_USE; the
# drivers of peers are compiled by python/stretto/bench with the peers' own compilers.
set(folder ${CMAKE_CURRENT_LIST_DIR})
add_executable(stretto_driver ${folder}/stretto_driver.cpp)
target_include_directories(stretto_driver PRIVATE ${PROJECT_SOURCE_DIR}/include)
target_link_libraries(stretto_driver PRIVATE $<TARGET_LINKER_FILE:${STRETTO_DRIVERS_USE}> Threads::Threads
  stretto_warnings)
add_dependencies(stretto_driver ${STRETTO_DRIVERS_USE})
add_executable(memcpy_driver ${folder}/memcpy_driver.cpp)
target_link_libraries(memcpy_driver PRIVATE Threads::Threads stretto_warnings)
add_executable(platform_driver ${folder}/platform_driver.cpp)
target_link_libraries(platform_driver PRIVATE Threads::Threads ${CMAKE_DL_LIBS} stretto_warnings)
# The net under communicators, which no library exports.
set(source ${PROJECT_SOURCE_DIR}/src)
add_executable(net_driver ${folder}/net/net_driver.cpp ${folder}/net/session.cpp ${source}/net/open.cpp
  ${source}/net/plugin/plugin.cpp)
target_link_libraries(net_driver PRIVATE stretto_tcp stretto_plugin_base Threads::Threads ${CMAKE_DL_LIBS} stretto_warnings)
# What `stretto lab` compares with: the all-reduces of inference engines, as a driver and for ranks written in Python.
add_executable(kinds_driver ${folder}/lab/kinds_driver.cpp)
target_link_libraries(kinds_driver PRIVATE Threads::Threads rt stretto_warnings)
add_library(lab_kinds MODULE ${folder}/lab/kinds_library.cpp)
target_link_libraries(lab_kinds PRIVATE rt stretto_warnings)
set(STRETTO_DRIVERS stretto_driver memcpy_driver platform_driver net_driver kinds_driver lab_kinds)

# The GPU's drivers. nccl_driver links no library that it measures: it loads the one that it is told to.
set(STRETTO_NCCL_DRIVER contest costs nccl_driver one_shot rank setup)
list(TRANSFORM STRETTO_NCCL_DRIVER REPLACE "(.+)" "${folder}/cuda/\\1.cpp")
if(STRETTO_CUDA_FOUND)
  stretto_compile_cuda(judge FILES ${folder}/cuda/judge.cu INCLUDES ${PROJECT_SOURCE_DIR}/include)
  stretto_compile_cuda(limits FILES ${folder}/cuda/limits.cu INCLUDES ${PROJECT_SOURCE_DIR}/include)
  # One rule for the object that both programs hold.
  add_custom_target(bench_judge DEPENDS ${judge})
  add_executable(nccl_driver ${STRETTO_NCCL_DRIVER} ${judge})
  add_executable(limits_driver ${limits} ${judge})
  set_target_properties(limits_driver PROPERTIES LINKER_LANGUAGE CXX)
  foreach(driver nccl_driver limits_driver)
    add_dependencies(${driver} bench_judge)
    target_include_directories(${driver} PRIVATE ${PROJECT_SOURCE_DIR}/include)
    target_include_directories(${driver} SYSTEM PRIVATE ${STRETTO_CUDA_INCLUDES})
    target_link_libraries(${driver} PRIVATE ${STRETTO_CUDART} rt Threads::Threads ${CMAKE_DL_LIBS} stretto_warnings)
    # They are carried to the GPU machine, which may have another compiler's runtime.
    target_link_options(${driver} PRIVATE ${STRETTO_OWN_RUNTIME})
  endforeach()
  list(APPEND STRETTO_DRIVERS nccl_driver limits_driver)
endif()

# All that `stretto bench` needs of a build, for those who build nothing else.
add_custom_target(bench_drivers DEPENDS ${STRETTO_DRIVERS} stretto_nccl)
