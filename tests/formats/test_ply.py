"""PLY: equal to plyfile's reading of the same file."""

from __future__ import annotations

import numpy as np
import plyfile
import pytest

from datacheck.errors import FormatError
from tests.formats.reading import CORPUS, read_all

GROUPS = {
    "points": ("x", "y", "z"),
    "normals": ("nx", "ny", "nz"),
    "colors": ("red", "green", "blue"),
}


def compare(path) -> None:
    """Compare every vertex property, and the faces of a mesh of triangles, with plyfile."""
    values, reference = read_all(path), plyfile.PlyData.read(path)
    vertex = reference["vertex"]
    names = [p.name for p in vertex.properties]
    for group, parts in GROUPS.items():
        if all(p in names for p in parts):
            expected = np.stack([vertex[p] for p in parts], axis=-1)
            np.testing.assert_array_equal(values[group], expected)
            assert values[group].dtype == expected.dtype.newbyteorder("=")
            names = [n for n in names if n not in parts]
    for name in names:
        np.testing.assert_array_equal(values[name], vertex[name])
    if "face" in reference:
        polygons = [list(p) for p in reference["face"].data[reference["face"].properties[0].name]]
        fans = [[p[0], p[i], p[i + 1]] for p in polygons for i in range(1, len(p) - 1)]
        assert values["faces"].tolist() == fans


@pytest.mark.parametrize(
    "name", ["ascii", "crlf", "quad", "little", "big", "little_mixed", "big_mixed"]
)
def test_corpus_files(name):
    compare(CORPUS / f"ply/y_{name}.ply")


@pytest.mark.parametrize(
    "name",
    ["bunny", "fuze", "featuretype", "cube_blender_uv", "points_bin", "tet", "multi", "metadata"],
)
def test_real_files(shared_data, name):
    compare(shared_data / f"a_pointclouds/mikedh-trimesh/{name}.ply")


def test_a_quad_is_a_fan():
    assert read_all(CORPUS / "ply/y_quad.ply")["faces"].tolist() == [
        [0, 1, 2],
        [0, 2, 3],
        [0, 1, 2],
    ]


def test_lists_and_other_elements_are_named_after_them():
    values = read_all(CORPUS / "ply/y_lists.ply")
    assert values["strip.w"].tolist() == [0.5, 1.5]
    assert values["strip.w.lengths"].tolist() == [2, 0]
    assert values["strip.s"].tolist() == [9, 8]


def test_colors_stay_as_stored_and_alpha_is_its_own_value():
    values = read_all(CORPUS / "ply/y_little.ply")
    assert values["colors"].dtype == np.uint8
    assert values["colors"][0].tolist() == [255, 128, 0]
    assert values["alpha"].tolist() == [9] * 4


def test_a_comment_may_speak_of_the_end_of_the_header(tmp_path):
    (tmp_path / "a.ply").write_text(
        "ply\nformat ascii 1.0\ncomment before end_header\nelement vertex 1\n"
        "property float x\nproperty float y\nproperty float z\nend_header\n1 2 3\n"
    )
    assert read_all(tmp_path / "a.ply")["points"].tolist() == [[1, 2, 3]]


@pytest.mark.parametrize(
    "comment", ["a\x0bproperty float w", "a\x1cproperty float w", "a\rproperty float w"]
)
def test_a_line_that_only_some_readers_see_is_refused(tmp_path, comment):
    """plyfile and rply take all of it for a comment; `str.splitlines` ends lines there."""
    header = (
        f"ply\nformat ascii 1.0\ncomment {comment}\nelement vertex 1\nproperty float "
        f"x\nend_header\n1\n"
    )
    (tmp_path / "a.ply").write_bytes(header.encode())
    with pytest.raises(FormatError, match="readers differ"):
        read_all(tmp_path / "a.ply")


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_lines_may_end_in_three_ways(tmp_path, end):
    lines = ["ply", "format binary_little_endian 1.0", "element vertex 1"]
    lines += ["property float x", "property float y", "property float z", "end_header", ""]
    body = np.array([[1, 2, 3]], "<f4")
    (tmp_path / "a.ply").write_bytes(end.join(lines).encode() + body.tobytes())
    assert read_all(tmp_path / "a.ply")["points"].tolist() == [[1, 2, 3]]


@pytest.mark.parametrize("last", ["end_headerfoo", "comment a\rend_header"])
def test_the_header_ends_at_a_line_of_its_own(tmp_path, last):
    (tmp_path / "a.ply").write_text(
        f"ply\nformat ascii 1.0\nelement vertex 1\nproperty float x\n{last}\n1\n", newline=""
    )
    with pytest.raises(FormatError, match="no end_header"):
        read_all(tmp_path / "a.ply")


@pytest.mark.parametrize("count", ["2.5", "-1", "nan", "inf"])
def test_a_list_has_a_whole_number_of_entries(tmp_path, count):
    (tmp_path / "a.ply").write_text(
        f"ply\nformat ascii 1.0\nelement face 1\nproperty list uchar int "
        f"vertex_indices\nend_header\n{count} 0 0 0\n"
    )
    with pytest.raises(FormatError, match="entries"):
        read_all(tmp_path / "a.ply")


@pytest.mark.parametrize(
    "sizes",
    [
        [3] * 40 + [4],
        [3, 4] * 30,
        [4] * 20 + [3, 5, 3] * 9 + [0] * 50 + [3],
        [0, 1, 2] * 3000 + [7] * 100,
    ],
)
def test_lists_of_several_lengths_are_read_in_order(tmp_path, sizes):
    rows = b"".join(
        bytes([size])
        + np.arange(number, number + size, dtype="<i4").tobytes()
        + bytes([number % 256])
        for number, size in enumerate(sizes)
    )
    head = f"ply\nformat binary_little_endian 1.0\nelement odd {len(sizes)}\n"
    head += "property list uchar int items\nproperty uchar number\nend_header\n"
    (tmp_path / "a.ply").write_bytes(head.encode() + rows)
    values, reference = (
        read_all(tmp_path / "a.ply"),
        plyfile.PlyData.read(tmp_path / "a.ply")["odd"],
    )
    assert values["odd.items"].tolist() == np.concatenate(reference["items"]).tolist()
    assert values["odd.items.lengths"].tolist() == list(map(len, reference["items"])) == sizes
    assert values["odd.number"].tolist() == reference["number"].tolist()


@pytest.mark.parametrize(
    "line",
    [
        "format ascii 7.0",
        "format ascii 1.0 uint",
        "element vertex 1 2",
        "property float x y",
        "property list uchar int a b",
    ],
)
def test_a_header_line_with_other_words_than_its_own_is_refused(tmp_path, line):
    """plyfile raises at each."""
    lines = ["format ascii 1.0", "element vertex 1", "property float x"]
    lines = [line, *lines[1:]] if line.startswith("format") else [*lines, line]
    (tmp_path / "a.ply").write_text("\n".join(["ply", *lines, "end_header", "1 2 3", ""]))
    with pytest.raises(FormatError, match="cannot be read"):
        read_all(tmp_path / "a.ply")
    with pytest.raises(plyfile.PlyParseError):
        plyfile.PlyData.read(tmp_path / "a.ply")


@pytest.mark.parametrize(("count", "refused"), [(50, True), (4000, False), (5000, False)])
def test_a_text_file_of_which_most_rows_are_not_declared_is_refused(tmp_path, count, refused):
    path = tmp_path / "a.ply"
    head = f"ply\nformat ascii 1.0\nelement vertex {count}\nproperty float x\nend_header\n"
    path.write_text(head + "1.5\n" * 5000)
    if refused:
        with pytest.raises(FormatError, match="4,950 numbers follow the 50"):
            read_all(path)
    else:
        assert read_all(path)["x"].shape == (count,)
