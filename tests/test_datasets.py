"""Loaders of images against NumPy and Pillow: IDX, CIFAR-10, folders of JPEG files; files that are damaged."""

from __future__ import annotations

import io
import json
import struct
import subprocess

import pytest
from replica_util import result, run
from samara_cli import ROOT

np = pytest.importorskip("numpy")
Image = pytest.importorskip("PIL.Image")
READ = ROOT / "build" / "read_samples"
SIDE = 24


def read(kind, folder, split="train", epoch=0, side=SIDE):
    done = subprocess.run([str(READ), kind, str(folder), split, str(epoch), str(side)], capture_output=True, timeout=60)
    if done.returncode != 0:
        assert done.stdout == b"" and done.stderr.count(b"\n") == 1
        return done.returncode, done.stderr.decode()
    head, pixels = done.stdout.split(b"\n", 1)
    head = json.loads(head)
    return head, np.frombuffer(pixels, np.uint8).reshape(len(head["labels"]), *head["shape"])


def test_idx(tmp_path):
    rng = np.random.default_rng(1)
    expected = {}
    for name, split, n in (("train", "train", 50), ("t10k", "test", 20)):
        images, labels = rng.integers(0, 256, (n, 9, 7), np.uint8), rng.integers(0, 5, n, np.uint8)
        labels[0] = 4
        (tmp_path / f"{name}-images-idx3-ubyte").write_bytes(struct.pack(">HBB3I", 0, 8, 3, n, 9, 7) + images.tobytes())
        (tmp_path / f"{name}-labels-idx1-ubyte").write_bytes(struct.pack(">HBBI", 0, 8, 1, n) + labels.tobytes())
        expected[split] = images, labels
    for split, (images, labels) in expected.items():
        head, pixels = read("idx", tmp_path, split)
        assert head["shape"] == [1, 9, 7] and head["classes"] == 5 and head["labels"] == labels.tolist()
        assert np.array_equal(pixels[:, 0], images)


def test_cifar(tmp_path):
    rng = np.random.default_rng(2)
    records = {f"data_batch_{i}": rng.integers(0, 256, (4, 3073), np.uint8) for i in range(1, 6)}
    records["test_batch"] = rng.integers(0, 256, (3, 3073), np.uint8)
    for name, table in records.items():
        table[:, 0] %= 10
        (tmp_path / f"{name}.bin").write_bytes(table.tobytes())
    train = np.concatenate([records[f"data_batch_{i}"] for i in range(1, 6)])
    for kind, split, table in (("cifar", "train", train), ("cifar", "test", records["test_batch"]),
                               ("cifar-varied", "test", records["test_batch"])):
        head, pixels = read(kind, tmp_path, split)
        assert head["labels"] == table[:, 0].tolist() and np.array_equal(pixels.reshape(len(table), -1), table[:, 1:])
    # the reference's way: pad, take a window, mirror
    _, varied = read("cifar-varied", tmp_path, "train", epoch=3)
    for got, row in zip(varied, train, strict=True):
        padded = np.pad(row[1:].reshape(3, 32, 32), ((0, 0), (4, 4), (4, 4)))
        windows = [padded[:, y:y + 32, x:x + 32] for y in range(9) for x in range(9)]
        assert any(np.array_equal(got, w) or np.array_equal(got, w[:, :, ::-1]) for w in windows)


def photo(width, height, seed=1):
    """Smooth waves and some noise, as photos have."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:height, :width]
    waves = np.stack([np.sin(x / (7 + c)) * np.cos(y / (5 + c)) for c in range(3)], -1) * 90 + 128
    return Image.fromarray(np.clip(waves + rng.normal(0, 6, waves.shape), 0, 255).astype(np.uint8))


def image_folder(folder, files):
    """files: CLASS/NAME to an image and how it is saved; both splits get them."""
    for split in ("train", "val"):
        for name, (image, options) in files.items():
            path = folder / split / name
            path.parent.mkdir(parents=True, exist_ok=True)
            image.save(path, "JPEG", **options)


needs_jpeg = pytest.mark.skipif(subprocess.run([str(READ), "images", "/nowhere", "val", "0", "1"]).returncode == 78
                                if READ.exists() else True, reason="built without libjpeg")


@needs_jpeg
def test_images_like_pillow(tmp_path):
    files = {"b/1.jpg": (photo(80, 60), {}), "a/2.JPEG": (photo(40, 90, 2), {"quality": 98, "subsampling": 0}),
             "a/1.jpg": (photo(33, 21, 3), {"progressive": True}), "c/0.jpeg": (photo(50, 50, 4).convert("L"), {}),
             "c/1.jpeg": (photo(61, 50, 5).convert("CMYK"), {"quality": 95})}
    image_folder(tmp_path, files)
    (tmp_path / "val" / "a" / "notes.txt").write_text("no image")
    head, pixels = read("images", tmp_path, "test")
    assert head["classes"] == 3 and head["labels"] == [0, 0, 1, 2, 2] and head["shape"] == [3, SIDE, SIDE]
    for got, name in zip(pixels, sorted(files), strict=True):
        image = Image.open(tmp_path / "val" / name).convert("RGB")
        part = min(image.size) * 224 / 256
        left, top = (image.size[0] - part) / 2, (image.size[1] - part) / 2
        expected = image.resize((SIDE, SIDE), Image.Resampling.BILINEAR, box=(left, top, left + part, top + part))
        difference = np.abs(got.astype(int) - np.asarray(expected).transpose(2, 0, 1))
        assert difference.max() <= 1 and difference.mean() < 0.5, name
        # and another box is not as near
        other = image.resize((SIDE, SIDE), Image.Resampling.BILINEAR, box=(0, 0, part, part))
        assert np.abs(got.astype(int) - np.asarray(other).transpose(2, 0, 1)).mean() > 2, name


@needs_jpeg
def test_random_parts(tmp_path):
    """The part taken is read off an image whose red is its column and whose green is its row."""
    width, height = 240, 200
    y, x = np.mgrid[:height, :width]
    image = Image.fromarray(np.stack([x, y, 0 * x], -1).astype(np.uint8))
    image_folder(tmp_path, {"a/1.jpg": (image, {"quality": 100, "subsampling": 0})})
    areas, ratios, mirrored, seen = [], [], 0, set()
    for epoch in range(150):
        _, pixels = read("images", tmp_path, "train", epoch)
        seen.add(pixels.tobytes())
        red, green = pixels[0, 0].astype(float).mean(0), pixels[0, 1].astype(float).mean(1)
        wide = (red[-1] - red[0]) * SIDE / (SIDE - 1)
        high = (green[-1] - green[0]) * SIDE / (SIDE - 1)
        mirrored += wide < 0
        areas.append(abs(wide) * high / (width * height))
        ratios.append(abs(wide) / high)
        assert np.ptp(np.diff(red)) < 4  # straight
    assert len(seen) == 150 and 50 <= mirrored <= 100
    assert min(areas) > 0.07 and max(areas) < 1.03 and min(areas) < 0.2 and max(areas) > 0.8
    assert min(ratios) > 0.72 and max(ratios) < 1.38 and min(ratios) < 0.85 and max(ratios) > 1.2
    assert read("images", tmp_path, "train", 7)[1].tobytes() == read("images", tmp_path, "train", 7)[1].tobytes()


@needs_jpeg
def test_damaged_images_are_named(tmp_path):
    image_folder(tmp_path, {"a/1.jpg": (photo(30, 30), {}), "b/1.jpg": (photo(30, 30, 2), {})})
    file = tmp_path / "val" / "b" / "1.jpg"
    whole = file.read_bytes()
    png = io.BytesIO()
    photo(30, 30).save(png, "PNG")
    for damaged in (b"", b"x", png.getvalue(), *(whole[:n] for n in range(2, len(whole), len(whole) // 20))):
        file.write_bytes(damaged)
        code, said = read("images", tmp_path, "test")
        assert code == 65 and str(file) in said, said
    file.unlink()
    assert read("images", tmp_path, "test")[0]["labels"] == [0]
    (tmp_path / "val" / "b").rmdir()
    code, said = read("images", tmp_path, "test")
    assert code == 65 and "the same classes as in train" in said
    assert read("images", tmp_path / "val", "test")[0] == 66


@needs_jpeg
def test_a_program_reads_images_at_any_number_of_ranks(tmp_path):
    files = {f"{'ab'[i % 2]}/{i}.jpg": (photo(40 + i, 50 - i, i), {}) for i in range(20)}
    image_folder(tmp_path, files)
    program = ROOT / "build" / "examples" / "resnet"
    options = ["--images", tmp_path, "--side", 16, "--steps", 3, "--batch", 8, "--json"]
    got = [result(run(*launch, *options, program=program)) for launch in (("threads", 1), ("threads", 4), ("samara", 2))]
    assert got[1] == {**got[0], "world_size": 4} and got[2] == {**got[0], "world_size": 2}
    for name in files:
        (tmp_path / "train" / name).write_bytes(b"no image")
    done = run("threads", 1, *options, program=program)
    assert done.returncode == 65 and ".jpg: not a whole JPEG file" in done.stderr
