// Files that `samara new` begins with: those of templates/ and an example, compiled in.
#pragma once

#include <string>
#include <vector>

namespace samara {

struct Template {
  std::string path;  // in the source tree: "templates/my_task.py"
  std::string text;
};

const std::vector<Template>& Templates();

}  // namespace samara
