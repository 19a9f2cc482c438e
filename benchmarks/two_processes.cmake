# An all-reduce between two processes, on either system (benchmarks/CMakeLists.txt, tests/windows/tests.cmake).
add_executable(two_processes ${CMAKE_CURRENT_LIST_DIR}/two_processes.cpp)
target_include_directories(two_processes PRIVATE ${PROJECT_SOURCE_DIR}/include)
target_link_libraries(two_processes PRIVATE $<TARGET_LINKER_FILE:stretto> Threads::Threads stretto_warnings)
add_dependencies(two_processes stretto)
