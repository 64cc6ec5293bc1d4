# `cmake --install build --prefix X`: headers, libraries and a package, so that another project does
#   find_package(samara REQUIRED)
#   target_link_libraries(app samara::replica)
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/samara)
set_target_properties(samara_replica_torch PROPERTIES EXPORT_NAME replica)
target_compile_features(samara_replica_torch PUBLIC cxx_std_20)
install(TARGETS samara_core samara_nn samara_data samara_replica samara_replica_torch samara_nn_torch EXPORT samara
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY include/samara DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT samara NAMESPACE samara:: FILE samaraTargets.cmake DESTINATION ${package_folder})
set(SAMARA_NEEDS_JPEG ${JPEG_FOUND})
configure_package_config_file(cmake/samaraConfig.cmake.in samaraConfig.cmake INSTALL_DESTINATION ${package_folder})
write_basic_package_version_file(samaraConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/samaraConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/samaraConfigVersion.cmake
        DESTINATION ${package_folder})
