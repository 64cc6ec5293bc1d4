# samara_find_torch(FOLDER): the target `torch` and Torch_VERSION, from the Python package torch in FOLDER.
#
# A package with CUDA, beside a CUDA toolkit, is found by its own TorchConfig.cmake. That one stops where the toolkit is
# missing, as it is with the default package of most machines: there, and with a package without CUDA, `torch` is the libraries
# for CPUs and the headers.
function(samara_find_torch folder)
  file(STRINGS ${folder}/version.py version REGEX "^__version__")
  string(REGEX MATCH "[0-9]+\\.[0-9]+\\.[0-9]+" version "${version}")
  set(Torch_VERSION ${version} PARENT_SCOPE)
  if(TARGET torch)
    return()
  endif()
  if(EXISTS ${folder}/lib/libtorch_cuda.so)
    find_package(CUDAToolkit QUIET)
    if(CUDAToolkit_FOUND)
      set(CMAKE_FIND_PACKAGE_TARGETS_GLOBAL ON)  # whoever links the libraries needs its targets
      find_package(Torch REQUIRED CONFIG PATHS ${folder}/share/cmake/Torch NO_DEFAULT_PATH)
      return()
    endif()
    message(STATUS "torch ${version} has CUDA, but there is no CUDA toolkit (nvcc): building for CPUs")
  endif()
  add_library(torch INTERFACE IMPORTED GLOBAL)
  target_include_directories(torch SYSTEM INTERFACE ${folder}/include ${folder}/include/torch/csrc/api/include)
  # as TorchConfig.cmake
  target_compile_definitions(torch INTERFACE USE_DISTRIBUTED USE_RPC USE_TENSORPIPE USE_C10D_GLOO)
  # its kernels register themselves: nothing names them
  target_link_libraries(torch INTERFACE "-Wl,--no-as-needed,\"${folder}/lib/libtorch_cpu.so\" -Wl,--as-needed"
                        ${folder}/lib/libc10.so)
endfunction()
