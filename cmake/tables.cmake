# The measured tables that the library ships go into the library itself, so that no file has to be found at run time:
# one text for each file of tables/.
file(GLOB tables CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/tables/*.json)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${tables})
set(STRETTO_TABLE_TEXTS "")
foreach(table ${tables})
  file(READ ${table} text)
  # Compilers bound the length of one literal, and adjacent literals are one text: a new one begins at each line.
  string(REPLACE "\n" "\n)STRETTO\"\n    R\"STRETTO(" text "${text}")
  string(APPEND STRETTO_TABLE_TEXTS "\n    R\"STRETTO(${text})STRETTO\",")
endforeach()
configure_file(${CMAKE_CURRENT_LIST_DIR}/shipped_table.cpp.in ${CMAKE_CURRENT_BINARY_DIR}/generated/shipped_table.cpp @ONLY)
target_sources(stretto_objects PRIVATE ${CMAKE_CURRENT_BINARY_DIR}/generated/shipped_table.cpp)
