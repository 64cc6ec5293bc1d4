# samara_find_torch(FOLDER AUTO|ON|OFF): the target `samara_torch`, Torch_VERSION and Torch_CUDA, from the Python package
# torch in FOLDER.
#
# The libraries and headers are named here and not by the package's TorchConfig.cmake: with a package that has CUDA that file
# stops without the compiler nvcc, and with it on a CMake that does not know nvcc's C++20. Nothing here is compiled by nvcc.
#
# ON builds for GPUs with the CUDA build of torch, whose wheels bring the headers; OFF for CPUs only, which starts sooner; AUTO
# asks the environment variable SAMARA_CUDA, then whether this machine has NVIDIA's driver.
function(samara_find_torch folder cuda)
  file(STRINGS ${folder}/version.py line REGEX "^__version__")
  string(REGEX MATCH "[0-9]+\\.[0-9]+\\.[0-9]+" Torch_VERSION "${line}")
  set(Torch_VERSION ${Torch_VERSION} PARENT_SCOPE)
  if(cuda STREQUAL "AUTO")
    set(cuda OFF)
    if("$ENV{SAMARA_CUDA}" STREQUAL "1" OR EXISTS /proc/driver/nvidia/version OR EXISTS /dev/dxg)
      set(cuda ON)
    endif()
    if(EXISTS ${folder}/lib/libtorch_cuda.so AND NOT cuda)
      message(STATUS "torch ${Torch_VERSION} has CUDA, this machine no GPU: building for CPUs (-DSAMARA_CUDA=ON: for GPUs)")
    elseif(cuda AND NOT EXISTS ${folder}/lib/libtorch_cuda.so)
      message(STATUS "torch ${Torch_VERSION} has no CUDA: building for CPUs (SAMARA_CUDA=1 scripts/setup takes one that has)")
      set(cuda OFF)
    endif()
  endif()
  set(Torch_CUDA ${cuda} PARENT_SCOPE)
  if(TARGET samara_torch)
    return()
  endif()

  add_library(samara_torch INTERFACE IMPORTED GLOBAL)
  target_include_directories(samara_torch SYSTEM INTERFACE ${folder}/include ${folder}/include/torch/csrc/api/include)
  # as TorchConfig.cmake; the libraries' kernels register themselves: nothing names them
  target_compile_definitions(samara_torch INTERFACE USE_DISTRIBUTED USE_RPC USE_TENSORPIPE USE_C10D_GLOO)
  target_link_libraries(samara_torch INTERFACE "-Wl,--no-as-needed,\"${folder}/lib/libtorch_cpu.so\" -Wl,--as-needed"
                        ${folder}/lib/libc10.so)
  if(NOT cuda)
    return()
  endif()
  if(NOT EXISTS ${folder}/lib/libtorch_cuda.so)
    message(FATAL_ERROR "SAMARA_CUDA=ON, but torch ${Torch_VERSION} in ${folder} has no CUDA: repeat scripts/setup with SAMARA_CUDA=1")
  endif()
  file(GLOB wheels ${folder}/../nvidia/*/include)
  find_path(SAMARA_CUDA_INCLUDE cuda_runtime_api.h HINTS ${wheels} /usr/local/cuda/include)
  # what the runtime's headers include and some releases of its wheel leave to the compiler's and to CCCL's
  find_path(SAMARA_CUDA_CRT_INCLUDE crt/host_config.h HINTS ${wheels} /usr/local/cuda/include)
  find_path(SAMARA_CCCL_INCLUDE nv/target HINTS ${wheels} /usr/local/cuda/include PATH_SUFFIXES cccl)
  find_path(SAMARA_NCCL_INCLUDE nccl.h HINTS ${wheels} /usr/local/cuda/include)
  foreach(folder_of SAMARA_CUDA_INCLUDE SAMARA_CUDA_CRT_INCLUDE SAMARA_CCCL_INCLUDE SAMARA_NCCL_INCLUDE)
    if(NOT ${folder_of})
      message(FATAL_ERROR "torch ${Torch_VERSION} has CUDA, but the headers are neither in the wheels next to it nor in "
                          "/usr/local/cuda: set ${folder_of}, or SAMARA_CUDA=OFF")
    endif()
    target_include_directories(samara_torch SYSTEM INTERFACE ${${folder_of}})
  endforeach()
  target_compile_definitions(samara_torch INTERFACE USE_C10D_NCCL SAMARA_TORCH_GPUS)
  target_link_libraries(samara_torch INTERFACE "-Wl,--no-as-needed,\"${folder}/lib/libtorch_cuda.so\" -Wl,--as-needed"
                        ${folder}/lib/libc10_cuda.so)
endfunction()
