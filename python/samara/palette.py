# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The emulator's palettes, read from the emulator at run time.

ale-py has no call that returns its palettes, only screens. So it is shown a cartridge of our own, some
dozen instructions that give every scanline the next background colour; its screen holds all 128
colours, once as indices, once as RGB, once gray. The emulator takes a cartridge for NTSC or PAL by its
number of scanlines; the ten games with 250 visible lines are PAL and have other colours. A PAL picture
with an odd number of scanlines loses its colour, which the emulator shows as odd indices.
"""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path

import ale_py
import numpy as np

VSYNC, VBLANK, WSYNC, COLUBK = 0x00, 0x01, 0x02, 0x09  # registers of the television interface
ORIGIN = 0xF000  # where a 4 kB cartridge lies
COLOURS = 128
PAL_HEIGHT = 250  # visible lines
PAL_LINES = 50  # more scanlines than NTSC
NTSC, PAL, PAL_WITHOUT_COLOUR = 0, PAL_LINES, PAL_LINES + 1  # dark lines below the picture


def cartridge(dark_lines: int) -> bytes:
    """4,096 bytes: endless frames of 3 lines of vertical sync, 256 of rising colours, then dark ones."""
    code = bytearray([0x78, 0xD8, 0xA2, 0xFF, 0x9A])  # SEI, CLD, LDX #$FF, TXS
    frame = ORIGIN + len(code)
    code += bytes([0xA9, 2, 0x85, VSYNC])  # LDA #2, STA VSYNC
    code += bytes([0x85, WSYNC]) * 3  # STA WSYNC: to the end of the line
    code += bytes([0xA9, 0, 0x85, VSYNC, 0x85, VBLANK])  # LDA #0: sync off, picture on
    code += bytes([0xA0, 0, 0xA2, 0])  # LDY #0, LDX #0
    line = len(code)
    code += bytes([0x84, COLUBK, 0x85, WSYNC, 0xC8, 0xC8, 0xCA])  # STY COLUBK, STA WSYNC, INY x 2, DEX
    code += bytes([0xD0, (line - len(code) - 2) & 0xFF])  # BNE line
    code += bytes([0x85, WSYNC, 0xA9, 2, 0x85, VBLANK])  # picture off
    if dark_lines:
        code += bytes([0xA2, dark_lines, 0x85, WSYNC, 0xCA, 0xD0, 0xFB])  # LDX, STA WSYNC, DEX, BNE
    code += bytes([0x4C, frame & 0xFF, frame >> 8])  # JMP frame
    code = code.ljust(0xFFA, b"\xea")  # NOP
    return bytes(code + ORIGIN.to_bytes(2, "little") * 3)  # the three vectors


def _colours(dark_lines: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Indices, RGB and gray of the colours that a cartridge shows."""
    ale = ale_py.ALEInterface()
    # killed while it loads, an actor leaves these 4 kB: the name says whose they are
    with tempfile.TemporaryDirectory(prefix="samara-palette-") as folder:
        # the emulator picks a game's settings by file name when it does not know the cartridge
        path = Path(folder) / "tetris.bin"
        path.write_bytes(cartridge(dark_lines))
        ale.loadROM(path)
    ale.act(0)
    index, first = np.unique(ale.getScreen(), return_index=True)
    wanted = index % 2 == (dark_lines == PAL_WITHOUT_COLOUR)
    index, first = index[wanted], first[wanted]
    if len(index) != COLOURS:
        raise RuntimeError(f"palette cartridge: expected {COLOURS} colours, got {len(index)}")
    return index, ale.getScreenRGB().reshape(-1, 3)[first], ale.getScreenGrayscale().reshape(-1)[first]


@functools.cache
def palettes(height: int) -> tuple[np.ndarray, np.ndarray]:
    """RGB (256, 3) and gray (256,) by palette index, uint8, for games of that screen height; odd NTSC
    indices, which no screen holds, repeat the even one below."""
    pal = height >= PAL_HEIGHT
    rgb, gray = np.zeros((2 * COLOURS, 3), np.uint8), np.zeros(2 * COLOURS, np.uint8)
    index, rgb_shown, gray_shown = _colours(PAL if pal else NTSC)
    for i in (index, index + 1):
        rgb[i], gray[i] = rgb_shown, gray_shown
    if pal:
        index, rgb_shown, gray_shown = _colours(PAL_WITHOUT_COLOUR)
        rgb[index], gray[index] = rgb_shown, gray_shown
    return rgb, gray
