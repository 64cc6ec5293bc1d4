"""Every Atari preset still gives the bits it gave (tests/golden/atari.py says what they are and why)."""

import json
import sys
from pathlib import Path

import ale_py
import pytest
from atari_presets import presets

sys.path.insert(0, str(Path(__file__).parent))
from golden import atari as golden  # noqa: E402

STORED = json.loads(golden.FILE.read_text())


def test_every_preset_has_golden_hashes():
    assert set(STORED["hashes"]) == set(presets())
    assert STORED["ale-py"] == ale_py.__version__, "hashes of another emulator: generate them again"


def cases():
    """Tetris under every preset; the other games at once under the presets most used, else as slow."""
    for name in presets():
        for game in golden.GAMES:
            quick = game == "tetris" or name in ("deepga-gpu", "ale-sticky")
            yield pytest.param(game, name, marks=() if quick else pytest.mark.slow)


@pytest.mark.parametrize(("game", "name"), list(cases()))
def test_preset_gives_the_golden_bits(game, name):
    assert golden.golden(game, name) == STORED["hashes"][name][game]
