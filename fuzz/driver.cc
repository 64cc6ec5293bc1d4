// Runs a fuzz target without libFuzzer: random inputs, and mutations of those in the folders given,
// for so many seconds. Inputs are a function of the seed, so that a failure can be repeated.
//
//   NAME [seconds [seed [FILE...]]]
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

std::string Mutated(const std::vector<std::string>& seeds, std::mt19937_64& random) {
  const auto draw = [&random](size_t n) { return static_cast<size_t>(random() % n); };
  std::string input;
  if (!seeds.empty() && draw(4) > 0) {
    input = seeds[draw(seeds.size())];
  } else {
    for (size_t n = draw(2000); n > 0; --n) input += static_cast<char>(draw(256));
    return input;
  }
  for (size_t changes = 1 + draw(8); changes > 0; --changes) {
    const size_t at = input.empty() ? 0 : draw(input.size());
    switch (draw(4)) {
      case 0:
        if (!input.empty()) input[at] = static_cast<char>(draw(256));
        break;
      case 1:
        input.insert(at, 1 + draw(8), static_cast<char>(draw(256)));
        break;
      case 2:
        input.erase(at, draw(8));
        break;
      case 3:
        input.insert(at, input.substr(0, draw(40)));
        break;
    }
  }
  return input;
}

}  // namespace

int main(int argc, char** argv) {
  const double seconds = argc > 1 ? std::atof(argv[1]) : 5;
  std::mt19937_64 random(argc > 2 ? static_cast<uint64_t>(std::atoll(argv[2])) : 1);
  std::vector<std::string> seeds;
  for (int i = 3; i < argc; ++i) {
    std::ifstream file(argv[i], std::ios::binary);
    seeds.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  uint64_t inputs = 0;
  for (; std::chrono::steady_clock::now() < end; ++inputs) {
    const std::string input = Mutated(seeds, random);
    LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()), input.size());
  }
  std::printf("%llu inputs\n", static_cast<unsigned long long>(inputs));
  return inputs > 0 ? 0 : 1;
}
