"""OBJ and OFF: by hand, and against trimesh on real files."""

from __future__ import annotations

import numpy as np
import pytest
import trimesh

from datacheck.errors import FormatError
from tests.formats.reading import CORPUS, read_all


def test_faces_by_hand():
    assert read_all(CORPUS / "obj/y_quad.obj")["faces"].tolist() == [[0, 1, 2], [0, 2, 3]]
    assert read_all(CORPUS / "obj/y_slashes.obj")["faces"].tolist() == [[0, 1, 2], [0, 2, 3]]
    # four vertices before the first face, five before the second
    assert read_all(CORPUS / "obj/y_negative.obj")["faces"].tolist() == [[0, 1, 2], [4, 0, 1]]
    continued = read_all(CORPUS / "obj/y_continued.obj")
    assert continued["faces"].tolist() == [[0, 1, 2], [0, 2, 3]]
    assert continued["points"].tolist() == [[0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0]]
    assert read_all(CORPUS / "off/y_square.off")["faces"].tolist() == [[0, 1, 2], [0, 2, 3]]
    assert read_all(CORPUS / "off/y_one_line.off")["faces"].tolist() == [[0, 1, 2]]


def test_normals_colors_and_nothing():
    assert read_all(CORPUS / "obj/y_slashes.obj")["normals"].tolist() == [[0, 0, 1]]
    colors = read_all(CORPUS / "obj/y_colors.obj")["colors"]
    np.testing.assert_array_equal(colors, [[1, 0, 0], [np.nan] * 3])
    nothing = read_all(CORPUS / "obj/y_nothing.obj")
    assert {name: value.shape for name, value in nothing.items()} == {"points": (0, 3)}


REAL = [
    "a_pointclouds/mikedh-trimesh/rabbit.obj",
    "a_pointclouds/mikedh-trimesh/nancolor.obj",
    "a_pointclouds/mikedh-trimesh/ballA.off",
    "a_pointclouds/mikedh-trimesh/comments.off",
    "f_malformed/mikedh-trimesh/jacked.obj",
    "f_malformed/mikedh-trimesh/obj_with_no_face_in_chunk.obj",
    "f_malformed/PDAL-PDAL/obj/hyper_box.obj",
]


def turned(corners) -> list:
    """Triangles with their lowest corner first, sorted: the same whatever corner a writer starts with."""
    rows = [
        [tuple(c) for c in triangle]
        for triangle in np.round(np.asarray(corners, dtype=float), 9).tolist()
    ]
    starts = [row.index(min(row)) for row in rows]
    return sorted(row[k:] + row[:k] for row, k in zip(rows, starts, strict=True))


@pytest.mark.parametrize("name", REAL)
def test_real_meshes_have_trimeshs_triangles(shared_data, name):
    values = read_all(shared_data / name)
    mesh = trimesh.load(shared_data / name, process=False, force="mesh", maintain_order=True)
    assert turned(values["points"][values["faces"]]) == turned(mesh.triangles)


def test_negative_indices_of_a_real_file(shared_data):
    values = read_all(shared_data / "f_malformed/mikedh-trimesh/negative_indices.obj")
    assert values["points"].shape == (8, 3)
    assert values["faces"].shape == (12, 3)


@pytest.mark.parametrize("break_", ["\r", "\x0b", "\x0c"])
@pytest.mark.parametrize("name", ["a.obj", "a.off"])
def test_a_line_that_only_some_readers_see_is_refused(tmp_path, name, break_):
    start = "OFF\n3 1 0\n" if name == "a.off" else ""
    (tmp_path / name).write_bytes(f"{start}v 1 2 3{break_}nan nan nan\nv 1 2 3\nf 1 1 2\n".encode())
    with pytest.raises(FormatError, match="readers differ"):
        read_all(tmp_path / name)


@pytest.mark.parametrize("face", ["2.5 0 1 2", "nan 0 1 2", "3 0 1 1.5", "3 0 1 nan", "3 0 1 -1"])
def test_an_off_face_counts_and_names_whole_vertices(tmp_path, face):
    (tmp_path / "a.off").write_text(f"OFF\n3 1 0\n0 0 0\n1 0 0\n0 1 0\n{face}\n")
    with pytest.raises(FormatError, match="a face"):
        read_all(tmp_path / "a.off")


def test_lines_of_numbers_that_an_off_header_does_not_count_are_refused(tmp_path):
    path = tmp_path / "a.off"
    path.write_text("OFF\n2 0 0\n" + "0 1 2.5\n" * 2 + "end\n")
    assert len(read_all(path)["points"]) == 2
    path.write_text("OFF\n2 0 0\n" + "0 1 2.5\n" * 9)
    with pytest.raises(FormatError, match="7 lines of numbers follow the 2 vertices"):
        read_all(path)
