"""Formats that datasets contain but datacheck does not read, and how to get their data in."""

from __future__ import annotations

import re
from typing import NamedTuple

from datacheck.formats.base import format_of, unnumbered


class UnsupportedFormat(NamedTuple):
    """A format without a reader.

    Args:
        name: common name of the format.
        suffixes: lower-case endings of its files.
        way: how to check its data anyway; a phrase.
        magic: first bytes, for files with other names.
    """

    name: str
    suffixes: tuple[str, ...]
    way: str
    magic: tuple[bytes, ...] = ()


_LOADER = "scan what your loader returns (--loader MODULE:FUNCTION)"
_UNPACK = "unpack it"
_MESH = "convert it to PLY or OBJ"

UNSUPPORTED = (
    UnsupportedFormat(
        "SQLite",
        (".sqlite", ".sqlite3"),
        f"name a ROS 2 bag .db3; of another file, {_LOADER}",
        (b"SQLite format 3\0",),
    ),
    UnsupportedFormat("packed TFRecord", (".tfrecord.gz", ".tfrecords.gz"), _UNPACK),
    UnsupportedFormat("LMDB", (".mdb", ".lmdb"), f"read it with the lmdb library, and {_LOADER}"),
    UnsupportedFormat(
        "MATLAB", (".mat",), f"save its arrays as .npz, or {_LOADER}", (b"MATLAB 5.0 MAT-file",)
    ),
    UnsupportedFormat("USD", (".usd", ".usda", ".usdc", ".usdz"), _MESH, (b"PXR-USDC", b"#usda ")),
    UnsupportedFormat("glTF", (".glb", ".gltf"), _MESH, (b"glTF",)),
    UnsupportedFormat("STL", (".stl",), _MESH),
    UnsupportedFormat(
        "FBX, COLLADA or Blender", (".fbx", ".dae", ".blend"), _MESH, (b"Kaydara FBX", b"BLENDER")
    ),
    UnsupportedFormat(
        "OpenEXR", (".exr",), f"save the pixels as .npy or .png, or {_LOADER}", (b"v/1\x01",)
    ),
    UnsupportedFormat(
        "PFM or optical flow", (".pfm", ".flo"), f"save the values as .npy, or {_LOADER}"
    ),
    UnsupportedFormat("NIfTI", (".nii", ".nii.gz"), f"save the volume as .npy, or {_LOADER}"),
    UnsupportedFormat("DICOM", (".dcm",), f"save the pixels as .npy, or {_LOADER}"),
    UnsupportedFormat(
        "video", (".avi", ".mkv", ".webm", ".mpg", ".mpeg"), _LOADER, (b"\x1aE\xdf\xa3",)
    ),
    UnsupportedFormat(
        "video or code",
        (".ts",),
        f"name time series of sktime NAME_TRAIN.ts or NAME_TEST.ts; of another file, {_LOADER}",
    ),
    UnsupportedFormat(
        "ZED recording", (".svo", ".svo2"), f"export it with the ZED SDK, or {_LOADER}"
    ),
    UnsupportedFormat("ScanNet .sens", (".sens",), "export it with SensReader of ScanNet"),
    UnsupportedFormat("Rerun", (".rrd",), _LOADER, (b"RRF2",)),
    UnsupportedFormat(
        "audio",
        (".flac", ".mp3", ".ogg", ".opus", ".m4a"),
        f"decode it to WAV, or {_LOADER}",
        (b"fLaC", b"OggS"),
    ),
    UnsupportedFormat("MessagePack", (".msgpack",), _LOADER),
    UnsupportedFormat(
        "Avro or ORC", (".avro", ".orc"), "write it as Parquet", (b"Obj\x01", b"ORC")
    ),
    UnsupportedFormat("FFCV", (".beton",), _LOADER),
    UnsupportedFormat("MXNet RecordIO", (".rec",), _LOADER),
    UnsupportedFormat("Gaussian splats", (".splat", ".ksplat", ".spz"), "export them as PLY"),
    UnsupportedFormat("E57", (".e57",), "convert it to LAS or PLY", (b"ASTM-E57",)),
    UnsupportedFormat(
        "archive",
        (
            ".zip",
            ".tar.gz",
            ".tgz",
            ".tar.bz2",
            ".tar.xz",
            ".tar.zst",
            ".7z",
            ".rar",
            ".gz",
            ".bz2",
            ".xz",
            ".zst",
            ".zstd",
        ),
        _UNPACK,
        (b"PK\x03\x04", b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"7z\xbc\xaf", b"Rar!", b"(\xb5/\xfd"),
    ),
)
HEAD_BYTES = 32  # enough for each `UnsupportedFormat.magic`

# Reversed, so that the first entry keeps a suffix that several entries list.
_BY_SUFFIX = {suffix: one for one in reversed(UNSUPPORTED) for suffix in one.suffixes}
# Files that accompany the data: no training reads numbers from them.
_NAMES = re.compile(
    r"(readme|licen[cs]e|notice|copying|citation|changelog|authors|contributing|makefile|dockerfile|version|requirements)"
    r"([._-].*)?"
)
_SUFFIXES = re.compile(
    r".*\.(md|rst|bib|pdf|html?|css|js|py|pyc|ipynb|sh|bat|toml|cfg|ini|lock|log|md5|sha\d+|sha\d+sum|sum|done|"
    r"gitignore|gitattributes)"
)
_TEXT = ".txt"  # also a format of data


def unsupported_format(path: str, head: bytes = b"") -> UnsupportedFormat | None:
    """Return the unsupported format that a file seems to have, None if the table has no match.

    Args:
        path: the file's name.
        head: its first bytes, if known.
    """
    name = unnumbered(path.rpartition("/")[2].lower())
    dot = name.find(".")
    while dot >= 0:  # try the longest ending first
        if name[dot:] in _BY_SUFFIX:
            return _BY_SUFFIX[name[dot:]]
        dot = name.find(".", dot + 1)
    return (
        next((candidate for candidate in UNSUPPORTED if head.startswith(candidate.magic)), None)
        if head
        else None
    )


def is_ancillary(path: str) -> bool:
    """Return whether a file accompanies data: a readme, a licence, code, a checksum, a log."""
    name = path.rpartition("/")[2].lower()
    if _SUFFIXES.fullmatch(name) is not None:
        return True
    holds_data = not name.endswith(_TEXT) and (
        format_of(name) is not None or unsupported_format(name) is not None
    )
    return not holds_data and _NAMES.fullmatch(name) is not None
