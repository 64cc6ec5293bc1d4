#include "env/mujoco/environment.h"

#include <fmt/format.h>

#include "env/mujoco/library.h"
#include "env/mujoco/view.h"
#include "env/picture.h"
#include "env/simulated.h"

namespace samara {
namespace {

EnvironmentSpec MakeSpec(const MujocoTask& task, const MujocoModel& shared, bool render) {
  EnvironmentSpec spec;
  spec.id = fmt::format("native/{}", task.id);
  spec.version = shared.version;
  spec.observation = {DType::kFloat32, {task.observations}};
  spec.action.discrete = false;
  spec.action.n = shared.model->nu;
  for (int i = 0; i < shared.model->nu; ++i) {
    spec.action.low.push_back(static_cast<float>(shared.model->actuator_ctrlrange[2 * i]));
    spec.action.high.push_back(static_cast<float>(shared.model->actuator_ctrlrange[2 * i + 1]));
  }
  spec.goal = task.goal;
  spec.steps_max = task.steps_max;
  spec.position = task.plane > 0 ? 2 : 0;
  const double seconds = shared.model->opt.timestep * static_cast<double>(task.frame_skip);
  DeclarePictures(spec, render, kMujocoPictureHeight, kMujocoPictureWidth, 1 / seconds);
  return spec;
}

size_t StateVariables(const mjModel& model) { return static_cast<size_t>(model.nq + model.nv); }

class Mujoco final : public SimulatedEnvironment {
 public:
  Mujoco(const MujocoTask& task, std::shared_ptr<const MujocoModel> shared, bool render)
      : SimulatedEnvironment(MakeSpec(task, *shared, render), StateVariables(*shared->model)),
        task_(task),
        shared_(std::move(shared)),
        library_(shared_->library),
        model_(*shared_->model),
        data_(library_.make_data(&model_), library_.delete_data),
        seen_(static_cast<size_t>(task.observations)) {
    CHECK(data_ != nullptr) << "out of memory for " << task.id;
    reset_position_.assign(data_->qpos, data_->qpos + model_.nq);
  }

  std::vector<double> CurrentState() const override {
    std::vector<double> state(data_->qpos, data_->qpos + model_.nq);
    state.insert(state.end(), data_->qvel, data_->qvel + model_.nv);
    return state;
  }
  void Position(std::span<float> out) const override {
    if (task_.plane == 0) return;
    out[0] = static_cast<float>(data_->qpos[0]);
    out[1] = task_.plane == 2 ? static_cast<float>(data_->qpos[1]) : 0.0F;
  }
  bool Render(std::span<std::byte> pixels) override {
    if (spec().render_height == 0) return false;
    Picture picture(pixels, spec().render_height, spec().render_width);
    DrawMujoco(task_, model_, *data_, picture);
    return true;
  }

 private:
  void Draw(const CounterRng& rng, std::span<double> start) const override;
  void Place(std::span<const double> start) override;
  Outcome Advance(const Action& action) override;
  void Observe(std::span<float> observation) const override;
  std::vector<double> Save() const override;
  void Load(std::span<const double> state) override;
  Outcome JudgeGoal();
  double Rewarded() const { return task_.position ? task_.position(model_, *data_) : 0; }

  // constant after construction
  const MujocoTask& task_;
  const std::shared_ptr<const MujocoModel> shared_;
  const MujocoLibrary& library_;
  const mjModel& model_;
  std::vector<double> reset_position_;  // the model's own qpos; its qvel is zero
  // of the episode
  std::unique_ptr<mjData, decltype(&mj_deleteData)> data_;
  double position_ = 0;      // before the next action: for the Ant it is not a function of qpos
  std::vector<float> seen_;  // scratch: the observation that decides about a goal
};

void Mujoco::Draw(const CounterRng& rng, std::span<double> start) const {
  const auto qpos = start.first(reset_position_.size()), qvel = start.subspan(qpos.size());
  std::ranges::copy(reset_position_, qpos.begin());
  std::ranges::fill(qvel, 0.0);
  if (task_.draw != nullptr) return task_.draw(rng, qpos, qvel);
  const auto noise = [&](size_t index, double width) {
    return -width + 2 * width * rng.Uniform(index);
  };
  for (size_t i = 0; i < qpos.size(); ++i) qpos[i] += noise(i, task_.position_noise);
  for (size_t i = 0; i < qvel.size(); ++i)
    qvel[i] = task_.speed_normal ? task_.speed_noise * rng.Normal(i)
                                 : noise(qpos.size() + i, task_.speed_noise);
}

void Mujoco::Place(std::span<const double> start) {
  // a fallen body's contacts and warm start must not reach the next episode
  library_.reset_data(&model_, data_.get());
  std::ranges::copy(start.first(reset_position_.size()), data_->qpos);
  std::ranges::copy(start.subspan(reset_position_.size()), data_->qvel);
  library_.forward(&model_, data_.get());
  position_ = Rewarded();
}

SimulatedEnvironment::Outcome Mujoco::Advance(const Action& action) {
  for (int i = 0; i < model_.nu; ++i) {
    const mjtNum* range = model_.actuator_ctrlrange + 2 * i;
    data_->ctrl[i] = Rescale(action.values[static_cast<size_t>(i)], range[0], range[1]);
  }
  for (int64_t i = 0; i < task_.frame_skip; ++i) library_.step(&model_, data_.get());
  // without this the contact forces read zero
  library_.forces_after_constraints(&model_, data_.get());

  const double before = std::exchange(position_, Rewarded());
  const double velocity =
      (position_ - before) / (model_.opt.timestep * static_cast<double>(task_.frame_skip));
  if (task_.goal.size > 0) return JudgeGoal();
  const Judgement judgement = task_.judge(model_, *data_, velocity);
  return {judgement.reward, judgement.terminated};
}

SimulatedEnvironment::Outcome Mujoco::JudgeGoal() {
  Observe(seen_);
  const bool reached = task_.goal.Reached(seen_);
  return {reached ? task_.goal.reached : task_.goal.missed, reached && task_.goal.terminates};
}

void Mujoco::Observe(std::span<float> observation) const {
  ObservationWriter writer(observation);
  task_.observe(model_, *data_, writer);
  DCHECK(writer.used() == observation.size()) << task_.id;
}

// mjSTATE_INTEGRATION is all that mj_step reads; last comes position_.
std::vector<double> Mujoco::Save() const {
  std::vector<double> state(static_cast<size_t>(library_.state_size(&model_, mjSTATE_INTEGRATION)) +
                            1);
  library_.get_state(&model_, data_.get(), state.data(), mjSTATE_INTEGRATION);
  state.back() = position_;
  return state;
}

void Mujoco::Load(std::span<const double> state) {
  library_.reset_data(&model_, data_.get());
  library_.set_state(&model_, data_.get(), state.data(), mjSTATE_INTEGRATION);
  position_ = state.back();
}

}  // namespace

Result<EnvironmentFactory> MujocoEnvironment(const MujocoTask& task, bool render) {
  ASSIGN_OR_RETURN(const auto shared, LoadMujocoModel(task));
  return EnvironmentFactory([&task, shared, render]() -> Result<std::unique_ptr<Environment>> {
    return std::unique_ptr<Environment>(std::make_unique<Mujoco>(task, shared, render));
  });
}

}  // namespace samara
