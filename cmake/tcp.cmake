# Bytes over TCP: of the library, of the net plugin, which stands alone, and of the driver of `stretto p2p`. Compiled once
# for all, so what links the library's objects names ${STRETTO_OBJECTS}, which are both.
set(STRETTO_OBJECTS stretto_objects)
if(WIN32)
  return()  # there is no plugin
endif()
list(APPEND STRETTO_OBJECTS stretto_tcp)
file(GLOB STRETTO_TCP_SOURCES CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/src/net/tcp/*.cpp)
foreach(name network_interface socket byte_stream encryption tls openssl dynamic_library linux/openssl linux/dynamic_library
        linux/cores linux/file_descriptor linux/fork linux/native_socket linux/network_interface linux/poller linux/random
        linux/socket_state)
  list(APPEND STRETTO_TCP_SOURCES ${CMAKE_CURRENT_SOURCE_DIR}/src/platform/${name}.cpp)
endforeach()
list(REMOVE_ITEM STRETTO_SOURCES ${STRETTO_TCP_SOURCES})
add_library(stretto_tcp OBJECT ${STRETTO_TCP_SOURCES})
target_include_directories(stretto_tcp PUBLIC ${CMAKE_CURRENT_SOURCE_DIR}/src)
target_link_libraries(stretto_tcp PRIVATE stretto_warnings)
