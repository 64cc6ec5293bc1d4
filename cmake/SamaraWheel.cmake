# Contents of a wheel, as the component `python` of `cmake --install`: the extensions (python/CMakeLists.txt), and in
# samara/bin/ the programs, which find torch in the folder of packages that holds both. Libraries of the system that other
# machines may lack are packed, in samara/lib/.

# samara_pack_library(FILE): under the name by which programs ask for it; static ones have none and need not be packed.
function(samara_pack_library file)
  execute_process(COMMAND ${CMAKE_READELF} -d ${file} OUTPUT_VARIABLE dynamic ERROR_QUIET)
  if(dynamic MATCHES "SONAME[^[]*\\[([^]]+)\\]")
    file(REAL_PATH ${file} file)
    install(FILES ${file} DESTINATION samara/lib RENAME ${CMAKE_MATCH_1} COMPONENT python EXCLUDE_FROM_ALL)
  endif()
endfunction()

function(samara_pack_libraries)
  get_target_property(configurations fmt::fmt IMPORTED_CONFIGURATIONS)
  list(GET configurations 0 configuration)
  get_target_property(fmt_library fmt::fmt IMPORTED_LOCATION_${configuration})
  samara_pack_library(${fmt_library})
  samara_pack_library(${LZ4_LIBRARY})
  if(JPEG_FOUND)
    samara_pack_library(${JPEG_LIBRARY_RELEASE})
  endif()
endfunction()

# Licences of what is packed and compiled in, where the system keeps them.
function(samara_pack_licences)
  foreach(package libfmt-dev liblz4-dev libjpeg62-turbo-dev libcli11-dev libtomlplusplus-dev nlohmann-json3-dev)
    install(FILES /usr/share/doc/${package}/copyright DESTINATION samara/licenses RENAME ${package} COMPONENT python
            OPTIONAL EXCLUDE_FROM_ALL)
  endforeach()
endfunction()

option(SAMARA_WHEEL_PROGRAMS "Programs in the wheel" ON)

# samara_wheel(): the target `samara_wheel`, everything that this machine can build. The programs need MuJoCo's headers.
function(samara_wheel)
  set(parts _native _engine)
  set_target_properties(_native _engine PROPERTIES INSTALL_RPATH "$ORIGIN/lib")
  if(SAMARA_TORCH)
    list(APPEND parts _replica)
    set_target_properties(_replica PROPERTIES INSTALL_RPATH "$ORIGIN/lib;$ORIGIN/../torch/lib")
  endif()
  if(MUJOCO_INCLUDE AND SAMARA_WHEEL_PROGRAMS)
    set(programs samara)
    set_target_properties(samara PROPERTIES INSTALL_RPATH "$ORIGIN/../lib")
    if(SAMARA_TORCH)
      list(APPEND programs samara-torch)
      set_target_properties(samara-torch PROPERTIES INSTALL_RPATH "$ORIGIN/../lib;$ORIGIN/../../torch/lib")
    endif()
    install(TARGETS ${programs} RUNTIME DESTINATION samara/bin COMPONENT python EXCLUDE_FROM_ALL)
    list(APPEND parts ${programs})
  endif()
  set_target_properties(${parts} PROPERTIES INSTALL_REMOVE_ENVIRONMENT_RPATH ON)  # that of LDFLAGS
  add_custom_target(samara_wheel DEPENDS ${parts})
  samara_pack_libraries()
  samara_pack_licences()
endfunction()
