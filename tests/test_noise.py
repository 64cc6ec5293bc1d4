# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The three kinds of noise against NumPy: an independent Philox and Box-Muller in float64, NumPy's
own normals, the Gaussian quantiles of Python's statistics module, and RandomState(123).randn."""
from math import erf, sqrt
from statistics import NormalDist

import numpy as np
import pytest

from samara import _native

N = 4_000_000


def fill(kind: str, key: int, first: int, n: int) -> np.ndarray:
    out = np.empty(n, np.float32)
    _native.noise_fill(kind, key, first, out)
    return out


def philox(counter: list[np.ndarray], key: tuple[int, int]) -> list[np.ndarray]:
    """Philox4x32-10 (Salmon et al. 2011) on arrays of counters."""
    c0, c1, c2, c3 = (np.asarray(c, np.uint64) for c in counter)
    k0, k1 = key
    low, shift = np.uint64(0xFFFFFFFF), np.uint64(32)
    for _ in range(10):
        p0, p1 = c0 * np.uint64(0xD2511F53), c2 * np.uint64(0xCD9E8D57)
        c0, c1, c2, c3 = (p1 >> shift) ^ c1 ^ np.uint64(k0), p1 & low, (p0 >> shift) ^ c3 ^ np.uint64(k1), p0 & low
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return [c0, c1, c2, c3]


def group_words(kind: int, key: int, group: int, groups: int) -> np.ndarray:
    """W[group][word][block] of src/evo/genome/noise.h."""
    block = np.arange(16 * group, 16 * (group + groups), dtype=np.uint64)
    zero = np.zeros_like(block)
    words = philox([block & np.uint64(0xFFFFFFFF), block >> np.uint64(32), zero, zero + np.uint64(16 + kind)],
                   (key & 0xFFFFFFFF, key >> 32))
    return np.stack(words).reshape(4, groups, 16).transpose(1, 0, 2)


def reference_normal(key: int, group: int, groups: int) -> np.ndarray:
    w = group_words(1, key, group, groups)
    u = ((w[:, 0::2].astype(np.float64) + 0.5) / 2**32).astype(np.float32).astype(np.float64)
    quadrant = (w[:, 1::2] >> np.uint64(30)).astype(np.float64)
    t = ((w[:, 1::2] % np.uint64(2**30)).astype(np.float64) - 2**29) / 2**30
    # sine and cosine of the small angle, then the quadrant's exact rotation
    s, c = np.sin(np.pi / 2 * t), np.cos(np.pi / 2 * t)
    cosine = np.choose(quadrant.astype(int), [c, -s, -c, s])
    sine = np.choose(quadrant.astype(int), [s, c, -s, -c])
    r = np.sqrt(-2 * np.log(u))
    return np.stack([r * cosine, r * sine], axis=2).reshape(-1)


def test_reference_philox_has_the_published_known_answers():
    # Random123's kat_vectors
    for counter, key, expected in [
        ([0] * 4, (0, 0), [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
        ([0xFFFFFFFF] * 4, (0xFFFFFFFF,) * 2, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
        ([0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344], (0xA4093822, 0x299F31D0),
         [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1]),
    ]:
        assert [int(x) for x in philox(counter, key)] == expected


@pytest.mark.parametrize("key,group", [(0, 0), (0x299F31D0A4093822, 3), (2**64 - 1, 2**40 + 5), (7, 2**28 - 100)])
def test_normal_is_philox_and_box_muller(key, group):
    groups = 20_000
    ours = fill("normal", key, 64 * group, 64 * groups).astype(np.float64)
    expected = reference_normal(key, group, groups)
    ulp = np.spacing(np.abs(expected).astype(np.float32)).astype(np.float64)
    errors = np.abs(ours - expected) / ulp
    assert errors.max() < 5, errors.max()
    assert errors.mean() < 0.6


def ks_distance(a: np.ndarray, b: np.ndarray) -> float:
    """Kolmogorov-Smirnov distance of two samples of one size."""
    both = np.sort(np.concatenate([a, b]))
    return float(np.abs(np.searchsorted(np.sort(a), both, "right") - np.searchsorted(np.sort(b), both, "right")).max() / len(a))


def test_normal_is_distributed_like_numpys():
    ours = fill("normal", 0x1234567890ABCDEF, 0, N).astype(np.float64)
    numpys = np.random.default_rng(2024).standard_normal(N)
    # five standard errors of the first moments, of a normal sample: 1, 2, 6, 24 and 96-ish over n
    for power, expected, variance in [(1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96), (6, 15, 10170)]:
        assert abs((ours**power).mean() - expected) < 5 * sqrt(variance / N), power
    # 1.95 sqrt(2 / n): exceeded once in 1,000 by equal distributions
    assert ks_distance(ours, numpys) < 1.95 * sqrt(2 / N)
    for edge in (1.0, 2.0, 3.0, 4.0, 4.5):
        p = 1 - erf(edge / sqrt(2))
        for side in (ours, numpys):
            assert abs((np.abs(side) > edge).mean() - p) < 5 * sqrt(p / N), edge


@pytest.mark.parametrize("kind", ["normal", "quantile8"])
def test_elements_and_keys_are_uncorrelated(kind):
    limit = 5 / sqrt(N)
    a = fill(kind, 1000, 0, N).astype(np.float64)
    for other in (1001, 1000 + 2**32, 1000 ^ 2**63):
        assert abs((a * fill(kind, other, 0, N)).mean()) < limit, other
    for lag in (1, 2, 3, 4, 8, 15, 16, 17, 32, 48, 64, 128, 256, 1000):
        assert abs((a[lag:] * a[:-lag]).mean()) < 1.2 * limit, lag
        # the radius is shared by two elements of a block, their squares must not show it
        assert abs(((a[lag:] ** 2 - 1) * (a[:-lag] ** 2 - 1)).mean()) < 2.4 * limit, lag


def test_normal_is_finite_and_symmetric_far_out():
    a = fill("normal", 3, 0, 40_000_000)
    assert np.isfinite(a).all()
    assert 5.0 < a.max() < 6.77 and -6.77 < a.min() < -5.0


def quantiles() -> np.ndarray:
    return np.array([round(32 * NormalDist().inv_cdf((b + 0.5) / 256)) for b in range(256)])


def test_quantile8_is_the_table_over_philox_bytes():
    key, group, groups = 0xFEDCBA9876543210, 12345, 2000
    words = group_words(2, key, group, groups).astype("<u4")
    expected = quantiles().astype(np.float32)[np.ascontiguousarray(words).view(np.uint8).reshape(-1)] / np.float32(31.983)
    assert np.array_equal(fill("quantile8", key, 256 * group, 256 * groups), expected)


def test_quantile8_moments():
    a = fill("quantile8", 77, 0, N).astype(np.float64)
    assert len(np.unique(a)) == len(np.unique(quantiles()))
    assert np.abs(a).max() == pytest.approx(92 / 31.983)
    for power, expected, variance in [(1, 0, 1), (2, 1, 1.92), (3, 0, 13), (4, 2.916, 70)]:
        assert abs((a**power).mean() - expected) < 5 * sqrt(variance / N) + 1e-3 * (power == 4), power
    count = np.bincount((np.round(a * 31.983) + 92).astype(int), minlength=185)
    expected_count = np.bincount(quantiles() + 92, minlength=185) * (N / 256)
    used = expected_count > 0
    chi2 = ((count - expected_count)[used] ** 2 / expected_count[used]).sum()
    degrees = used.sum() - 1
    assert abs(chi2 - degrees) < 5 * sqrt(2 * degrees)


def test_any_slice_is_the_same_noise():
    for kind in ("normal", "quantile8"):
        whole = fill(kind, 5, 0, 3000)
        for first, n in [(0, 0), (0, 1), (1, 1), (63, 2), (64, 64), (65, 700), (255, 258), (300, 2700)]:
            assert np.array_equal(fill(kind, 5, first, n), whole[first : first + n]), (kind, first, n)


def test_table_is_numpys_legacy_stream():
    chunk = 1_000_000
    random = np.random.RandomState(123)
    for i in range(6):
        expected = random.randn(chunk).astype(np.float32)
        if i in (0, 1, 5):
            assert np.array_equal(fill("table", i * chunk, 0, chunk).view(np.uint32), expected.view(np.uint32)), i
    assert np.array_equal(fill("table", 5_999_900, 10, 90), expected[-90:])


def test_table_has_an_end():
    for key, first, n in [(250_000_000, 0, 1), (249_999_990, 5, 6), (2**64 - 1, 0, 1), (0, 2**63, 1)]:
        with pytest.raises(ValueError, match="leaves the noise table"):
            fill("table", key, first, n)
    with pytest.raises(ValueError, match="expected normal"):
        fill("gauss", 0, 0, 1)


@pytest.mark.slow
def test_the_whole_table_is_numpys():
    chunk = 10_000_000
    random = np.random.RandomState(123)
    for start in range(0, 250_000_000, chunk):
        expected = random.randn(chunk).astype(np.float32)
        assert np.array_equal(fill("table", start, 0, chunk).view(np.uint32), expected.view(np.uint32)), start
    assert np.array_equal(fill("table", 250_000_000 - 10, 0, 10), expected[-10:])
