# The GPU half of the library. Files in folders named `cuda` (src/**/cuda/) are the only ones that may see CUDA's headers:
# with a CUDA compiler all of them are built but absent.cpp, without one absent.cpp alone, so that the rest of src/ asks
# platform/cuda at run time and never the preprocessor.
#
# nvcc is called by custom commands, not through CMake's CUDA language: that one fails at configure time on the PyPI
# wheels' layout, and cannot keep what ptxas says about registers, which tools/check_kernels reads.
include(${CMAKE_CURRENT_LIST_DIR}/find_cuda.cmake)
set(STRETTO_CUDA_ARCHITECTURES 90 CACHE STRING "Compute capabilities, ascending: machine code for each, PTX for the last")
# Machine code, and PTX, from which the drivers of later chips compile. Code for one chip alone (90a) has no PTX that they
# could take.
list(TRANSFORM STRETTO_CUDA_ARCHITECTURES PREPEND sm_ OUTPUT_VARIABLE STRETTO_CUDA_CODE)
list(GET STRETTO_CUDA_ARCHITECTURES -1 newest)
if(newest MATCHES "^[0-9]+$")
  list(APPEND STRETTO_CUDA_CODE compute_${newest})
endif()
set(STRETTO_CUDA_KEEP_OUTPUT ${CMAKE_CURRENT_LIST_DIR}/keep_output)

# Takes from the list named `STRETTO_list` what this build does not compile: of the `cuda` folders absent.cpp, or all but
# that. The arguments have long names, because a list of the same name would be hidden by them.
function(stretto_select_cuda STRETTO_list STRETTO_with_cuda)
  set(kept ${${STRETTO_list}})
  if(STRETTO_with_cuda)
    list(FILTER kept EXCLUDE REGEX "/cuda/absent\\.cpp$")
  else()
    set(absent ${kept})
    list(FILTER absent INCLUDE REGEX "/cuda/absent\\.cpp$")
    list(FILTER kept EXCLUDE REGEX "/cuda/[^/]+$")
    list(APPEND kept ${absent})
  endif()
  set(${STRETTO_list} ${kept} PARENT_SCOPE)
endfunction()

# Gives those of the sources that lie in `cuda` folders CUDA's headers; called where their target is made.
function(stretto_show_cuda_headers)
  set(files ${ARGN})
  list(FILTER files INCLUDE REGEX "/cuda/[^/]+\\.cpp$")
  set(options ${STRETTO_CUDA_INCLUDES})
  list(TRANSFORM options PREPEND -isystem)
  if(files)
    set_source_files_properties(${files} PROPERTIES COMPILE_OPTIONS "${options}")
  endif()
endfunction()

# What nvcc is told for every file. The flags of the C++ files reach its host compiler by -Xcompiler.
function(stretto_nvcc_flags out)
  set(flags -std=c++20 -ccbin ${CMAKE_CXX_COMPILER} --expt-relaxed-constexpr -Xptxas=-v)
  if(STRETTO_WERROR)
    list(APPEND flags -Werror=all-warnings)
  endif()
  # Lines of the source, for profilers; not in wheels, which they would make too large.
  if(NOT STRETTO_GLIBC)
    list(APPEND flags -lineinfo)
  endif()
  # A seventh of the size; drivers older than CUDA 13's, which could not unpack it, cannot run its code anyway.
  if(STRETTO_NVCC_VERSION VERSION_GREATER_EQUAL 13)
    list(APPEND flags --compress-mode=size)
  endif()
  foreach(code ${STRETTO_CUDA_CODE})
    string(REPLACE sm_ compute_ architecture ${code})
    list(APPEND flags -gencode arch=${architecture},code=${code})
  endforeach()
  get_target_property(warnings stretto_warnings INTERFACE_COMPILE_OPTIONS)
  string(TOUPPER "${CMAKE_BUILD_TYPE}" type)
  separate_arguments(given UNIX_COMMAND "${CMAKE_CXX_FLAGS_${type}} ${CMAKE_CXX_FLAGS}")
  foreach(flag -fPIC -fvisibility=hidden -fvisibility-inlines-hidden ${warnings} ${given})
    if(flag MATCHES "^-(O[0-3]|g|D.*)$")
      list(APPEND flags ${flag})
    else()
      list(APPEND flags -Xcompiler=${flag})
    endif()
  endforeach()
  foreach(folder ${STRETTO_CUDA_INCLUDES})
    list(APPEND flags -isystem ${folder})
  endforeach()
  set(${out} ${flags} PARENT_SCOPE)
endfunction()

# stretto_compile_cuda(<out> FILES <.cu>... INCLUDES <folder>...): sets `out` to the object files. Beside each stands
# <object>.ptxas, what ptxas said about every kernel's registers and stack. `out` is given to a target as sources.
function(stretto_compile_cuda out)
  cmake_parse_arguments(PARSE_ARGV 1 ARG "" "" "FILES;INCLUDES")
  stretto_nvcc_flags(flags)
  foreach(folder ${ARG_INCLUDES})
    list(APPEND flags -I ${folder})
  endforeach()
  set(objects)
  foreach(file ${ARG_FILES})
    file(RELATIVE_PATH name ${PROJECT_SOURCE_DIR} ${file})
    set(object ${PROJECT_BINARY_DIR}/cuda/${name}.o)
    cmake_path(GET object PARENT_PATH folder)
    file(MAKE_DIRECTORY ${folder})
    add_custom_command(
      OUTPUT ${object} BYPRODUCTS ${object}.ptxas
      COMMAND sh ${STRETTO_CUDA_KEEP_OUTPUT} ${object}.ptxas ${CMAKE_CXX_COMPILER_LAUNCHER}
              ${STRETTO_NVCC} ${flags} -MD -MF ${object}.d -c ${file} -o ${object}
      DEPENDS ${file} ${STRETTO_CUDA_KEEP_OUTPUT} ${STRETTO_NVCC} DEPFILE ${object}.d
      COMMENT "Building CUDA object cuda/${name}.o" VERBATIM)
    list(APPEND objects ${object})
  endforeach()
  if(objects)
    set_source_files_properties(${objects} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
  endif()
  set(${out} ${objects} PARENT_SCOPE)
endfunction()

# Adds the kernels and CUDA's runtime, linked in, to the object set. An object library takes no foreign objects of its
# own, so that whatever is linked from it lists them; the target in between keeps one rule from running twice.
function(stretto_add_kernels target)
  file(GLOB_RECURSE files CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/*.cu)
  stretto_compile_cuda(objects FILES ${files} INCLUDES ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
  if(objects)
    add_custom_target(stretto_kernels DEPENDS ${objects})
    add_dependencies(${target} stretto_kernels)
    target_sources(${target} INTERFACE ${objects})
  endif()
  target_link_libraries(${target} PUBLIC ${STRETTO_CUDART} rt Threads::Threads ${CMAKE_DL_LIBS})
endfunction()
