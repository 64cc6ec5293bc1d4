#include "env/mujoco/tasks.h"

#include <cmath>

#include "core/math.h"

namespace samara {
namespace {

using Model = const mjModel&;
using Data = const mjData&;
using Numbers = std::span<const mjtNum>;

// Views of the simulator's arrays, `skip` numbers left out in front.
Numbers View(const mjtNum* array, int64_t size, int64_t skip = 0) {
  return {array + skip, static_cast<size_t>(size - skip)};
}
Numbers Positions(Model m, Data d, int skip) { return View(d.qpos, m.nq, skip); }
Numbers Speeds(Model m, Data d) { return View(d.qvel, m.nv); }
// Force and torque on every body from outside, contacts included; body 0 is the world.
Numbers OuterForces(Model m, Data d, int skip = 0) { return View(d.cfrc_ext, 6 * m.nbody, skip); }

double SumOfSquares(Numbers values, double limit = HUGE_VAL) {
  double sum = 0;
  for (const mjtNum v : values) {
    const mjtNum clipped = std::clamp<mjtNum>(v, -limit, limit);
    sum += clipped * clipped;
  }
  return sum;
}
double ControlCost(Model m, Data d, double weight) {
  return weight * SumOfSquares(View(d.ctrl, m.nu));
}

bool Inside(double value, double low, double high) { return low < value && value < high; }
bool AllFinite(Numbers values) {
  return std::ranges::all_of(values, [](mjtNum v) { return std::isfinite(v); });
}

double RootPosition(Model, Data d) { return d.qpos[0]; }
// Position of body 1, the torso; it lags one physics step behind qpos.
double TorsoPosition(Model, Data d) { return d.xpos[3]; }
double MassCentre(Model m, Data d) {
  double moment = 0, mass = 0;
  for (int body = 0; body < m.nbody; ++body) {
    moment += m.body_mass[body] * d.xipos[3 * body];
    mass += m.body_mass[body];
  }
  return moment / mass;
}

double Distance(Data d, int body, int other) {
  double sum = 0;
  for (int axis = 0; axis < 3; ++axis) {
    const double difference = d.xpos[3 * body + axis] - d.xpos[3 * other + axis];
    sum += difference * difference;
  }
  return std::sqrt(sum);
}

// -- observations shared by several tasks

template <int skip>
void ObserveState(Model m, Data d, ObservationWriter& out) {
  out.Add(Positions(m, d, skip));
  out.Add(Speeds(m, d));
}

void ObserveWalker(Model m, Data d, ObservationWriter& out) {
  out.Add(Positions(m, d, 1));
  out.AddClipped(Speeds(m, d), 10);
}

void ObserveHumanoid(Model m, Data d, ObservationWriter& out) {
  ObserveState<2>(m, d, out);
  out.Add(View(d.cinert, 10 * m.nbody, 10));
  out.Add(View(d.cvel, 6 * m.nbody, 6));
  out.Add(View(d.qfrc_actuator, m.nv, 6));
  out.Add(OuterForces(m, d, 6));
}
double HumanoidImpact(Model m, Data d) {
  return std::min(5e-7 * SumOfSquares(OuterForces(m, d)), 10.0);
}

// -- one block per task

Judgement JudgeHalfCheetah(Model m, Data d, double velocity) {
  return {velocity - ControlCost(m, d, 0.1), false};
}

Judgement JudgeHopper(Model m, Data d, double velocity) {
  bool healthy = d.qpos[1] > 0.7 && Inside(d.qpos[2], -0.2, 0.2);
  for (const mjtNum v : Positions(m, d, 2)) healthy &= Inside(v, -100, 100);
  for (const mjtNum v : Speeds(m, d)) healthy &= Inside(v, -100, 100);
  return {velocity + healthy - ControlCost(m, d, 1e-3), !healthy};
}

Judgement JudgeWalker(Model m, Data d, double velocity) {
  const bool healthy = Inside(d.qpos[1], 0.8, 2) && Inside(d.qpos[2], -1, 1);
  return {velocity + healthy - ControlCost(m, d, 1e-3), !healthy};
}

void ObserveAnt(Model m, Data d, ObservationWriter& out) {
  ObserveState<2>(m, d, out);
  out.AddClipped(OuterForces(m, d, 6), 1);
}
Judgement JudgeAnt(Model m, Data d, double velocity) {
  const bool healthy = AllFinite(Positions(m, d, 0)) && AllFinite(Speeds(m, d)) &&
                       0.2 <= d.qpos[2] && d.qpos[2] <= 1;
  const double contact = 5e-4 * SumOfSquares(OuterForces(m, d), 1);
  return {velocity + healthy - (ControlCost(m, d, 0.5) + contact), !healthy};
}

Judgement JudgeHumanoid(Model m, Data d, double velocity) {
  const bool healthy = Inside(d.qpos[2], 1, 2);
  const double cost = ControlCost(m, d, 0.1) + HumanoidImpact(m, d);
  return {1.25 * velocity + 5.0 * healthy - cost, !healthy};
}

Judgement JudgeStandup(Model m, Data d, double) {
  const double up = d.qpos[2] / m.opt.timestep;
  return {up - ControlCost(m, d, 0.1) - HumanoidImpact(m, d) + 1, false};
}

Judgement JudgeSwimmer(Model m, Data d, double velocity) {
  return {velocity - ControlCost(m, d, 1e-4), false};
}

Judgement JudgeInvertedPendulum(Model m, Data d, double) {
  const bool healthy =
      AllFinite(Positions(m, d, 0)) && AllFinite(Speeds(m, d)) && std::abs(d.qpos[1]) <= 0.2;
  return {healthy ? 1.0 : 0.0, !healthy};
}

void ObserveDoublePendulum(Model m, Data d, ObservationWriter& out) {
  out.Add(d.qpos[0]);
  out.Add(Sin(d.qpos[1]));
  out.Add(Sin(d.qpos[2]));
  out.Add(Cos(d.qpos[1]));
  out.Add(Cos(d.qpos[2]));
  out.AddClipped(Speeds(m, d), 10);
  out.AddClipped(View(d.qfrc_constraint, 1), 10);
}
Judgement JudgeDoublePendulum(Model, Data d, double) {
  const double x = d.site_xpos[0], y = d.site_xpos[2];  // site 0: the tip
  const double v1 = d.qvel[1], v2 = d.qvel[2];
  const bool fallen = y <= 1;
  const double distance = 0.01 * (x * x) + (y - 2) * (y - 2);
  const double speed = 1e-3 * (v1 * v1) + 5e-3 * (v2 * v2);
  return {(fallen ? 0.0 : 10.0) - distance - speed, fallen};
}

// Draws points of a rectangle until one is accepted; draws below 1000 are other noise.
template <typename Accept>
void DrawPoint(const CounterRng& rng, double x_low, double x_high, double y_low, double y_high,
               std::span<double> point, Accept accept) {
  for (uint64_t index = 1000;; index += 2) {
    point[0] = x_low + (x_high - x_low) * rng.Uniform(index);
    point[1] = y_low + (y_high - y_low) * rng.Uniform(index + 1);
    if (accept(std::sqrt(point[0] * point[0] + point[1] * point[1]))) return;
  }
}

// reacher.xml: joints 0, 1 of the arm, 2, 3 of the target; bodies 3 fingertip, 4 target
void DrawReacher(const CounterRng& rng, std::span<double> qpos, std::span<double> qvel) {
  for (size_t i = 0; i < 2; ++i) {
    qpos[i] += -0.1 + 0.2 * rng.Uniform(i);
    qvel[i] += -0.005 + 0.01 * rng.Uniform(4 + i);
  }
  DrawPoint(rng, -0.2, 0.2, -0.2, 0.2, qpos.last(2), [](double r) { return r < 0.2; });
}
void ObserveReacher(Model, Data d, ObservationWriter& out) {
  for (const int i : {0, 1}) out.Add(Cos(d.qpos[i]));
  for (const int i : {0, 1}) out.Add(Sin(d.qpos[i]));
  out.Add(View(d.qpos, 4, 2));
  out.Add(View(d.qvel, 2));
  for (const int axis : {0, 1}) out.Add(d.xpos[3 * 3 + axis] - d.xpos[3 * 4 + axis]);
}
void ObserveReacherGoal(Model, Data d, ObservationWriter& out) {
  for (const int i : {0, 1}) out.Add(Cos(d.qpos[i]));
  for (const int i : {0, 1}) out.Add(Sin(d.qpos[i]));
  out.Add(View(d.qvel, 2));
  for (const int body : {3, 4}) out.Add(View(d.xpos + 3 * body, 2));
}
Judgement JudgeReacher(Model m, Data d, double) {
  return {-Distance(d, 3, 4) - ControlCost(m, d, 1), false};
}

// pusher_v5.xml: seven joints of the arm, then x and y of object and goal
constexpr int kTip = 10, kObject = 11, kGoal = 12;
void DrawPusher(const CounterRng& rng, std::span<double> qpos, std::span<double> qvel) {
  for (size_t i = 0; i < 7; ++i) qvel[i] += -0.005 + 0.01 * rng.Uniform(i);
  DrawPoint(rng, -0.3, 0, -0.2, 0.2, qpos.subspan(7, 2), [](double r) { return r > 0.17; });
  qpos[9] = qpos[10] = 0;
}
void ObservePusher(Model, Data d, ObservationWriter& out) {
  out.Add(View(d.qpos, 7));
  out.Add(View(d.qvel, 7));
  for (const int body : {kTip, kObject, kGoal}) out.Add(View(d.xpos + 3 * body, 3));
}
Judgement JudgePusher(Model m, Data d, double) {
  const double reward =
      -Distance(d, kObject, kGoal) - ControlCost(m, d, 0.1) - 0.5 * Distance(d, kObject, kTip);
  return {reward, false};
}

// The deceptive trap of Conti et al. 2018 (arXiv 1712.06560): a cul-de-sac in front of the body,
// which opens towards it. Who only goes forward ends in it.
constexpr MujocoWall kHumanoidTrap[] = {
    {5.5, 0, 0.1, 1.5}, {4, 1.5, 1.5, 0.1}, {4, -1.5, 1.5, 0.1}};
// Twice as large: the Ant's legs reach 1.1 m from its middle, and the Swimmer is 3 m long.
constexpr MujocoWall kLargeTrap[] = {{11, 0, 0.2, 3}, {8, 3, 3, 0.2}, {8, -3, 3, 0.2}};

// Metres that the torso came forward: an episode's return is the way from its start.
constexpr int kTrapFrameSkip = 5, kSwimmerFrameSkip = 4;
// Steps of an episode. Bodies learn no more speed than it takes to reach the end of the trap in
// time, so that with half as many steps the way around it would not pay.
constexpr int64_t kAntTrapSteps = 1000, kSwimmerTrapSteps = 2000;
double Progress(Model m, double velocity, int frame_skip) {
  return velocity * m.opt.timestep * frame_skip;
}
Judgement JudgeHumanoidTrap(Model m, Data d, double velocity) {
  return {Progress(m, velocity, kTrapFrameSkip), !Inside(d.qpos[2], 1, 2)};
}
Judgement JudgeAntTrap(Model m, Data d, double velocity) {
  return {Progress(m, velocity, kTrapFrameSkip), JudgeAnt(m, d, velocity).terminated};
}
Judgement JudgeSwimmerTrap(Model m, Data, double velocity) {
  return {Progress(m, velocity, kSwimmerFrameSkip), false};
}

constexpr std::string_view kAntXml = "ant.xml",
                           kAntHash =
                               "cd5f83ef0ea35b0969e65d360c5bacd5b74ccaef6b27e4433b5168c605e3e2be",
                           kHumanoidXml = "humanoid.xml",
                           kHumanoidHash =
                               "85816f372c826d2094b4a598918233bd9c5843b2439119eece2733bdc2e0d073",
                           kReacherHash =
                               "3fabc64fc738326485a8231a9a649f784090a0c3d8215f8d2ccd6038b8e60cc4",
                           kSwimmerXml = "swimmer.xml",
                           kSwimmerHash =
                               "25b0d46bf5522920fea6a579353aee39d391ad9e2a0574b53f83704c11b21b12";

constexpr MujocoTask kTasks[] = {
    {"HalfCheetah-v5", "half_cheetah.xml",
     "11797a5d69e8ac955e89ca6fdd3a0087f1c990094fda401ac51420de1b6c5494", 17, 5, 1000, 0.1, 0.1,
     true, nullptr, RootPosition, ObserveState<1>, JudgeHalfCheetah, 1},
    {"Hopper-v5", "hopper.xml", "3ce93a055ffdcd83c0c701d2400768e40d2cbb9532f3c4ae33377c27f8b39f9e",
     11, 4, 1000, 0.005, 0.005, false, nullptr, RootPosition, ObserveWalker, JudgeHopper, 1},
    {"Walker2d-v5", "walker2d_v5.xml",
     "6bed53a6cc3ca73c4fe8ac3486d3b4228927264a6454f4ef16d3eed3c58bc09d", 17, 4, 1000, 0.005, 0.005,
     false, nullptr, RootPosition, ObserveWalker, JudgeWalker, 1},
    {"Ant-v5", kAntXml, kAntHash, 105, 5, 1000, 0.1, 0.1, true, nullptr, TorsoPosition, ObserveAnt,
     JudgeAnt, 2},
    {"Humanoid-v5", kHumanoidXml, kHumanoidHash, 348, 5, 1000, 0.01, 0.01, false, nullptr,
     MassCentre, ObserveHumanoid, JudgeHumanoid, 2},
    {"HumanoidStandup-v5", "humanoidstandup.xml",
     "9f72a3c4ef956d0d8b1fb555a6ae1a5c22334c5c58cf814ef987ea4d3880e8fc", 348, 5, 1000, 0.01, 0.01,
     false, nullptr, nullptr, ObserveHumanoid, JudgeStandup, 2},
    {"Swimmer-v5",
     kSwimmerXml,
     kSwimmerHash,
     8,
     kSwimmerFrameSkip,
     1000,
     0.1,
     0.1,
     false,
     nullptr,
     RootPosition,
     ObserveState<2>,
     JudgeSwimmer,
     2,
     {},
     true},
    {"Reacher-v5",
     "reacher.xml",
     kReacherHash,
     10,
     2,
     50,
     0,
     0,
     false,
     DrawReacher,
     nullptr,
     ObserveReacher,
     JudgeReacher,
     0,
     {},
     true},
    {"Pusher-v5",
     "pusher_v5.xml",
     "3c9a717f6d2cecd555ab9b78694dba71019fa233230c68c8197ebb07d6713879",
     23,
     5,
     100,
     0,
     0,
     false,
     DrawPusher,
     nullptr,
     ObservePusher,
     JudgePusher,
     0,
     {},
     true},
    {"InvertedPendulum-v5", "inverted_pendulum.xml",
     "80910a9af85cd47072be82d6f92c5e6a115d0eecc3eb464e58542b285c89fb7f", 4, 2, 1000, 0.01, 0.01,
     false, nullptr, nullptr, ObserveState<0>, JudgeInvertedPendulum},
    {"InvertedDoublePendulum-v5", "inverted_double_pendulum.xml",
     "2b4eadf03bd79a8772abd4c1a626b5755747f841801a694ea9528cc49211ba46", 9, 5, 1000, 0.1, 0.1, true,
     nullptr, nullptr, ObserveDoublePendulum, JudgeDoublePendulum},
    {.id = "ReacherGoal",
     .xml = "reacher.xml",
     .sha256 = kReacherHash,
     .observations = 10,
     .frame_skip = 2,
     .steps_max = 50,
     .position_noise = 0,
     .speed_noise = 0,
     .speed_normal = false,
     .draw = DrawReacher,
     .position = nullptr,
     .observe = ObserveReacherGoal,
     .judge = nullptr,
     .above = true,
     .goal = {.size = 2, .threshold = 0.02}},
    {"HumanoidTrap", kHumanoidXml, kHumanoidHash, 348, kTrapFrameSkip, 1000, 0.01, 0.01, false,
     nullptr, RootPosition, ObserveHumanoid, JudgeHumanoidTrap, 2, kHumanoidTrap, true},
    {"AntTrap", kAntXml, kAntHash, 27, kTrapFrameSkip, kAntTrapSteps, 0.1, 0.1, true, nullptr,
     RootPosition, ObserveState<2>, JudgeAntTrap, 2, kLargeTrap, true, true},
    {"SwimmerTrap", kSwimmerXml, kSwimmerHash, 8, kSwimmerFrameSkip, kSwimmerTrapSteps, 0.1, 0.1,
     false, nullptr, RootPosition, ObserveState<2>, JudgeSwimmerTrap, 2, kLargeTrap, true, true,
     true},
};

}  // namespace

std::span<const MujocoTask> MujocoTasks() { return kTasks; }

}  // namespace samara
