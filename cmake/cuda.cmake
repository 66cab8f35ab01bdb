# REDLITE_CUDA: ON builds the CUDA back end and fails without nvcc; AUTO builds it where nvcc and a GPU are found, so
# that a first build elsewhere stays quick; OFF leaves it out.
set(REDLITE_CUDA AUTO CACHE STRING "Build the CUDA back end: AUTO, ON or OFF")
# Machine code for Hopper, and PTX that the driver compiles for other GPUs from compute capability 8.0 on.
set(REDLITE_NVCC_TARGETS
  "-gencode=arch=compute_90a,code=sm_90a;-gencode=arch=compute_80,code=compute_80"
  CACHE STRING "What nvcc generates code for")

set(REDLITE_HAVE_CUDA OFF)
if(REDLITE_CUDA)
  find_program(REDLITE_NVCC nvcc PATHS /usr/local/cuda/bin)
  if(REDLITE_CUDA STREQUAL "AUTO")
    if(REDLITE_NVCC AND EXISTS /dev/nvidiactl)
      set(REDLITE_HAVE_CUDA ON)
    endif()
  elseif(REDLITE_NVCC)
    set(REDLITE_HAVE_CUDA ON)
  else()
    message(FATAL_ERROR "REDLITE_CUDA=ON, but there is no nvcc: install CUDA 13 or put its bin folder on the PATH")
  endif()
endif()
if(NOT REDLITE_HAVE_CUDA)
  return()
endif()

# Where the toolkit lies only nvcc itself knows: the one on the PATH may be a link or a script that calls another.
execute_process(COMMAND ${REDLITE_NVCC} --dryrun -x cu -c /dev/null -o /dev/null
  OUTPUT_VARIABLE dry_run ERROR_VARIABLE dry_run)
if(dry_run MATCHES "TOP=([^\r\n]+)")
  get_filename_component(cuda_root ${CMAKE_MATCH_1} REALPATH)
else()
  set(cuda_root "an unknown folder (nvcc --dryrun names no TOP)")
endif()
find_path(REDLITE_CUDA_INCLUDE cuda_runtime_api.h
  HINTS ${cuda_root}/include ${cuda_root}/targets/x86_64-linux/include)
find_library(REDLITE_CUDART libcudart_static.a
  HINTS ${cuda_root}/lib64 ${cuda_root}/lib ${cuda_root}/targets/x86_64-linux/lib)
if(NOT REDLITE_CUDA_INCLUDE OR NOT REDLITE_CUDART)
  set(missing "${REDLITE_NVCC} is there, but its cuda_runtime_api.h or libcudart_static.a is not in its toolkit, ${cuda_root}")
  if(REDLITE_CUDA STREQUAL "AUTO")
    message(WARNING "Without the CUDA back end: ${missing}")
    set(REDLITE_HAVE_CUDA OFF)
    return()
  endif()
  message(FATAL_ERROR "${missing}: install the whole toolkit, or configure with -DREDLITE_CUDA=OFF")
endif()
# The runtime is linked statically and opens the driver only when it is used.
add_library(redlite_cudart INTERFACE)
target_include_directories(redlite_cudart SYSTEM INTERFACE ${REDLITE_CUDA_INCLUDE})
target_link_libraries(redlite_cudart INTERFACE ${REDLITE_CUDART} Threads::Threads ${CMAKE_DL_LIBS} rt)

# redlite_nvcc(out kernels/a.cc ...): compiles sources that g++ compiles, too, as CUDA, and sets `out` to the objects.
# nvcc is called by name because CMake, as Debian has it, knows no C++20 for CUDA. Nothing is contracted, as
# everywhere (docs/architecture.md).
function(redlite_nvcc out)
  set(objects)
  foreach(source ${ARGN})
    set(object ${CMAKE_CURRENT_BINARY_DIR}/cuda/${source}.o)
    get_filename_component(folder ${object} DIRECTORY)
    file(MAKE_DIRECTORY ${folder})
    set(host_compiler)
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
      set(host_compiler -ccbin ${CMAKE_CXX_COMPILER})
    endif()
    add_custom_command(
      OUTPUT ${object}
      COMMAND ${CMAKE_CXX_COMPILER_LAUNCHER} ${REDLITE_NVCC} ${host_compiler} -x cu -std=c++20 -O3 -DNDEBUG
        ${REDLITE_NVCC_TARGETS} -fmad=false --expt-relaxed-constexpr -DREDLITE_CUDA -I${PROJECT_SOURCE_DIR}/src
        -Xcompiler=-fPIC -Xptxas=--warn-on-spills -MD -MF ${object}.d
        -c ${CMAKE_CURRENT_SOURCE_DIR}/${source} -o ${object}
      DEPENDS ${source} DEPFILE ${object}.d
      COMMENT "nvcc ${source}" VERBATIM COMMAND_EXPAND_LISTS)
    list(APPEND objects ${object})
  endforeach()
  set(${out} ${objects} PARENT_SCOPE)
endfunction()
