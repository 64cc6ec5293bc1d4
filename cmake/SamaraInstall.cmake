# `cmake --install build --prefix X`: headers, libraries and a package, so that another project does
#   find_package(samara REQUIRED COMPONENTS evolution)
#   target_link_libraries(app samara::evolution)
# samara::evolution   the command `samara` as a library, for evolution algorithms and environments of one's own; without torch
# samara::learning    the same with torch, for learning algorithms too
# samara::replica     the replicator
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/samara)

# the headers of src/ are installed apart from the public ones, which include them; only the public ones are stable
set(internal_headers ${CMAKE_INSTALL_INCLUDEDIR}/samara/internal)
target_include_directories(samara_core PUBLIC $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}> $<INSTALL_INTERFACE:${internal_headers}>)
target_compile_features(samara_core PUBLIC cxx_std_20)
install(DIRECTORY include/samara DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(DIRECTORY src/ DESTINATION ${internal_headers} FILES_MATCHING PATTERN "*.h" PATTERN "*_test_util.h" EXCLUDE)

add_library(samara_evolution INTERFACE)
target_link_libraries(samara_evolution INTERFACE samara_cli samara_no_agents samara_no_ranks)
set_target_properties(samara_evolution PROPERTIES EXPORT_NAME evolution)
set(torch_free samara_core samara_data samara_nn samara_atari_preset samara_env samara_fleet samara_remote samara_remote_grpc samara_noise
  samara_policy samara_nn_device samara_evo samara_evo_device samara_rl samara_replica samara_config samara_storage samara_evolution_journal samara_view samara_report samara_play samara_train
  samara_bench_grpc samara_bench_device samara_bench samara_cli samara_no_agents samara_no_ranks samara_evolution)
if(TARGET samara_grpc)
  list(APPEND torch_free samara_grpc)
endif()
install(TARGETS ${torch_free} EXPORT samara ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT samara NAMESPACE samara:: FILE samaraTargets.cmake DESTINATION ${package_folder})

if(SAMARA_TORCH)
  add_library(samara_learning INTERFACE)
  target_link_libraries(samara_learning INTERFACE samara_cli samara_rl_torch samara_replica_torch)
  set_target_properties(samara_learning PROPERTIES EXPORT_NAME learning)
  set_target_properties(samara_replica_torch PROPERTIES EXPORT_NAME replica)
  install(TARGETS samara_nn_torch samara_rl_torch samara_replica_torch samara_learning EXPORT samara_torch
          ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(EXPORT samara_torch NAMESPACE samara:: FILE samaraTorchTargets.cmake DESTINATION ${package_folder})
  install(FILES cmake/SamaraTorch.cmake DESTINATION ${package_folder})
endif()

set(SAMARA_NEEDS_JPEG ${JPEG_FOUND})
configure_package_config_file(cmake/samaraConfig.cmake.in samaraConfig.cmake INSTALL_DESTINATION ${package_folder})
write_basic_package_version_file(samaraConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/samaraConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/samaraConfigVersion.cmake
        cmake/FindLZ4.cmake DESTINATION ${package_folder})
