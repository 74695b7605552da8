"""WAV: files that the standard library and SciPy write, and read, and headers by hand."""

from __future__ import annotations

import struct
import wave

import numpy as np
import pytest

from datacheck.errors import FormatError
from datacheck.formats.base import open_container, parse_container
from datacheck.formats.wav import WAV
from tests.formats.reading import CORPUS, read_all


def written(path, channels, width, frames, rate=8000):
    with wave.open(str(path), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(width)
        file.setframerate(rate)
        file.writeframes(frames)
    return path


def test_samples_and_rate_of_a_file_of_the_standard_library(tmp_path):
    path = written(tmp_path / "a.wav", 1, 2, struct.pack("<4h", 0, 1, -2, 32767), 16000)
    values = read_all(path)
    assert values["samples"].tolist() == [0, 1, -2, 32767]
    assert values["samples"].dtype == np.int16
    assert values["rate"].shape == ()
    assert values["rate"] == 16000


@pytest.mark.parametrize("width", [1, 2, 3, 4])
@pytest.mark.parametrize("channels", [1, 2, 5])
def test_frames_are_those_of_the_standard_library(tmp_path, width, channels):
    frames = np.random.default_rng(width).bytes(7 * channels * width)
    values = read_all(written(tmp_path / "a.wav", channels, width, frames))
    samples = values["samples"]
    assert samples.shape == ((7,) if channels == 1 else (7, channels))
    if width == 3:
        wanted = [
            int.from_bytes(frames[at : at + 3], "little", signed=True)
            for at in range(0, len(frames), 3)
        ]
        assert samples.dtype == np.int32
        assert (samples.reshape(-1) // 256).tolist() == wanted
        assert not (samples % 256).any()
    else:
        assert samples.tobytes() == frames


@pytest.mark.parametrize("dtype", ["uint8", "int16", "int32", "float32", "float64"])
@pytest.mark.parametrize("shape", [(9,), (9, 2)])
def test_values_are_those_that_scipy_writes(tmp_path, dtype, shape):
    wavfile = pytest.importorskip("scipy.io.wavfile")
    random = np.random.default_rng(0)
    numbers = (
        random.normal(size=shape) if dtype.startswith("float") else random.integers(0, 200, shape)
    )
    wavfile.write(tmp_path / "a.wav", 22050, numbers.astype(dtype))
    values = read_all(tmp_path / "a.wav")
    assert values["samples"].dtype == dtype
    np.testing.assert_array_equal(values["samples"], numbers.astype(dtype))
    assert values["rate"] == 22050


@pytest.mark.filterwarnings("ignore:Chunk")  # SciPy warns of chunks that it skips
@pytest.mark.parametrize("path", sorted((CORPUS / "wav").glob("y_*")), ids=lambda path: path.name)
def test_values_are_those_that_scipy_reads(path):
    wavfile = pytest.importorskip("scipy.io.wavfile")
    rate, samples = wavfile.read(path)
    values = read_all(path)
    assert values["rate"] == rate
    assert values["samples"].dtype == samples.dtype
    np.testing.assert_array_equal(values["samples"], samples)


def test_bytes_of_an_archive_and_a_file_without_ending_are_read(tmp_path):
    data = (CORPUS / "wav/y_mono.wav").read_bytes()
    assert parse_container(WAV, data).read("samples").tolist() == [0, 1, -2, 32767]
    (tmp_path / "sound").write_bytes(data)
    with open_container(tmp_path / "sound") as container:
        assert container.read("rate") == 8000


@pytest.mark.parametrize("cut", range(1, 51))
def test_a_file_that_is_cut_anywhere_is_refused(tmp_path, cut):
    path = tmp_path / "a.wav"
    path.write_bytes((CORPUS / "wav/y_mono.wav").read_bytes()[:-cut])
    with pytest.raises(FormatError):
        read_all(path)


NOISE = np.random.default_rng(0).bytes(2000)


@pytest.mark.parametrize("size", [200, 201])
def test_a_size_of_the_samples_that_is_too_small_is_refused(tmp_path, size):
    path = written(tmp_path / "a.wav", 1, 1, NOISE)
    data = bytearray(path.read_bytes())
    data[40:44] = size.to_bytes(4, "little")
    path.write_bytes(data)
    with pytest.raises(FormatError, match="its size is too small"):
        read_all(path)


@pytest.mark.parametrize("frames", [200, 201])
@pytest.mark.parametrize(
    "rest",
    [
        b"LIST" + (100).to_bytes(4, "little") + NOISE[:100],
        b"\0LIST" + (100).to_bytes(4, "little") + NOISE[:100],
        b"ID3\x04" + NOISE,
        bytes(500),
        NOISE[:9],
    ],
)
def test_chunks_tags_and_padding_behind_the_samples_are_ignored(tmp_path, frames, rest):
    path = written(tmp_path / "a.wav", 1, 1, NOISE[:frames])
    with path.open("ab") as file:
        file.write(rest)
    assert read_all(path)["samples"].tobytes() == NOISE[:frames]
