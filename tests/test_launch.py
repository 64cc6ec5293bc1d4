"""samara launch: ranks of small programs that print, fail, hang and are killed."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from samara_cli import BINARY, environment

SHOW = """
import json, os
names = ["RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT",
         "SAMARA_LAUNCH", "SAMARA_LAUNCH_SECRET", "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_RUN_ID", "OMP_NUM_THREADS"]
print(json.dumps({name: os.environ.get(name) for name in names}))
"""
RANK = "import os, sys, time, signal; rank = int(os.environ['RANK'])\n"


def launch(*args: object, timeout: float = 60, **variables: str) -> subprocess.CompletedProcess:
    return subprocess.run([str(BINARY), "launch", *map(str, args)], capture_output=True, text=True,
                          timeout=timeout, env=environment(**variables))


def python(program: str) -> tuple[str, str, str]:
    return sys.executable, "-c", program


def start(*args: object) -> subprocess.Popen:
    return subprocess.Popen([str(BINARY), "launch", *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            text=True, env=environment())


def until(condition, seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_ranks_are_told_what_torchrun_tells_them():
    done = launch("-n", 3, *python(SHOW), TORCHELASTIC_RUN_ID="outer", RANK="7", OMP_NUM_THREADS="3",
                  SAMARA_LAUNCH_SECRET="outer")
    assert done.returncode == 0, done
    ranks = [json.loads(done.stdout)]
    ranks += [json.loads(line.split("] ", 1)[1]) for line in sorted(done.stderr.splitlines())]
    assert [r["RANK"] for r in ranks] == [r["LOCAL_RANK"] for r in ranks] == ["0", "1", "2"]
    for r in ranks:
        assert r["WORLD_SIZE"] == r["LOCAL_WORLD_SIZE"] == "3" and r["GROUP_RANK"] == "0"
        assert r["MASTER_ADDR"] == "127.0.0.1" and 1024 <= int(r["MASTER_PORT"]) < 65536
        assert r["MASTER_PORT"] == ranks[0]["MASTER_PORT"]
        assert r["SAMARA_LAUNCH"] == "1" and r["TORCHELASTIC_RESTART_COUNT"] == "0"
        assert r["TORCHELASTIC_RUN_ID"] is None  # another launcher's
        assert r["OMP_NUM_THREADS"] == "3"
        assert re.fullmatch("[0-9a-f]{64}", r["SAMARA_LAUNCH_SECRET"])
        assert r["SAMARA_LAUNCH_SECRET"] == ranks[0]["SAMARA_LAUNCH_SECRET"]
    assert json.loads(launch("-n", 1, *python(SHOW)).stdout)["SAMARA_LAUNCH_SECRET"] != ranks[0]["SAMARA_LAUNCH_SECRET"]


def test_cores_are_shared_out_and_flags_are_passed_on():
    variables = {k: v for k, v in environment().items() if k != "OMP_NUM_THREADS"}
    done = subprocess.run([BINARY, "launch", "-n", "1", "--port", "4321", "--address", "localhost", *python(SHOW)],
                          capture_output=True, text=True, env=variables, timeout=60)
    told = json.loads(done.stdout)
    assert told["OMP_NUM_THREADS"] == str(len(os.sched_getaffinity(0)))
    assert told["MASTER_PORT"] == "4321" and told["MASTER_ADDR"] == "localhost"


def test_standard_output_is_rank_zeros_and_lines_stay_whole():
    program = RANK + ("for i in range(300): print(f'line {i} of {rank}', flush=i % 7 == 0)\n"
                      "print('error of', rank, file=sys.stderr)\nsys.stdout.write('{\"rank\": %d}' % rank)")
    done = launch("-n", 3, *python(program))
    assert done.stdout.splitlines() == [f"line {i} of 0" for i in range(300)] + ['{"rank": 0}']
    lines = done.stderr.splitlines()
    for rank in (1, 2):
        mine = [line for line in lines if line.startswith(f"[rank {rank}] ")]
        assert [line for line in mine if "line" in line] == [f"[rank {rank}] line {i} of {rank}" for i in range(300)]
        assert f"[rank {rank}] error of {rank}" in mine and f'[rank {rank}] {{"rank": {rank}}}' in "".join(mine)
    assert "[rank 0] error of 0" in lines


def test_logs_go_to_a_file_for_each_rank(tmp_path):
    program = RANK + "print('out', rank, flush=True); print('err', rank, file=sys.stderr)"
    done = launch("-n", 2, "--logs", tmp_path / "a" / "logs", *python(program))
    assert done.returncode == 0 and done.stdout == "out 0\n" and done.stderr == ""
    assert (tmp_path / "a/logs/rank-0.log").read_text() == "err 0\n"
    assert (tmp_path / "a/logs/rank-1.log").read_text() == "out 1\nerr 1\n"


def test_the_code_is_that_of_the_first_rank_that_failed():
    # rank 1 fails, rank 0 notices and says 69; rank 2 would sleep for long
    program = RANK + ("if rank == 1: time.sleep(.3); sys.exit(65)\n"
                      "if rank == 0: time.sleep(.8); sys.exit(69)\n"
                      "time.sleep(600)")
    begin = time.monotonic()
    done = launch("-n", 3, "--json", *python(program))
    assert done.returncode == 65
    result = json.loads(done.stdout.splitlines()[-1])
    assert result.pop("seconds") < 20
    assert result == {"ranks": 3, "restarts": 0, "exit": 65, "failed_rank": 1}
    assert "rank 1 exited with 65" in done.stderr
    assert time.monotonic() - begin < 20


@pytest.mark.parametrize("number, code", [(signal.SIGKILL, 69), (signal.SIGSEGV, 70), (signal.SIGABRT, 70)])
def test_signals_become_documented_codes(number, code):
    program = RANK + f"os.kill(os.getpid(), {int(number)}) if rank == 1 else time.sleep(600)"
    done = launch("-n", 2, *python(program))
    assert done.returncode == code, done
    assert f"rank 1 was killed by signal {int(number)}" in done.stderr


def test_who_ignores_the_end_is_killed_after_the_grace_time():
    program = RANK + ("signal.signal(signal.SIGTERM, lambda *_: print('no', flush=True))\n"
                      "if rank == 1: sys.exit(3)\n"
                      "while True: time.sleep(600)")
    begin = time.monotonic()
    done = launch("-n", 2, "--grace", 1, *python(program))
    assert done.returncode == 3 and "no" in done.stdout
    assert 2 <= time.monotonic() - begin < 15


def test_all_ranks_start_again(tmp_path):
    program = RANK + (f"open(r'{tmp_path}/' + os.environ['TORCHELASTIC_RESTART_COUNT'] + f'-{{rank}}', 'w')"
                      ".write(os.environ['MASTER_PORT'])\n"
                      "if os.environ['TORCHELASTIC_RESTART_COUNT'] == '2': sys.exit(0)\n"
                      "if rank == 1: sys.exit(75)\ntime.sleep(600)")
    done = launch("-n", 2, "--restarts", 5, "--json", *python(program))
    assert done.returncode == 0, done
    assert json.loads(done.stdout)["restarts"] == 2 and json.loads(done.stdout)["failed_rank"] is None
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0-0", "0-1", "1-0", "1-1", "2-0", "2-1"]
    assert done.stderr.count("starting all ranks again") == 2


@pytest.mark.parametrize("code", [64, 65, 66, 77, 78])
def test_what_another_try_cannot_cure_is_not_tried_again(code):
    done = launch("-n", 2, "--restarts", 3, "--json", "sh", "-c", f"exit {code}")
    assert done.returncode == code and json.loads(done.stdout)["restarts"] == 0


def test_restarts_are_limited():
    done = launch("-n", 2, "--restarts", 2, "--json", "false")
    assert done.returncode == 1 and json.loads(done.stdout)["restarts"] == 2


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_request_to_stop_reaches_the_ranks(number):
    program = RANK + (f"signal.signal({int(number)}, lambda *_: sys.exit(75))\n"
                      "print('ready', rank, flush=True)\nwhile True: time.sleep(600)")
    process = start("-n", 2, "--restarts", 3, *python(program))
    assert process.stdout.readline() == "ready 0\n" and process.stderr.readline() == "[rank 1] ready 1\n"
    process.send_signal(number)
    process.communicate(timeout=20)
    assert process.returncode == 75


def test_ranks_that_only_die_of_the_request_count_as_try_again():
    process = start("-n", 2, "sleep", 600)
    time.sleep(0.5)
    process.terminate()
    process.communicate(timeout=20)
    assert process.returncode == 75


def test_no_rank_outlives_the_launcher(tmp_path):
    program = RANK + f"open(r'{tmp_path}/%d' % rank, 'w').write(str(os.getpid()) + '\\n')\ntime.sleep(600)"
    process = start("-n", 3, *python(program))
    until(lambda: sum(path.read_text().endswith("\n") for path in tmp_path.iterdir()) == 3)
    pids = [int(path.read_text()) for path in tmp_path.iterdir()]
    process.kill()
    process.wait()
    until(lambda: all(map(gone, pids)), 5)
    process.stdout.close()
    process.stderr.close()


def test_children_of_ranks_end_with_them(tmp_path):
    program = RANK + ("import subprocess\nchild = subprocess.Popen(['sleep', '600'])\n"
                      f"open(r'{tmp_path}/%d' % rank, 'w').write(str(child.pid))\n"
                      "sys.exit(0 if rank == 0 else 1)")
    done = launch("-n", 2, *python(program))
    assert done.returncode == 1
    for path in tmp_path.iterdir():
        until(lambda pid=int(path.read_text()): gone(pid), 5)


def test_files_of_the_program_have_the_users_mode(tmp_path):
    old = os.umask(0o022)
    try:
        assert launch("-n", 1, "touch", tmp_path / "file").returncode == 0
    finally:
        os.umask(old)
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("args, code, words", [
    ([], 64, "--ranks"),
    (["-n", "2"], 64, "which program"),
    (["-n", "0", "true"], 64, "range"),
    (["-n", "x", "true"], 64, "--ranks"),
    (["-n", "2", "--port", "70000", "true"], 64, "range"),
    (["-n", "2", "--rank", "4", "true"], 64, "--rank: unknown option"),
    (["-n", "2", "--address", "0.0.0.0", "true"], 78, "every interface"),
    (["-n", "2", "--address", "no.such.host.invalid", "true"], 78, "no.such.host.invalid"),
    (["-n", "2", "no-such-program-anywhere"], 66, "no-such-program-anywhere"),
    (["-n", "2", "/etc/passwd"], 77, "/etc/passwd"),
    (["-n", "2", "--logs", "/dev/null/x", "true"], 73, "/dev/null"),
])
def test_bad_input_is_one_line(args, code, words):
    done = launch(*args)
    assert done.returncode == code, done
    assert words in done.stderr and len(done.stderr.splitlines()) == 1 and done.stdout == "", done


def test_help_says_whose_output_goes_where():
    done = launch("--help")
    assert done.returncode == 0
    for words in ("--restarts", "--logs", "--grace", "Standard output is rank 0's", "[rank 1]"):
        assert words in done.stdout
