"""Plays policies with NumPy, PyTorch and ale-py alone: nothing of samara is imported here.

The protocol is that of the program Uber released (deep-neuroevolution, gpu_implementation):
gray float32 that is not rounded, the maximum of
two frames, TensorFlow's bilinear resize with aligned corners, four frames of which the first three are zeros
at the start, n no-ops, then FIRE and action 2 through the repeat of four frames, the largest output wins.
"""

import json

import ale_py
import ale_py.roms
import numpy as np
import torch
from torch.nn import functional

TABLE_SIZE, CHUNK = 250_000_000, 10_000_000
SIDE = 84
# name, output channels, kernel, stride
CONVOLUTIONS = {
    "LargeModel": [("conv1", 32, 8, 4), ("conv2", 64, 4, 2), ("conv3", 64, 3, 1)],
    "Model": [("conv1", 16, 8, 4), ("conv2", 32, 4, 2)],
}
HIDDEN = {"LargeModel": 512, "Model": 256}


def noise_table():
    """A gigabyte: NumPy's legacy generator, narrowed to float32."""
    table, generator = np.empty(TABLE_SIZE, np.float32), np.random.RandomState(123)
    for at in range(0, TABLE_SIZE, CHUNK):
        table[at : at + CHUNK] = generator.randn(CHUNK)
    return table


def tensors(network, actions):
    """Name, shape as TensorFlow stores it, and scale of the initial values; in storage order."""
    found, channels, side = [], 4, SIDE
    for name, out, kernel, stride in CONVOLUTIONS[network]:
        shape = (kernel, kernel, channels, out)
        found += [(f"{name}.weight", shape, 1 / np.sqrt(kernel * kernel * channels)), (f"{name}.bias", (out,), 0.0)]
        channels, side = out, -(-side // stride)
    flat, hidden = side * side * channels, HIDDEN[network]
    found += [("fc.weight", (flat, hidden), 1 / np.sqrt(flat)), ("fc.bias", (hidden,), 0.0)]
    found += [("out.weight", (hidden, actions), 0.1 / np.sqrt(hidden)), ("out.bias", (actions,), 0.0)]
    return found


def decode(genome, actions, table):
    """The weights that a published genome stands for, as one vector in storage order."""
    listed = tensors(genome["network"], actions)
    scales = np.concatenate([np.full(np.prod(shape), scale, np.float32) for _, shape, scale in listed])
    start, power = genome["initial_index"], np.float32(genome["mutation_power"])
    theta = scales * table[start : start + scales.size]
    for index in genome["mutation_indices"]:
        theta += power * table[index : index + scales.size]
    return theta


class Network:
    """Weights as PyTorch lays them out: convolutions [out, in, y, x], dense layers [out, in]."""

    def __init__(self, network, weights):
        self.network, self.weights = network, weights

    @staticmethod
    def from_vector(network, actions, theta):
        weights, at = {}, 0
        for name, shape, _ in tensors(network, actions):
            size = int(np.prod(shape))
            part = torch.from_numpy(theta[at : at + size].reshape(shape).copy())
            at += size
            if part.dim() == 4:
                part = part.permute(3, 2, 0, 1).contiguous()
            elif part.dim() == 2:
                part = part.T.contiguous()
            weights[name] = part
        assert at == theta.size
        net = Network(network, weights)
        # TensorFlow flattens rows, columns, channels
        net.rows_first = True
        return net

    rows_first = False

    @torch.no_grad()
    def __call__(self, stacks):
        """Outputs [batch, actions] of stacks [batch, 4, 84, 84]."""
        x = torch.from_numpy(stacks)
        for name, _, kernel, stride in CONVOLUTIONS[self.network]:
            size = x.shape[-1]
            zeros = max(0, (-(-size // stride) - 1) * stride + kernel - size)
            before = zeros // 2
            x = functional.pad(x, (before, zeros - before, before, zeros - before))
            x = functional.relu(functional.conv2d(x, self.weights[f"{name}.weight"], self.weights[f"{name}.bias"], stride))
        x = x.permute(0, 2, 3, 1).flatten(1) if self.rows_first else x.flatten(1)
        x = functional.relu(functional.linear(x, self.weights["fc.weight"], self.weights["fc.bias"]))
        return functional.linear(x, self.weights["out.weight"], self.weights["out.bias"])


def gray(screen):
    r, g, b = np.moveaxis(screen.astype(np.float64), 2, 0)
    return ((0.299 * r + 0.587 * g + 0.114 * b) / 255).astype(np.float32)


def resize(image):
    """TensorFlow's resize_bilinear(align_corners=True) to 84 x 84 in float32."""

    def corners(size):
        place = np.arange(SIDE, dtype=np.float32) * (np.float32(size - 1) / np.float32(SIDE - 1))
        low = np.floor(place).astype(int)
        return low, np.minimum(low + 1, size - 1), place - low.astype(np.float32)

    (y0, y1, dy), (x0, x1, dx) = corners(image.shape[0]), corners(image.shape[1])
    top = image[y0][:, x0] + (image[y0][:, x1] - image[y0][:, x0]) * dx
    bottom = image[y1][:, x0] + (image[y1][:, x1] - image[y1][:, x0]) * dx
    return top + (bottom - top) * dy[:, None]


class Game:
    """One game under the protocol; every episode starts from a fresh load."""

    def __init__(self, name):
        ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
        self.ale = ale_py.ALEInterface()
        self.ale.setFloat("repeat_action_probability", 0.0)
        self.ale.setInt("random_seed", 1)
        self.rom = ale_py.roms.get_rom_path(name)
        self.ale.loadROM(self.rom)
        self.actions = self.ale.getMinimalActionSet()

    def frame(self, action):
        self.before = self.now
        reward = self.ale.act(action)
        self.now = self.ale.getScreenRGB()
        self.frames += 1
        return reward

    def step(self, action):
        reward = 0
        for _ in range(4):
            reward += self.frame(self.actions[action])
            if self.ale.game_over():
                break
        return reward

    def observe(self):
        brightest = np.maximum(gray(self.before), gray(self.now))
        self.stack = np.concatenate([self.stack[1:], resize(brightest)[None]])

    def play(self, noops, frames_max=400_000):
        """Yields stacks, is sent the outputs for each; returns the return, the frames after the reset, and the smallest
        lead of a chosen action over the second best."""
        self.ale.loadROM(self.rom)
        self.ale.reset_game()
        self.frames, self.now = 0, self.ale.getScreenRGB()
        self.before = self.now
        for _ in range(noops):
            self.frame(ale_py.Action.NOOP)
        if self.actions[1] == ale_py.Action.FIRE:
            self.step(1)
            self.step(2)
        self.frames, total, lead = 0, 0.0, np.inf
        self.stack = np.zeros((4, SIDE, SIDE), np.float32)
        self.observe()
        while not self.ale.game_over() and self.frames < frames_max:
            outputs = yield self.stack
            best = torch.topk(outputs, 2).values
            lead = min(lead, float(best[0] - best[1]))
            total += self.step(int(outputs.argmax()))
            self.observe()
        return total, self.frames, lead


def play(name, network, noops):
    """What Game.play returns for one episode of `name` per entry of `noops`, all of them in step."""
    results, playing = [None] * len(noops), [Game(name).play(n) for n in noops]
    stacks = {i: next(episode) for i, episode in enumerate(playing)}
    while stacks:
        outputs = dict(zip(stacks, network(np.stack(list(stacks.values())))))
        stacks = {}
        for i, output in outputs.items():
            try:
                stacks[i] = playing[i].send(output)
            except StopIteration as end:
                results[i] = end.value
    return results


def load_genome(path):
    with open(path) as file:
        return json.load(file)
