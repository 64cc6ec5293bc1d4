"""Atari environments as Python users step them: of `samara bench env` the rivals, of `samara bench vector` all.

    python env_rivals.py WHO GAME CORES SECONDS [FOLDER of the package samara]

WHO: gymnasium, ale_vector, envpool or samara (samara.make_vec). Frame skip 4, 84 x 84 grey, a stack of 4, no-op starts, actions drawn
beforehand at random, rewards left alone, nothing sticky. Prints {"rows": [...]}, one row a configuration with its
game frames per second, or {"rows": [], "reason": ...} where WHO is not installed or lacks the game.
"""

import json
import multiprocessing
import sys
import time

import numpy as np

SKIP, STACK = 4, 4
WARM = 0.1  # of the time, not counted: first resets, first calls


def rate(step, seconds):
    """Frames per second of step(i), which returns how many environments it stepped."""
    i, done, start = 0, 0, time.perf_counter()
    begun, end = None, start + seconds * (1 + WARM)
    while (now := time.perf_counter()) < end or done == 0:
        if begun is None and now - start > seconds * WARM:
            begun = now
        stepped = step(i)
        if begun is not None:
            done += stepped
        i += 1
    return SKIP * done / (time.perf_counter() - begun)


def actions(n, width):
    return np.random.default_rng(0).integers(n, size=(4096, width))


# --- gymnasium: its own preprocessing and frame stack in Python


def gymnasium_env(game):
    import ale_py
    import cv2
    from ale_py.env import AtariEnv
    from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation

    cv2.setNumThreads(1)  # the environments are what runs in parallel
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    env = AtariEnv(game=game, frameskip=1, repeat_action_probability=0.0)
    return FrameStackObservation(AtariPreprocessing(env, frame_skip=SKIP), STACK)


def gymnasium_async(game, envs, seconds):
    from functools import partial

    from gymnasium.vector import AsyncVectorEnv

    vector = AsyncVectorEnv([partial(gymnasium_env, game) for _ in range(envs)])
    vector.reset(seed=0)
    draws = actions(vector.single_action_space.n, envs)

    def step(i):
        vector.step(draws[i % len(draws)])
        return envs

    result = rate(step, seconds)
    vector.close()
    return result


def gymnasium_alone(game, seconds, together, results):
    env = gymnasium_env(game)
    env.reset(seed=multiprocessing.current_process().pid)
    draws = actions(env.action_space.n, 1)[:, 0]

    def step(i):
        _, _, terminated, truncated, _ = env.step(draws[i % len(draws)])
        if terminated or truncated:
            env.reset()
        return 1

    together.wait()
    results.put(rate(step, seconds))


def gymnasium_processes(game, envs, seconds):
    """Processes that never meet: what a user gets who plays whole episodes in each."""
    together, results = multiprocessing.Barrier(envs), multiprocessing.SimpleQueue()
    workers = [multiprocessing.Process(target=gymnasium_alone, args=(game, seconds, together, results)) for _ in range(envs)]
    for worker in workers:
        worker.start()
    total = sum(results.get() for _ in workers)
    for worker in workers:
        worker.join()
    return total


def gymnasium(game, cores, seconds):
    for how, play in (("AsyncVectorEnv", gymnasium_async), ("plain processes", gymnasium_processes)):
        for envs in (cores, 2 * cores):
            yield {"how": how, "envs": envs, "processes": envs, "threads": 1}, play(game, envs, seconds)


# --- vector environments in C++ whose threads step the emulators


def pools(cores):
    """(environments, batch): all in step, and half of them stepping while the other half is answered."""
    return [(cores, cores), (2 * cores, 2 * cores), (2 * cores, cores), (4 * cores, 2 * cores)]


def pool_row(envs, batch, cores):
    return {"how": "in step" if envs == batch else f"batches of {batch}", "envs": envs, "processes": 1, "threads": cores}


def ale_vector(game, cores, seconds):
    from ale_py.vector_env import AtariVectorEnv

    for envs, batch in pools(cores):
        vector = AtariVectorEnv(game, envs, batch_size=batch, num_threads=cores, reward_clipping=False)
        vector.reset(seed=0)
        draws = actions(vector.single_action_space.n, batch)

        def step(i):
            vector.step(draws[i % len(draws)])
            return batch

        yield pool_row(envs, batch, cores), rate(step, seconds)
        vector.close()


def envpool(game, cores, seconds):
    import envpool

    task = "".join(word.capitalize() for word in game.split("_")) + "-v5"
    for envs, batch in pools(cores):
        vector = envpool.make_gymnasium(
            task, num_envs=envs, batch_size=batch, num_threads=cores, frame_skip=SKIP, stack_num=STACK, seed=0
        )
        vector.async_reset()
        draws = actions(vector.action_space.n, batch)

        def step(i):
            vector.send(draws[i % len(draws)], vector.recv()[4]["env_id"])
            return batch

        yield pool_row(envs, batch, cores), rate(step, seconds)
        vector.close()


def samara(game, cores, seconds):
    from samara import make_vec

    for envs, batch in pools(cores):
        vector = make_vec(f"atari:{game}", envs, batch_size=batch, workers=cores, preset="ale-vector", stack=STACK)
        vector.async_reset()
        draws = actions(vector.single_action_space.n, batch)

        def step(i):
            vector.send(draws[i % len(draws)], vector.recv()[4]["env_id"])
            return batch

        yield pool_row(envs, batch, cores) | {"processes": cores, "threads": 1}, rate(step, seconds)
        vector.close()


def main():
    who, game, cores, seconds = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
    sys.path[:0] = sys.argv[5:]
    try:
        rivals = {"gymnasium": gymnasium, "ale_vector": ale_vector, "envpool": envpool, "samara": samara}[who]
        rows = [row | {"frames_per_second": per_second} for row, per_second in rivals(game, cores, seconds)]
        print(json.dumps({"rows": rows}))
    except (ImportError, AssertionError) as error:  # not installed, or it does not have this game
        print(json.dumps({"rows": [], "reason": str(error)}))


if __name__ == "__main__":
    main()
