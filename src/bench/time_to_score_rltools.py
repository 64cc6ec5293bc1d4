"""RLtools' SAC until it plays Pendulum: a rival of `samara bench time-to-score` (until_score.py).

Compiles rltools/pendulum_sac.cc, next to this script, for this processor and with MKL, as RLtools' own benchmark is compiled;
that does not count. The program decides when it is evaluated, and uses one core. `make rivals` installs the package rltools,
whose headers are all that is used of it, and MKL, without which it takes ten times as long.
"""

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

from until_score import Task, missing


def main():
    task = Task(".venv-rivals")
    package = importlib.util.find_spec("rltools")
    if package is None:
        missing("no package rltools")
        return
    headers = Path(package.origin).parent / "external/rl_tools/include"
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "pendulum_sac"
        libraries = Path(sys.prefix) / "lib"
        mkl = [*libraries.glob("libmkl_intel_lp64.so*"), *libraries.glob("libmkl_sequential.so*"), *libraries.glob("libmkl_core.so*")]
        blas = ["-DRL_TOOLS_BACKEND_ENABLE_MKL", "-I", Path(sys.prefix) / "include", "-Wl,--no-as-needed", *mkl, f"-Wl,-rpath,{libraries}"]
        compiled = subprocess.run([os.environ.get("CXX", "c++"), "-std=c++20", "-Ofast", "-march=native", "-DNDEBUG", "-I", headers,
                                   "-o", program, Path(__file__).resolve().parent / "rltools/pendulum_sac.cc",
                                   *(blas if mkl else ["-DRL_TOOLS_BACKEND_DISABLE_BLAS"])], stderr=subprocess.PIPE, text=True)
        if compiled.returncode != 0:
            first = next((line for line in compiled.stderr.splitlines() if "error" in line), "no error message")
            print(json.dumps({"reason": f"the compiler refuses RLtools: {first[:300]}"}))
            return
        limit = None if task.seconds == float("inf") else task.seconds
        try:
            done = subprocess.run([program, str(task.seed), str(task.score)], stdout=subprocess.PIPE, text=True, check=True, timeout=limit)
            found = json.loads(done.stdout.splitlines()[-1])
        except subprocess.TimeoutExpired:
            found = {"seconds": None, "frames": None, "mean": None, "curve": []}
    products = "MKL" if mkl else "no MKL"
    print(json.dumps({"rival": f"RLtools {version('rltools')} SAC, its example's settings, {products}"} | found))


if __name__ == "__main__":
    main()
