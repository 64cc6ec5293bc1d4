"""The three schedules of 2018 with torch's stock operations: the rivals of `samara bench schedule`.

    python schedule_rivals.py SCHEDULE WAITING CORES SECONDS FOLDER PYTHON_PATH ENVIRONMENT

WAITING: active or passive, what torch's idle threads do (OMP_WAIT_POLICY).

FOLDER holds population.f32, the canonical LargeModels of all individuals, and receives trace files
(samara/trace.py). PYTHON_PATH: where the package samara is. ENVIRONMENT: what an actor is asked to build.
Emulators and their pixels are samara's own environment classes, in one process a core. Schedules:

    one-at-a-time   each core plays one individual in one process: step, evaluate, step
    batched         all environments step, barrier, one grouped evaluation of all individuals, barrier
    pipelined       two groups alternate: one is evaluated while the other's environments step

Prints {"begin": ..., "end": ...}: the window to count, on the monotonic clock.
"""

import json
import mmap
import multiprocessing
import os
import sys
import time

import numpy as np

SCHEDULE, WAITING, CORES, SECONDS, FOLDER, PYTHON_PATH, ENVIRONMENT = sys.argv[1:]
CORES, SECONDS, ENVIRONMENT = int(CORES), float(SECONDS), json.loads(ENVIRONMENT)
os.environ["OMP_WAIT_POLICY"] = WAITING  # read when torch is loaded
sys.path.insert(0, PYTHON_PATH)

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402

from samara import trace  # noqa: E402
from samara.environment import make  # noqa: E402

WARM = 0.5  # s before the window
# (outputs, kernel, stride, padding before and after) of the convolutions; then 512 units and the actions
CONVOLUTIONS = [(32, 8, 4, (2, 2)), (64, 4, 2, (1, 2)), (64, 3, 1, (1, 1))]
MAP, UNITS = 11, 512  # rows and columns after the convolutions


def parameters_of(actions):
    """Per layer (weights, biases) in torch's order, each with the population in front."""
    count = sum(n for n, _ in canonical_shapes(actions))
    theta = torch.from_numpy(np.fromfile(os.path.join(FOLDER, "population.f32"), np.float32).reshape(-1, count))
    tensors, at = [], 0
    for n, shape in canonical_shapes(actions):
        tensors.append(theta[:, at : at + n].reshape(-1, *shape))
        at += n
    weights, biases = tensors[::2], tensors[1::2]
    weights = [w.permute(0, 4, 3, 1, 2).contiguous() if w.dim() == 5 else w.transpose(1, 2) for w in weights]
    # the map is flattened channels first here
    dense = weights[3].reshape(-1, UNITS, MAP, MAP, CONVOLUTIONS[-1][0]).permute(0, 1, 4, 2, 3)
    weights[3] = dense.reshape(-1, UNITS, MAP * MAP * CONVOLUTIONS[-1][0])
    return [(w.contiguous(), b.contiguous()) for w, b in zip(weights, biases, strict=True)]


def canonical_shapes(actions):
    channels = 4
    for out, kernel, _, _ in CONVOLUTIONS:
        yield kernel * kernel * channels * out, (kernel, kernel, channels, out)
        yield out, (out,)
        channels = out
    for inputs, out in ((MAP * MAP * channels, UNITS), (UNITS, actions)):
        yield inputs * out, (inputs, out)
        yield out, (out,)


def padded(x, pads):
    before, after = pads
    return F.pad(x, (before, after, before, after))


def forward(layers, x):
    """One network on x: [1][channels][rows][columns]."""
    for (w, b), (_, _, stride, pads) in zip(layers, CONVOLUTIONS, strict=False):
        x = F.relu(F.conv2d(padded(x, pads), w, b, stride=stride))
    (w, b), (out, bias) = layers[3:]
    return F.linear(F.relu(F.linear(x.flatten(1), w, b)), out, bias)


def grouped(layers, x):
    """Networks side by side: x is [population][channels][rows][columns]."""
    population = x.shape[0]
    for (w, b), (_, _, stride, pads) in zip(layers, CONVOLUTIONS, strict=False):
        x = padded(x, pads).reshape(1, -1, x.shape[2] + sum(pads), x.shape[3] + sum(pads))
        x = F.relu(F.conv2d(x, w.flatten(0, 1), b.flatten(), stride=stride, groups=population))
        x = x.reshape(population, -1, *x.shape[2:])
    x = x.reshape(population, 1, -1)
    for i, (w, b) in enumerate(layers[3:]):
        x = torch.baddbmm(b.unsqueeze(1), x, w.transpose(1, 2))
        x = F.relu(x) if i == 0 else x
    return x.squeeze(1)


def shared(shape, dtype):
    """An array that processes forked later share."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return np.frombuffer(mmap.mmap(-1, size), dtype).reshape(shape)


class Player:
    """An environment that begins again by itself, and its frame stack, zeros before the first frame."""

    def __init__(self, recorder, stack, number):
        self.environment = trace.Traced(make(ENVIRONMENT), recorder)
        self.stack, self.number, self.episode = stack, number, 0
        self.frame = np.zeros(self.environment.spec.observation_shape, np.float32)

    def reset(self):
        self.episode += 1
        self.environment.reset(1000 * self.number + self.episode, 1 + self.number % 30, 0, self.frame)
        self.stack[:3] = 0
        self.stack[3] = self.frame

    def step(self, action):
        """Whether the episode is over."""
        _, terminated, truncated, _, _ = self.environment.step(action, self.frame)
        if not (terminated or truncated):
            self.stack[:3] = self.stack[1:]
            self.stack[3] = self.frame
        return terminated or truncated


# --- one at a time


def alone(core, layers, window, ready):
    torch.set_num_threads(1)
    trace.pin(core)
    population = layers[0][0].shape[0]
    recorder = trace.Recorder(FOLDER, core)
    stack = torch.zeros(1, 4, 84, 84)
    player = Player(recorder, stack.numpy()[0], core)
    ready.wait()
    individual = core
    with torch.inference_mode():
        while time.monotonic_ns() < window[1]:
            own = [(w[individual], b[individual]) for w, b in layers]
            individual = (individual + CORES) % population
            player.reset()
            over = False
            while not over and time.monotonic_ns() < window[1]:
                recorder.begin()
                action = int(forward(own, stack).argmax())
                recorder.end(trace.INFERENCE)
                over = player.step(action)
    recorder.flush()


def one_at_a_time(layers, window):
    ready = multiprocessing.Barrier(CORES + 1)
    workers = [multiprocessing.Process(target=alone, args=(core, layers, window, ready)) for core in range(CORES)]
    for worker in workers:
        worker.start()
    while ready.n_waiting < CORES:
        time.sleep(0.01)
    open_window(window)
    ready.wait()
    for worker in workers:
        worker.join()


def open_window(window):
    window[0] = time.monotonic_ns() + int(WARM * 1e9)
    window[1] = window[0] + int(SECONDS * 1e9)


# --- batched and pipelined


def emulate(core, pipe, stacks, actions, groups):
    """Steps its members of a group whenever the group is named; an empty message ends it."""
    torch.set_num_threads(1)
    trace.pin(core)
    recorder = trace.Recorder(FOLDER, core)
    members = [[m for m in group if m % CORES == core] for group in groups]
    players = {m: Player(recorder, stacks[m], m) for group in members for m in group}
    for player in players.values():
        player.reset()
    pipe.send_bytes(b"ready")
    while message := pipe.recv_bytes():
        for m in members[message[0] - 1]:
            if players[m].step(actions[m]):
                players[m].reset()
        pipe.send_bytes(b"done")
    recorder.flush()


class Emulators:
    """A process a core, each with its share of every group's environments."""

    def __init__(self, population, groups):
        self.stacks, self.actions = shared((population, 4, 84, 84), np.float32), shared((population,), np.int64)
        self.pipes, self.workers = [], []
        for core in range(CORES):
            ours, theirs = multiprocessing.Pipe()
            arguments = (core, theirs, self.stacks, self.actions, groups)
            self.workers.append(multiprocessing.Process(target=emulate, args=arguments))
            self.workers[-1].start()
            self.pipes.append(ours)
        self.wait()

    def step(self, group):
        for pipe in self.pipes:
            pipe.send_bytes(bytes([group + 1]))

    def wait(self):
        for pipe in self.pipes:
            pipe.recv_bytes()

    def close(self):
        for pipe, worker in zip(self.pipes, self.workers, strict=True):
            pipe.send_bytes(b"")
            worker.join()


class Evaluation:
    """Grouped evaluations on all cores: a record a core, the processor time shared among them."""

    def __init__(self):
        self.recorders = [trace.Recorder(FOLDER, core) for core in range(CORES)]

    def __call__(self, layers, stacks):
        cpu, begin = time.process_time_ns(), time.monotonic_ns()
        actions = grouped(layers, stacks).argmax(1).numpy()
        end, cpu = time.monotonic_ns(), (time.process_time_ns() - cpu) // CORES
        for recorder in self.recorders:
            recorder.records.extend((recorder.core, trace.INFERENCE, begin, end, 0, cpu))
        return actions


def in_groups(layers, window, count):
    """One group: everything waits for everything. Two: each is evaluated while the other steps."""
    population = layers[0][0].shape[0]
    groups = [range(g * population // count, (g + 1) * population // count) for g in range(count)]
    emulators, evaluate = Emulators(population, groups), Evaluation()
    torch.set_num_threads(CORES)
    own = [[(w[g.start : g.stop], b[g.start : g.stop]) for w, b in layers] for g in groups]
    stacks = torch.from_numpy(emulators.stacks)
    with torch.inference_mode():
        for g in groups:
            emulators.actions[g.start : g.stop] = evaluate(own[groups.index(g)], stacks[g.start : g.stop])
        for g in range(count - 1):
            emulators.step(g)  # the last group's actions wait for its turn
        open_window(window)
        turn = count - 1
        while time.monotonic_ns() < window[1]:
            emulators.step(turn)
            turn = (turn + 1) % count
            emulators.wait()  # answers come in order: those of the group whose turn it is
            g = groups[turn]
            emulators.actions[g.start : g.stop] = evaluate(own[turn], stacks[g.start : g.stop])
        for _ in range(count - 1):
            emulators.wait()
    emulators.close()
    for recorder in evaluate.recorders:
        recorder.flush()


def main():
    multiprocessing.set_start_method("fork")
    window = shared((2,), np.int64)
    layers = parameters_of(make(ENVIRONMENT).spec.action_n)
    x = torch.rand(2, 4, 84, 84)
    both = grouped([(w[:2], b[:2]) for w, b in layers], x)
    assert torch.allclose(both[1], forward([(w[1], b[1]) for w, b in layers], x[1:])[0], atol=1e-4)
    if SCHEDULE == "one-at-a-time":
        one_at_a_time(layers, window)
    else:
        in_groups(layers, window, {"batched": 1, "pipelined": 2}[SCHEDULE])
    print(json.dumps({"begin": int(window[0]), "end": int(window[1])}))


if __name__ == "__main__":
    main()
