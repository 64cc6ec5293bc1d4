# samara_find_torch(FOLDER): the target `samara_torch` and Torch_VERSION, from the Python package torch in FOLDER.
#
# A package with CUDA on a machine with the CUDA toolkit is found by its own TorchConfig.cmake. Without the toolkit that file
# stops with an error: there, and with a package without CUDA, `samara_torch` has the libraries for CPUs and the headers.
#
# A macro, since TorchConfig.cmake enables a language, which no function may.
macro(samara_find_torch folder)
  file(STRINGS ${folder}/version.py samara_torch_line REGEX "^__version__")
  string(REGEX MATCH "[0-9]+\\.[0-9]+\\.[0-9]+" Torch_VERSION "${samara_torch_line}")
  if(NOT TARGET samara_torch)
    add_library(samara_torch INTERFACE IMPORTED GLOBAL)
    if(EXISTS ${folder}/lib/libtorch_cuda.so)
      set(CMAKE_FIND_PACKAGE_TARGETS_GLOBAL ON)  # other folders link the libraries and need the toolkit's targets
      find_package(CUDAToolkit QUIET)
      if(NOT CUDAToolkit_FOUND)
        message(STATUS "torch ${Torch_VERSION} has CUDA, but there is no CUDA toolkit (nvcc): building for CPUs")
      endif()
    endif()
    if(EXISTS ${folder}/lib/libtorch_cuda.so AND CUDAToolkit_FOUND)
      find_package(Torch REQUIRED CONFIG PATHS ${folder}/share/cmake/Torch NO_DEFAULT_PATH)
      target_link_libraries(samara_torch INTERFACE torch)
    else()
      target_include_directories(samara_torch SYSTEM INTERFACE ${folder}/include ${folder}/include/torch/csrc/api/include)
      # as TorchConfig.cmake
      target_compile_definitions(samara_torch INTERFACE USE_DISTRIBUTED USE_RPC USE_TENSORPIPE USE_C10D_GLOO)
      # its kernels register themselves: nothing names them
      target_link_libraries(samara_torch INTERFACE "-Wl,--no-as-needed,\"${folder}/lib/libtorch_cpu.so\" -Wl,--as-needed"
                            ${folder}/lib/libc10.so)
    endif()
  endif()
endmacro()
