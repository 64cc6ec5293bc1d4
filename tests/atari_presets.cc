// Prints the Atari presets as one JSON object, name to rows: what Python tests configure actors
// with.
#include <cstdio>

#include "env/atari_preset.h"

int main() {
  std::string text;
  for (const auto& name : samara::AtariPresetNames()) {
    text += (text.empty() ? "{" : ",\n ") + ("\"" + name + "\": ") +
            samara::FindAtariPreset(name)->ToJson();
  }
  std::puts((text + "}").c_str());
}
