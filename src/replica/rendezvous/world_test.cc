#include "replica/rendezvous/world.h"

#include <gtest/gtest.h>

#include <map>

namespace samara::world_test {
namespace {

using Set = std::map<std::string, std::string>;

Result<World> Discover(const Set& variables, const WorldFlags& flags = {}) {
  return DiscoverWorld(
      [&](const std::string& name) -> std::optional<std::string> {
        const auto it = variables.find(name);
        return it == variables.end() ? std::nullopt : std::optional(it->second);
      },
      flags);
}

Set operator+(Set a, const Set& b) {
  for (const auto& [name, value] : b) a[name] = value;
  return a;
}
Set operator-(Set a, const std::string& name) {
  a.erase(name);
  return a;
}

// as the launchers set them
const Set kTorchrun = {{"RANK", "5"},
                       {"WORLD_SIZE", "8"},
                       {"LOCAL_RANK", "1"},
                       {"LOCAL_WORLD_SIZE", "4"},
                       {"GROUP_RANK", "1"},
                       {"MASTER_ADDR", "node7"},
                       {"MASTER_PORT", "29400"},
                       {"TORCHELASTIC_RESTART_COUNT", "2"},
                       {"TORCHELASTIC_RUN_ID", "none"},
                       {"TORCHELASTIC_USE_AGENT_STORE", "True"}};
const Set kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "3"},       {"OMPI_COMM_WORLD_SIZE", "4"},
                      {"OMPI_COMM_WORLD_LOCAL_RANK", "3"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                      {"PMIX_NAMESPACE", "2121531393"},    {"PMIX_RANK", "3"}};
const Set kMpich = {{"PMI_RANK", "1"},
                    {"PMI_SIZE", "2"},
                    {"MPI_LOCALRANKID", "1"},
                    {"MPI_LOCALNRANKS", "2"},
                    {"PMI_FD", "6"}};
const Set kSlurm = {
    {"SLURM_PROCID", "4"},  {"SLURM_NTASKS", "5"},         {"SLURM_LOCALID", "0"},
    {"SLURM_NODEID", "2"},  {"SLURM_JOB_ID", "4711"},      {"SLURM_JOB_NODELIST", "node[03-05,7]"},
    {"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "5"}, {"SLURM_TASKS_PER_NODE", "2(x2),1"}};
const Set kKubernetes = {
    {"JOB_COMPLETION_INDEX", "2"}, {"WORLD_SIZE", "3"}, {"MASTER_ADDR", "train-0.train"}};

struct Expected {
  const char* name;
  Set variables;
  const char* launcher;
  int rank, size, local_rank, local_size;
  const char* address;
  int port;  // -1: derived from the job
};

class WorldTest : public ::testing::TestWithParam<Expected> {};

TEST_P(WorldTest, IsFound) {
  const Expected& expected = GetParam();
  const Result<World> world = Discover(expected.variables);
  ASSERT_TRUE(world.ok()) << world.status().message();
  EXPECT_EQ(world->launcher, expected.launcher);
  EXPECT_EQ(world->rank, expected.rank);
  EXPECT_EQ(world->size, expected.size);
  EXPECT_EQ(world->local_rank, expected.local_rank);
  EXPECT_EQ(world->local_size, expected.local_size);
  EXPECT_EQ(world->address, expected.address);
  if (expected.port >= 0) {
    EXPECT_EQ(world->port, expected.port);
  } else {
    EXPECT_GE(world->port, 20'000);
    EXPECT_LT(world->port, 32'000);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Launchers, WorldTest,
    ::testing::Values(
        Expected{"None", {}, "none", 0, 1, 0, 1, "", 0},
        Expected{"Torchrun", kTorchrun, "torchrun", 5, 8, 1, 4, "node7", 29400},
        Expected{"OpenMpi", kOpenMpi, "Open MPI", 3, 4, 3, 4, "127.0.0.1", -1},
        Expected{"OpenMpiWithPort", kOpenMpi + Set{{"MASTER_PORT", "1234"}}, "Open MPI", 3, 4, 3, 4,
                 "127.0.0.1", 1234},
        Expected{"OpenMpiOnHosts",
                 kOpenMpi + Set{{"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                                {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                                {"MASTER_ADDR", "head"}},
                 "Open MPI", 3, 4, 1, 2, "head", -1},
        Expected{"Mpich", kMpich + Set{{"MASTER_PORT", "29500"}}, "MPICH", 1, 2, 1, 2, "127.0.0.1",
                 29500},
        Expected{"Slurm", kSlurm, "Slurm", 4, 5, 0, 1, "node03", -1},
        Expected{"SlurmMiddleNode",
                 kSlurm + Set{{"SLURM_PROCID", "3"}, {"SLURM_LOCALID", "1"}, {"SLURM_NODEID", "1"}},
                 "Slurm", 3, 5, 1, 2, "node03", -1},
        Expected{"SlurmStepOnFewerHosts", kSlurm + Set{{"SLURM_STEP_NODELIST", "node05,node7"}},
                 "Slurm", 4, 5, 0, 1, "node05", -1},
        // a step of one task, as an interactive shell has it
        Expected{"SlurmOneTask", kSlurm + Set{{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}},
                 "Slurm", 0, 1, 0, 1, "", 0},
        Expected{"SlurmBatchScript", kSlurm - "SLURM_STEP_ID", "none", 0, 1, 0, 1, "", 0},
        Expected{"SlurmInteractiveStep", kSlurm + Set{{"SLURM_STEP_ID", "4294967290"}}, "none", 0,
                 1, 0, 1, "", 0},
        Expected{"SlurmWithPmi", kSlurm + Set{{"PMI_RANK", "4"}, {"PMI_SIZE", "5"}}, "Slurm", 4, 5,
                 0, 1, "node03", -1},
        Expected{"SlurmWithExports",
                 kSlurm + Set{{"WORLD_SIZE", "5"}, {"MASTER_ADDR", "n1"}, {"MASTER_PORT", "9"}},
                 "Slurm", 4, 5, 0, 1, "n1", 9},
        Expected{"Kubernetes", kKubernetes, "Kubernetes", 2, 3, 0, 1, "train-0.train", 29500},
        Expected{"KubernetesApart", kKubernetes + Set{{"WORLD_SIZE", "1"}}, "Kubernetes", 0, 1, 0,
                 1, "", 0},
        // the inner launcher wins
        Expected{"TorchrunInSlurm", kTorchrun + kSlurm, "torchrun", 5, 8, 1, 4, "node7", 29400},
        Expected{"TorchrunInMpi", kTorchrun + kOpenMpi, "torchrun", 5, 8, 1, 4, "node7", 29400},
        Expected{"MpiInSlurm", kSlurm + kOpenMpi, "Open MPI", 3, 4, 3, 4, "127.0.0.1", -1},
        Expected{"MpichInSlurm", kSlurm + kMpich + Set{{"MASTER_PORT", "7"}}, "MPICH", 1, 2, 1, 2,
                 "127.0.0.1", 7},
        Expected{"SlurmInKubernetes", kSlurm + Set{{"JOB_COMPLETION_INDEX", "0"}}, "Slurm", 4, 5, 0,
                 1, "node03", -1},
        Expected{"OwnLauncher",
                 {{"RANK", "1"},
                  {"WORLD_SIZE", "2"},
                  {"LOCAL_RANK", "1"},
                  {"LOCAL_WORLD_SIZE", "2"},
                  {"MASTER_ADDR", "127.0.0.1"},
                  {"MASTER_PORT", "4000"},
                  {"SAMARA_LAUNCH", "1"}},
                 "samara launch",
                 1,
                 2,
                 1,
                 2,
                 "127.0.0.1",
                 4000},
        Expected{"ByHandOnOneHost",
                 {{"RANK", "1"},
                  {"WORLD_SIZE", "2"},
                  {"MASTER_ADDR", "localhost"},
                  {"MASTER_PORT", "4000"}},
                 "environment",
                 1,
                 2,
                 1,
                 2,
                 "localhost",
                 4000},
        Expected{
            "EmptyCountsAsUnset", {{"RANK", ""}, {"WORLD_SIZE", ""}}, "none", 0, 1, 0, 1, "", 0},
        Expected{"WorldOfOneIsAlone", {{"WORLD_SIZE", "1"}}, "none", 0, 1, 0, 1, "", 0}),
    [](const auto& test) { return std::string(test.param.name); });

struct Refused {
  const char* name;
  Set variables;
  const char* says;  // part of the message
};

class WorldRefusedTest : public ::testing::TestWithParam<Refused> {};

TEST_P(WorldRefusedTest, NamesTheVariable) {
  const Result<World> world = Discover(GetParam().variables);
  ASSERT_FALSE(world.ok()) << Describe(*world);
  EXPECT_EQ(world.status().code(), Code::kConfig);
  EXPECT_NE(world.status().message().find(GetParam().says), std::string::npos)
      << world.status().message();
  EXPECT_EQ(world.status().message().find('\n'), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(
    Sets, WorldRefusedTest,
    ::testing::Values(
        Refused{"NoSize", kTorchrun - "WORLD_SIZE", "WORLD_SIZE is not"},
        Refused{"NoRank", kTorchrun - "RANK", "RANK is not"},
        Refused{"NoAddress", kTorchrun - "MASTER_ADDR", "MASTER_ADDR is not"},
        Refused{"NoPort", kTorchrun - "MASTER_PORT", "MASTER_PORT is not"},
        Refused{"RankTooLarge", kTorchrun + Set{{"RANK", "8"}}, "RANK=8 with WORLD_SIZE=8"},
        Refused{"NegativeRank", kTorchrun + Set{{"RANK", "-1"}}, "RANK=-1"},
        Refused{"NoNumber", kTorchrun + Set{{"WORLD_SIZE", "8x"}}, "WORLD_SIZE=8x"},
        Refused{"HugeNumber", kTorchrun + Set{{"RANK", "99999999999999999999"}}, "RANK=9999"},
        Refused{"ControlCharacters", kTorchrun + Set{{"RANK", "1\n2"}}, "RANK=1\\x0a2"},
        Refused{"PortZero", kTorchrun + Set{{"MASTER_PORT", "0"}}, "MASTER_PORT=0"},
        Refused{"PortTooLarge", kTorchrun + Set{{"MASTER_PORT", "65536"}}, "MASTER_PORT=65536"},
        Refused{"LocalContradicts", kTorchrun + Set{{"LOCAL_RANK", "4"}}, "LOCAL_RANK=4"},
        Refused{"LocalLargerThanAll", kTorchrun + Set{{"LOCAL_WORLD_SIZE", "9"}},
                "LOCAL_WORLD_SIZE=9"},
        Refused{"OpenMpiSize", kOpenMpi - "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_SIZE is not"},
        Refused{"OpenMpiHosts", kOpenMpi + Set{{"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}},
                "MASTER_ADDR is not set: mpirun -x MASTER_ADDR"},
        Refused{"OpenMpiJob", kOpenMpi - "PMIX_NAMESPACE", "MASTER_PORT"},
        Refused{"MpichJob", kMpich, "-genv MASTER_PORT"},
        Refused{"MpichRank", kMpich - "PMI_RANK", "PMI_RANK is not"},
        Refused{"SlurmRank", kSlurm - "SLURM_PROCID", "SLURM_PROCID is not"},
        Refused{"SlurmSize", kSlurm - "SLURM_STEP_NUM_TASKS" - "SLURM_NTASKS",
                "SLURM_NTASKS is not"},
        Refused{"SlurmLocal", kSlurm - "SLURM_LOCALID", "SLURM_LOCALID is not"},
        Refused{"SlurmNodes", kSlurm - "SLURM_JOB_NODELIST", "SLURM_JOB_NODELIST is not"},
        Refused{"SlurmJob", kSlurm - "SLURM_JOB_ID", "SLURM_JOB_ID is not"},
        Refused{"SlurmNodesOpen", kSlurm + Set{{"SLURM_JOB_NODELIST", "node[03-05"}},
                "SLURM_JOB_NODELIST=node[03-05"},
        Refused{"SlurmNodesNoNumber", kSlurm + Set{{"SLURM_JOB_NODELIST", "node[a]"}},
                "SLURM_JOB_NODELIST"},
        Refused{"SlurmOtherSize", kSlurm + Set{{"WORLD_SIZE", "4"}}, "WORLD_SIZE=4, but Slurm"},
        Refused{"KubernetesSize", kKubernetes - "WORLD_SIZE", "WORLD_SIZE is not"},
        Refused{"KubernetesAddress", kKubernetes - "MASTER_ADDR", "MASTER_ADDR is not"},
        Refused{"KubernetesIndex", kKubernetes + Set{{"JOB_COMPLETION_INDEX", "3"}},
                "JOB_COMPLETION_INDEX=3"}),
    [](const auto& test) { return std::string(test.param.name); });

TEST(WorldTest, TorchrunsAgentHasTheStoreAndCountsRestarts) {
  const World world = *Discover(kTorchrun);
  EXPECT_TRUE(world.agent_store);
  EXPECT_EQ(world.restarts, 2u);
  EXPECT_FALSE(Discover(kTorchrun + Set{{"TORCHELASTIC_USE_AGENT_STORE", "False"}})->agent_store);
  EXPECT_EQ(Describe(world), "rank 5 of 8 (torchrun, node7:29400, restart 2)");
}

TEST(WorldTest, EveryRankOfAJobDerivesTheSamePortAndAnotherJobAnother) {
  const auto other = [](const Set& set) { return Discover(set)->port; };
  EXPECT_EQ(other(kOpenMpi), other(kOpenMpi + Set{{"OMPI_COMM_WORLD_RANK", "0"}}));
  EXPECT_NE(other(kOpenMpi), other(kOpenMpi + Set{{"PMIX_NAMESPACE", "2121531394"}}));
  EXPECT_EQ(other(kSlurm), other(kSlurm + Set{{"SLURM_PROCID", "0"}}));
  EXPECT_NE(other(kSlurm), other(kSlurm + Set{{"SLURM_JOB_ID", "4712"}}));
  EXPECT_NE(other(kSlurm), other(kSlurm + Set{{"SLURM_STEP_ID", "1"}}));
}

TEST(WorldTest, FindsTheFirstHostOfSlurmsNotation) {
  const std::pair<const char*, const char*> kLists[] = {{"node[03-05,7]", "node03"},
                                                        {"a1,b[1-2]", "a1"},
                                                        {"host", "host"},
                                                        {"r[1-2]n[4,9]", "r1n4"},
                                                        {"gpu[7]-ib.cluster", "gpu7-ib.cluster"},
                                                        {"x[10,2-3],y", "x10"}};
  for (const auto& [list, first] : kLists)
    EXPECT_EQ(Discover(kSlurm + Set{{"SLURM_JOB_NODELIST", list}})->address, first);
}

TEST(WorldTest, FlagsWinAndAreCompleteOrNone) {
  WorldFlags flags;
  flags.rank = 1;
  flags.size = 2;
  flags.address = "127.0.0.1";
  flags.port = 77;
  const World world = *Discover(kTorchrun, flags);
  EXPECT_EQ(Describe(world), "rank 1 of 2 (flags, 127.0.0.1:77)");
  EXPECT_EQ(world.local_rank, 1);
  flags.port = 0;
  const Status incomplete = Discover({}, flags).status();
  EXPECT_EQ(incomplete.code(), Code::kConfig);
  EXPECT_NE(incomplete.message().find("not the port"), std::string::npos) << incomplete.message();
  flags.rank = 2;
  flags.port = 77;
  EXPECT_EQ(Discover({}, flags).status().code(), Code::kConfig);
  WorldFlags alone;
  alone.rank = 0;
  alone.size = 1;
  EXPECT_EQ(Discover(kTorchrun, alone)->size, 1);
}

TEST(WorldTest, TheSecretIsTheUsersElseTheJobsName) {
  const auto secret = [](const Set& variables) { return Discover(variables)->secret; };
  const Set given = {{"SAMARA_LAUNCH_SECRET", "told to nobody"}};
  EXPECT_EQ(secret(kTorchrun), "none");
  EXPECT_EQ(secret(kOpenMpi), "2121531393");
  EXPECT_EQ(secret(kOpenMpi + given), "told to nobody");
  EXPECT_NE(secret(kSlurm), secret(kSlurm + Set{{"SLURM_STEP_ID", "7"}}));
  EXPECT_EQ(secret({}), "");
  EXPECT_EQ(Discover(given, {.rank = 0, .size = 2, .address = "a", .port = 1})->secret,
            "told to nobody");
  EXPECT_EQ(Describe(*Discover(kSlurm + given)).find("nobody"), std::string::npos);
}

}  // namespace
}  // namespace samara::world_test
