"""The elite that Uber published plays under samara as it plays under an independent replay.

The replay (published_replay.py) knows NumPy, PyTorch and ale-py. Returns must be equal episode by episode.
"""

import numpy as np
import pytest
import torch
from published_replay import Game, Network, decode, load_genome, noise_table, play
from samara_cli import TESTS, ok
from safetensors.numpy import load_file

GENOME = TESTS / "data" / "uber_frostbite_genome.json"
RANDOM = 65  # Frostbite's random policy (spec, section 6)


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


def test_the_decoded_weights_are_numpys(policy, replayed):
    """Bit for bit: samara's table, scales and order of additions against NumPy's."""
    stored, network = load_file(policy), replayed
    assert set(stored) == set(network.weights)
    for name, want in network.weights.items():
        found, want = stored[name], want.numpy()
        if name == "fc.weight":  # the file flattens channels first, the originals last
            want = want.reshape(512, 11, 11, 64).transpose(0, 3, 1, 2).reshape(512, -1)
        np.testing.assert_array_equal(found, want, err_msg=name)


def compare(policy, replayed, first, last):
    result = ok("eval", policy, "--noops", f"{first}..{last}", "--json", timeout=3000).json
    assert result["episodes"] == len(result["returns"]) == last - first + 1
    played = play("frostbite", replayed, range(first, last + 1))
    leads = [lead for *_, lead in played]
    assert result["returns"] == [total for total, *_ in played], f"smallest leads {leads}"
    assert result["frames"] == [frames for _, frames, _ in played], f"smallest leads {leads}"
    return result


def test_three_episodes_are_equal_and_far_above_random(policy, replayed):
    result = compare(policy, replayed, 1, 3)
    assert result["mean"] > 10 * RANDOM


@pytest.mark.default_tier
def test_all_thirty_episodes_are_equal(policy, replayed):
    result = compare(policy, replayed, 1, 30)
    assert result["mean"] > 10 * RANDOM
