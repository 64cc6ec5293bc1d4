"""The elite that Uber published plays under samara as it plays under an independent replay.

The replay (published_replay.py) knows NumPy, PyTorch and ale-py. Returns must be equal episode by episode.
"""

import hashlib

import numpy as np
import pytest
import torch
from published_replay import Game, Network, decode, load_genome, noise_table, play
from samara_cli import TESTS, ok
from safetensors.numpy import load_file

GENOME = TESTS / "data" / "uber_frostbite_genome.json"
# what the replay found: of the weights, by name in order, and of the episodes after 1, 2 and 3 no-ops
WEIGHTS = "aedbb75bdee298a9904caa7b46b0ea191cf22ca757bfc078b0378faa99e53442"
RETURNS, FRAMES = [1610, 7920, 2370], [3874, 7339, 5133]
RANDOM = 65  # Frostbite's random policy (src/report/reference_scores.cc: 65.2)


@pytest.fixture(scope="module")
def policy(tmp_path_factory):
    path = tmp_path_factory.mktemp("uber") / "policy.safetensors"
    ok("import", GENOME, "--out", path)
    return path


@pytest.fixture(scope="module")
def replayed():
    """The network; its weights come from NumPy's own table."""
    torch.set_num_threads(1)
    genome, actions = load_genome(GENOME), len(Game("frostbite").actions)
    return Network.from_vector(genome["network"], actions, decode(genome, actions, noise_table()))


def digest(tensors):
    return hashlib.sha256(b"".join(np.ascontiguousarray(tensors[name]).tobytes() for name in sorted(tensors))).hexdigest()


def test_weights_and_three_episodes_are_what_the_replay_found(policy):
    """The slow tests below have it found again."""
    assert digest(load_file(policy)) == WEIGHTS
    assert evaluated(policy, 1, 3) == (RETURNS, FRAMES)


@pytest.mark.slow
def test_the_decoded_weights_are_numpys(policy, replayed):
    """Bit for bit: samara's table, scales and order of additions against NumPy's."""
    stored, network = load_file(policy), replayed
    assert set(stored) == set(network.weights)
    for name, want in network.weights.items():
        found, want = stored[name], want.numpy()
        if name == "fc.weight":  # the file flattens channels first, the originals last
            want = want.reshape(512, 11, 11, 64).transpose(0, 3, 1, 2).reshape(512, -1)
        np.testing.assert_array_equal(found, want, err_msg=name)
    assert digest(stored) == WEIGHTS


def evaluated(policy, first, last):
    result = ok("eval", policy, "--noops", f"{first}..{last}", "--json", timeout=3000).json
    assert result["episodes"] == len(result["returns"]) == len(result["frames"]) == last - first + 1
    assert result["mean"] > 10 * RANDOM
    return result["returns"], result["frames"]


def assert_equal_to_the_replay(returns, frames, replayed, noops):
    """`returns` and `frames` start with the first of `noops`."""
    played = play("frostbite", replayed, noops)
    leads = [lead for *_, lead in played]
    assert returns[: len(noops)] == [total for total, *_ in played], f"smallest leads {leads}"
    assert frames[: len(noops)] == [count for _, count, _ in played], f"smallest leads {leads}"


@pytest.mark.slow
def test_three_episodes_are_those_of_the_replay(replayed):
    assert_equal_to_the_replay(RETURNS, FRAMES, replayed, range(1, 4))


@pytest.mark.slow
def test_thirty_episodes_are_the_four_of_the_repeat_of_frames(policy, replayed):
    """While Frostbite does not listen yet, a decision more at the start changes only the count of frames: n no-ops lead to
    the play of n - 4. The replay plays the four that are left."""
    returns, frames = evaluated(policy, 1, 30)
    assert_equal_to_the_replay(returns[3:], frames[3:], replayed, range(4, 8))
    assert returns[4:] == returns[:-4]
    assert frames[4:] == [count - 4 for count in frames[:-4]]


@pytest.mark.slow
def test_all_thirty_episodes_are_equal(policy, replayed):
    assert_equal_to_the_replay(*evaluated(policy, 1, 30), replayed, range(1, 31))
