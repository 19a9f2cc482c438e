# The measured table that the library ships goes into the library itself, so that no file has to be found at run time.
set(STRETTO_TABLE_JSON ${CMAKE_CURRENT_SOURCE_DIR}/tables/host.json)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${STRETTO_TABLE_JSON})
file(READ ${STRETTO_TABLE_JSON} STRETTO_TABLE_TEXT)
# Compilers bound the length of one literal, and adjacent literals are one text: a new one begins at each line.
string(REPLACE "\n" "\n)STRETTO\"\n    R\"STRETTO(" STRETTO_TABLE_TEXT "${STRETTO_TABLE_TEXT}")
configure_file(${CMAKE_CURRENT_LIST_DIR}/shipped_table.cpp.in ${CMAKE_CURRENT_BINARY_DIR}/generated/shipped_table.cpp @ONLY)
target_sources(stretto_objects PRIVATE ${CMAKE_CURRENT_BINARY_DIR}/generated/shipped_table.cpp)
