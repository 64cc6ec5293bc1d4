// The same collectives by the MPI of this machine: started by `samara bench collectives` through
// mpirun where both are installed, measured together, told by rank 0 in one JSON object.
//
//   samara-mpi-ranks SECONDS
#include <mpi.h>

#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "bench/collective_sizes.h"

namespace samara::bench {
namespace {

double CallSeconds(double seconds, const auto& call) {
  for (int i = 0; i < 3; ++i) call();
  const double warm = MPI_Wtime();
  for (int i = 0; i < 3; ++i) call();
  uint64_t repeats = Repetitions(seconds, (MPI_Wtime() - warm) / 3);
  MPI_Bcast(&repeats, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
  const double start = MPI_Wtime();
  for (uint64_t i = 0; i < repeats; ++i) call();
  return (MPI_Wtime() - start) / static_cast<double>(repeats);
}

int Main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0, ranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const double seconds = argc > 1 ? std::atof(argv[1]) : 0.1;
  nlohmann::json rows = nlohmann::json::array();
  for (const std::string_view operation : kCollectives) {
    for (const size_t bytes : kCollectiveBytes) {
      const int count = static_cast<int>(bytes / sizeof(float));
      std::vector<float> mine(bytes / sizeof(float), 1),
          out(mine.size() * static_cast<size_t>(ranks));
      const double s = CallSeconds(seconds, [&] {
        if (operation == "all_reduce")
          MPI_Allreduce(mine.data(), out.data(), count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        else if (operation == "all_gather")
          MPI_Allgather(mine.data(), count, MPI_FLOAT, out.data(), count, MPI_FLOAT,
                        MPI_COMM_WORLD);
        else
          MPI_Bcast(mine.data(), count, MPI_FLOAT, 0, MPI_COMM_WORLD);
      });
      rows.push_back({{"operation", operation}, {"bytes", bytes}, {"latency_us", s * 1e6}});
    }
  }
  if (rank == 0) std::printf("%s\n", nlohmann::json{{"rows", rows}}.dump().c_str());
  MPI_Finalize();
  return 0;
}

}  // namespace
}  // namespace samara::bench

int main(int argc, char** argv) { return samara::bench::Main(argc, argv); }
