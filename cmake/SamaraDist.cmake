# Contents of an archive of scripts/dist, as two components of `cmake --install`: `dist` has the program, the Python package and its extensions
# in the order that they have in build/, `dist-torch` the program with torch. libexec/ stands for build/, and the shared libraries
# are to lie in lib/ next to it.
set(dist_programs samara)
if(SAMARA_TORCH)
  list(APPEND dist_programs samara-torch)
endif()
foreach(program ${dist_programs})
  set_target_properties(${program} PROPERTIES INSTALL_RPATH "$ORIGIN/../lib")
endforeach()
install(TARGETS samara RUNTIME DESTINATION libexec COMPONENT dist EXCLUDE_FROM_ALL)
if(SAMARA_TORCH)
  install(TARGETS samara-torch RUNTIME DESTINATION libexec COMPONENT dist-torch EXCLUDE_FROM_ALL)
endif()

if(SAMARA_PYTHON)
  # the replicator for torch's users belongs to an environment with torch: `pip install .` makes it
  install(DIRECTORY ${CMAKE_SOURCE_DIR}/python/samara DESTINATION libexec/python COMPONENT dist EXCLUDE_FROM_ALL
          PATTERN "__pycache__" EXCLUDE PATTERN "*.so" EXCLUDE PATTERN "replica" EXCLUDE)
  foreach(extension _native _engine)
    set_target_properties(${extension} PROPERTIES INSTALL_RPATH "$ORIGIN/../../../lib")
    list(APPEND dist_programs ${extension})
    install(TARGETS ${extension} LIBRARY DESTINATION libexec/python/samara COMPONENT dist EXCLUDE_FROM_ALL)
  endforeach()
endif()
# DT_RPATH instead of DT_RUNPATH: libraries find their own libraries with it too
foreach(program ${dist_programs})
  target_link_options(${program} PRIVATE -Wl,--disable-new-dtags)
  set_target_properties(${program} PROPERTIES INSTALL_REMOVE_ENVIRONMENT_RPATH ON)  # that of LDFLAGS
endforeach()

install(FILES LICENSE LICENSE-MIT DESTINATION . COMPONENT dist EXCLUDE_FROM_ALL)
install(DIRECTORY presets DESTINATION share/samara COMPONENT dist EXCLUDE_FROM_ALL)
