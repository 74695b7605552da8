"""Images: the stored numbers, 16 bits included; size is known before anything is decoded."""

from __future__ import annotations

import io
import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from datacheck.errors import FormatError, MissingDependencyError
from datacheck.formats import image
from datacheck.formats.base import open_container
from tests.formats.reading import CORPUS, read_all


@pytest.mark.parametrize(
    ("shape", "dtype"), [((4, 3), "u1"), ((4, 3), "u2"), ((4, 3, 3), "u1"), ((4, 3, 4), "u1")]
)
def test_png_gives_what_was_stored(tmp_path, shape, dtype):
    data = np.random.default_rng(0).integers(
        0, np.iinfo(dtype).max, shape, dtype=dtype, endpoint=True
    )
    Image.fromarray(data).save(tmp_path / "a.png")
    np.testing.assert_array_equal(read_all(tmp_path / "a.png")["image"], data)


def test_palette_images_give_indices_and_masks_booleans():
    assert read_all(CORPUS / "image/y_palette.png")["image"].tolist() == [[0, 3], [2, 1]]
    mask = read_all(CORPUS / "image/y_mask.png")["image"]
    assert mask.dtype == bool
    assert mask.tolist() == [[True, False]]


def test_header_alone_gives_the_shape(monkeypatch):
    with open_container(CORPUS / "image/y_color.png") as container:
        monkeypatch.setattr(image, "plain", None)  # decoding would need it
        assert container.peek("image") == ((6, 5, 3), "|u1")


def test_without_pillow_one_line_names_the_extra(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'datacheck\[images\]'"):
        open_container(CORPUS / "image/y_color.png")


@pytest.mark.parametrize("suffix", ["png", "bmp", "ppm", "tiff", "webp"])
def test_every_kind_of_file_is_read(tmp_path, suffix):
    pixels = np.random.default_rng(0).integers(0, 256, (5, 4, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(
        tmp_path / f"a.{suffix}", **({"lossless": True} if suffix == "webp" else {})
    )
    np.testing.assert_array_equal(read_all(tmp_path / f"a.{suffix}")["image"], pixels)


def png(kind, depth, rows):
    def chunk(name, data):
        return (
            struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        )

    head = struct.pack(">IIBBBBB", 2, len(rows), depth, kind, 0, 0, 0)
    body = zlib.compress(b"".join(b"\0" + row for row in rows))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", body) + chunk(b"IEND", b"")


@pytest.mark.parametrize("kind", [2, 4, 6])
def test_colours_of_16_bits_are_refused_as_pillow_keeps_8(tmp_path, kind):
    (tmp_path / "a.png").write_bytes(png(kind, 16, [bytes(2 * 2 * {2: 3, 4: 2, 6: 4}[kind])]))
    with pytest.raises(FormatError, match="of which Pillow keeps 8 bits"):
        read_all(tmp_path / "a.png")


def test_gray_of_16_bits_is_read_as_it_is(tmp_path):
    (tmp_path / "a.png").write_bytes(png(0, 16, [struct.pack(">2H", 1007, 65535)]))
    assert read_all(tmp_path / "a.png")["image"].tolist() == [[1007, 65535]]


@pytest.mark.parametrize(
    "head",
    [
        b"P5 2 1 100\n",
        b"P5\n# of a camera\n2 1\n10000\n",
        b"P6 1 1 65535\n",
        b"P5\n# x\r2 1\n1000\n",
        b"P5" + b" " * 5000 + b"2 1 1000\n",
    ],
)
def test_values_that_pillow_scales_are_refused(tmp_path, head):
    (tmp_path / "a.ppm").write_bytes(head + bytes(12))
    with pytest.raises(FormatError, match="which Pillow scales"):
        read_all(tmp_path / "a.ppm")


def noise(size=200):
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, (size, size, 3), "u1"))


def check_cut(path, parts=(0.6, 0.95)):
    """Check that `peek`, which decodes nothing, accepts a file and refuses it cut."""
    data = path.read_bytes()
    with open_container(path) as container:
        shape = container.peek("image")[0]
    for part in parts:
        path.write_bytes(data[: int(part * len(data))])
        with pytest.raises(FormatError, match="truncated image"), open_container(path) as container:
            container.peek("image")
    return shape


@pytest.mark.parametrize("mode", ["RGB", "L", "1", "P", "RGBA"])
@pytest.mark.parametrize("suffix", ["bmp", "tif", "ppm"])
def test_a_cut_file_without_an_end_mark_is_found_without_decoding(tmp_path, suffix, mode):
    if suffix == "ppm" and mode in {"P", "RGBA"}:
        return
    noise().convert(mode).save(tmp_path / f"a.{suffix}")
    assert check_cut(tmp_path / f"a.{suffix}")[:2] == (200, 200)


def test_a_cut_compressed_tiff_is_found_without_decoding(tmp_path):
    """Some writers put the directory of a TIFF file before its pixels."""
    packed = (b"\x7f" + bytes(range(128))) * 64
    tags = [
        *((256, 128), (257, 64), (258, 8), (259, 32773), (262, 1)),
        *((273, 8 + 2 + 9 * 12 + 4), (277, 1), (278, 64), (279, len(packed))),
    ]
    directory = struct.pack("<H", len(tags)) + b"".join(
        struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags
    )
    path = tmp_path / "a.tif"
    path.write_bytes(struct.pack("<2sHI", b"II", 42, 8) + directory + bytes(4) + packed)
    assert read_all(path)["image"].shape == (64, 128)
    assert check_cut(path) == (64, 128)


@pytest.mark.parametrize("progressive", [False, True])
def test_the_end_mark_of_a_thumbnail_is_not_that_of_the_picture(tmp_path, progressive):
    thumbnail, picture = io.BytesIO(), io.BytesIO()
    noise(40).save(thumbnail, "JPEG")
    noise(120).save(picture, "JPEG", progressive=progressive)
    exif = b"Exif\0\0" + thumbnail.getvalue()
    segment = b"\xff\xe1" + struct.pack(">H", len(exif) + 2) + exif
    path = tmp_path / "a.jpg"
    path.write_bytes(picture.getvalue()[:2] + segment + picture.getvalue()[2:])
    assert path.stat().st_size < 64 << 10
    assert check_cut(path, parts=(0.67,)) == (120, 120, 3)
