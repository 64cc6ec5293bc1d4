"""Pixel kernels against OpenCV, Pillow and plain NumPy formulas, bit for bit, at every instruction set."""

import cv2
import numpy as np
import pytest
from PIL import Image

from samara import _native

SCREENS = [(210, 160), (250, 160), (214, 160), (220, 160), (230, 160)]
LEVELS = _native.isa_levels()


def palette(odd=False):
    """Any palette does; odd indices repeat the even ones (NTSC) or have colours of their own (PAL)."""
    rng = np.random.default_rng(5)
    colours = rng.integers(0, 256, (256, 3), np.uint8)
    grays = np.round(colours @ np.array([0.2989, 0.5870, 0.1140])).astype(np.uint8)
    if not odd:
        colours[1::2], grays[1::2] = colours[::2], grays[::2]
    return colours, grays


def screens(height, width, seed, odd=False):
    """Two frames with background, repeated rows, moving blocks and noise."""
    rng = np.random.default_rng(seed)
    a = np.repeat(rng.integers(0, 128, (height, 1)), width, 1)
    a[height // 2 :] = rng.integers(0, 128, (height - height // 2, width))
    b = a.copy()
    b[20:60, 30:90] = rng.integers(0, 128)
    b[-40:] = rng.integers(0, 128, (40, width))
    low = rng.integers(0, 2, (2, 1, 1)) if odd else np.zeros((2, 1, 1), int)  # a whole frame loses colour
    return (2 * a + low[0]).astype(np.uint8), (2 * b + low[1]).astype(np.uint8)


def resize_area(image):
    return cv2.resize(image, (84, 84), interpolation=cv2.INTER_AREA)


def resize_linear(image):
    return cv2.resize(image, (84, 84), interpolation=cv2.INTER_LINEAR)


def resize_pil(image):
    """Columns, then rows, as Pillow always did; Pillow 13 starts with the rows on tall screens."""
    columns = Image.fromarray(image).resize((84, image.shape[0]), Image.BILINEAR)
    resized = np.array(columns.resize((84, 84), Image.BILINEAR))
    if image.shape == (210, 160):
        np.testing.assert_array_equal(resized, Image.fromarray(image).resize((84, 84), Image.BILINEAR))
    return resized.astype(np.uint8)


def resize_aligned(image):
    """TensorFlow's resize_bilinear(align_corners=True) in float32: source = i (in - 1) / (out - 1)."""

    def axis(size):
        at = np.arange(84, dtype=np.float32) * np.float32(np.float32(size - 1) / np.float32(83))
        low = np.minimum(at.astype(np.int32), size - 1)
        return low, np.minimum(low + 1, size - 1), at - low.astype(np.float32)

    top, bottom, down = axis(image.shape[0])
    left, right, across = axis(image.shape[1])
    upper = image[top][:, left] + (image[top][:, right] - image[top][:, left]) * across
    lower = image[bottom][:, left] + (image[bottom][:, right] - image[bottom][:, left]) * across
    return upper + (lower - upper) * down[:, None]


def gray_max(colours, grays, a, b):
    return np.maximum(grays[a], grays[b])


def rgb_max(colours, a, b):
    return np.maximum(colours[a], colours[b])


def y_unit(colours, grays, a, b):
    unit = colours.astype(np.float32) * np.float32(1 / 255)
    weights = np.array([0.299, 0.587, 0.114], np.float32)
    gray = (unit[:, 0] * weights[0] + unit[:, 1] * weights[1]) + unit[:, 2] * weights[2]
    return np.maximum(gray[a], gray[b])


def y_float(colours, grays, a, b):
    rgb = rgb_max(colours, a, b).astype(np.float32)
    weights = np.array([0.299, 0.587, 0.114], np.float32)
    return (rgb[..., 0] * weights[0] + rgb[..., 1] * weights[1]) + rgb[..., 2] * weights[2]


def y_truncated(colours, grays, a, b):
    rgb = rgb_max(colours, a, b)
    return np.tensordot(rgb, [0.299, 0.587, 1 - (0.299 + 0.587)], (-1, 0)).astype(np.uint8)


def cvtcolor(colours, grays, a, b):
    return cv2.cvtColor(rgb_max(colours, a, b), cv2.COLOR_RGB2GRAY)


RULES = {
    ("gray-max", "ale", "area"): lambda *x: resize_area(gray_max(*x)),
    ("gray-max", "ale", "linear"): lambda *x: resize_linear(gray_max(*x)),
    ("rgb-max", "y-truncated", "pil"): lambda *x: resize_pil(y_truncated(*x)),
    ("rgb-max", "cvtcolor", "area"): lambda *x: resize_area(cvtcolor(*x)),
    ("rgb-max", "y-float", "pil-float"): lambda *x: resize_pil(y_float(*x)),
    ("gray-max", "y-unit", "aligned"): lambda *x: resize_aligned(y_unit(*x)),
}


def kernel(rule, shape, isa="", odd=False):
    colours, grays = palette(odd)
    return _native.PixelKernel(*rule, *shape, 84, 84, colours, grays, isa)


@pytest.mark.parametrize("rule", RULES, ids="-".join)
@pytest.mark.parametrize("shape", SCREENS, ids=str)
def test_equals_the_other_implementation(rule, shape):
    for seed in range(6):
        odd = shape[0] == 250
        a, b = screens(*shape, seed, odd)
        expected = RULES[rule](*palette(odd), a, b)
        out = np.empty((84, 84), expected.dtype)
        for isa in LEVELS:
            out[:] = 0
            kernel(rule, shape, isa, odd).run(a, b, out)
            different = np.argwhere(out != expected)
            assert len(different) == 0, (isa, len(different), different[:3], out[tuple(different[0])])


@pytest.mark.parametrize("rule", RULES, ids="-".join)
def test_odd_sizes_give_the_same_bits_at_every_level(rule):
    """Sizes that no screen has: no padding, no shuffle span fits by luck."""
    rng = np.random.default_rng(2)
    colours, grays = palette()
    for shape, out_shape in [((33, 47), (20, 19)), ((61, 200), (30, 40)), ((20, 20), (31, 45))]:
        a, b = (2 * rng.integers(0, 128, (2, *shape))).astype(np.uint8)
        results = []
        for isa in LEVELS:
            k = _native.PixelKernel(*rule, *shape, *out_shape, colours, grays, isa)
            out = np.empty(out_shape, np.float32 if rule[2] == "aligned" else np.uint8)
            k.run(a, b, out)
            results.append(out.tobytes())
        assert len(set(results)) == 1


def test_wrong_shapes_and_rules_are_refused():
    with pytest.raises(ValueError, match="do not go together"):
        kernel(("rgb-max", "ale", "area"), (210, 160))
    with pytest.raises(ValueError, match="unknown word"):
        kernel(("gray-max", "ale", "cubic"), (210, 160))
    k = kernel(("gray-max", "ale", "area"), (210, 160))
    frame = np.zeros((210, 160), np.uint8)
    with pytest.raises(ValueError, match="another shape or type"):
        k.run(frame, frame, np.zeros((84, 84), np.float32))
    with pytest.raises(ValueError, match="another shape or type"):
        k.run(frame, frame[:200], np.zeros((84, 84), np.uint8))
