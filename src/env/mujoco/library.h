// MuJoCo's C library as the `mujoco` wheel brings it: headers at build time, libmujoco.so opened at
// run time, so that samara builds, starts and serves everything else without it.
//
// Thread safety: a MujocoModel is constant after LoadMujocoModel and shared by any number of
// threads; each thread owns its mjData.
#pragma once

#include <mujoco/mujoco.h>

#include <memory>
#include <string>
#include <string_view>

#include "core/status.h"
#include "env/mujoco/tasks.h"

namespace samara {

// The entries of libmujoco that samara calls. Filled once, never unloaded.
struct MujocoLibrary {
  decltype(&mj_version) version;
  decltype(&mj_versionString) version_string;
  decltype(&mj_parseXMLString) parse;
  decltype(&mj_compile) compile;
  decltype(&mjs_getError) compile_error;
  decltype(&mj_deleteSpec) delete_spec;
  decltype(&mj_deleteModel) delete_model;
  decltype(&mj_makeData) make_data;
  decltype(&mj_deleteData) delete_data;
  decltype(&mj_resetData) reset_data;
  decltype(&mj_forward) forward;
  decltype(&mj_step) step;
  decltype(&mj_rnePostConstraint) forces_after_constraints;
  decltype(&mj_stateSize) state_size;
  decltype(&mj_getState) get_state;
  decltype(&mj_setState) set_state;
};

struct MujocoModel {
  MujocoLibrary library;
  std::unique_ptr<mjModel, decltype(&mj_deleteModel)> model;
  std::string version;  // "mujoco 4.0.0, hopper.xml 3ce93a055ffd": part of the run's identity
};

// The model of a task, compiled of the installed Gymnasium's description. kNoInput without .venv,
// package or library, or with another version of MuJoCo than the one built for; kBadData when the
// file's SHA-256 differs from the task's, since scores from another model are not comparable.
Result<std::shared_ptr<const MujocoModel>> LoadMujocoModel(const MujocoTask& task);

}  // namespace samara
