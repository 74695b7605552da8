"""XML: what a document holds by name; annotations of Pascal VOC as a trainer takes them; hostile files cost little."""

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from datacheck.errors import FormatError
from datacheck.formats.base import open_container
from datacheck.infer.draft import draft
from datacheck.scan.start import scan
from tests.formats.reading import CORPUS, read_all


def _read(folder: Path, data: str) -> dict[str, Any]:
    path = folder / "a.xml"
    path.write_text(data, encoding="utf-8")
    return read_all(path)


def test_elements_attributes_and_texts_have_their_names(tmp_path: Path) -> None:
    found = _read(
        tmp_path,
        '<a><b k="1">x<c/>y</b><d>1</d><d>2.5</d><e>007</e><e>true</e><f><g>-3</g></f></a>',
    )
    np.testing.assert_array_equal(found.pop("d"), [1.0, 2.5])
    assert found == {"b": {"@k": 1, "c": "", "#text": "xy"}, "e": ["007", "true"], "f": {"g": -3}}


@pytest.mark.parametrize(
    "text", ["99999999999999999999", "1e999", "nan", "0x10", "1_000", "+1", "1\u0661"]
)
def test_what_is_no_number_of_json_stays_text(tmp_path: Path, text: str) -> None:
    assert _read(tmp_path, f"<a><b>{text}</b></a>") == {"b": text}


def test_an_annotation_gives_boxes_names_and_size() -> None:
    found = read_all(CORPUS / "xml" / "y_voc.xml")
    np.testing.assert_array_equal(found["boxes"], [[1, 2, 30, 40], [5, 6, 64, 48]])
    np.testing.assert_array_equal(found["size"], [64, 48])
    np.testing.assert_array_equal(found["difficult"], [0, 0])
    assert found["names"] == ["cat", "dog"]
    assert "truncated" not in found
    none = read_all(CORPUS / "xml" / "y_voc_none.xml")
    assert (none["boxes"].shape, none["names"]) == ((0, 4), [])
    assert read_all(CORPUS / "xml" / "y_voc_one.xml")["boxes"].shape == (1, 4)


def test_an_annotation_without_boxes_is_plain_xml(tmp_path: Path) -> None:
    found = _read(
        tmp_path, "<annotation><object><polygon><pt>1</pt></polygon></object></annotation>"
    )
    assert list(found) == ["object"]


def test_a_damaged_box_leaves_the_other_values(tmp_path: Path) -> None:
    path = tmp_path / "a.xml"
    path.write_bytes((CORPUS / "xml" / "n_voc_corner.xml").read_bytes())
    with open_container(path) as container:
        assert container.read("names") == ["cat"]
        with pytest.raises(FormatError, match="no xmax"):
            container.read("boxes")


@pytest.mark.parametrize(
    ("data", "why"),
    [
        ("<a>" + "<b/>" * 1_100_000 + "</a>", "more than 1,000,000 elements"),
        ("<a>" * 100_000, "nested more than 64 deep"),
        ("<a " + " ".join(f'k{i}="1"' for i in range(500_000)) + "/>", "480,000"),
        (
            '<!DOCTYPE a [<!ENTITY b "' + "x" * 100_000 + '">]><a>' + "&b;" * 100_000 + "</a>",
            "document type",
        ),
    ],
)
def test_hostile_xml_is_refused(tmp_path: Path, data: str, why: str) -> None:
    began = time.process_time()
    with pytest.raises(FormatError, match=why):
        _read(tmp_path, data)
    assert time.process_time() - began < 20


# ----------------------------------------------------------------------------------- the schema voc


def _object(box: tuple[float, ...]) -> str:
    corners = "".join(
        f"<{n}>{v}</{n}>" for n, v in zip(("xmin", "ymin", "xmax", "ymax"), box, strict=True)
    )
    return f"<object><name>cat</name><bndbox>{corners}</bndbox></object>"


def _voc(
    folder: Path,
    *,
    boxes: dict[int, tuple[float, ...]] | None = None,
    sizes: dict[int, str] | None = None,
) -> Path:
    for name in ("JPEGImages", "Annotations", "ImageSets/Main"):
        (folder / name).mkdir(parents=True)
    rng = np.random.default_rng(7)
    for i in range(30):
        width, height = (64, 48) if i % 2 else (48, 64)
        pixels = rng.integers(0, 255, (height, width, 3)).astype(np.uint8)
        Image.fromarray(pixels).save(folder / f"JPEGImages/{i:03d}.jpg")
        box = (boxes or {}).get(i, (1, 1, width, 20 + i % 7))
        size = (sizes or {}).get(i, f"<width>{width}</width><height>{height}</height>")
        said = f"<annotation><size>{size}</size>{_object((2, 2, 9, 9))}{_object(box)}</annotation>"
        (folder / f"Annotations/{i:03d}.xml").write_text(said)
    for name, some in {"train": range(20), "val": range(20, 30), "trainval": range(30)}.items():
        (folder / f"ImageSets/Main/{name}.txt").write_text("".join(f"{i:03d}\n" for i in some))
    return folder


def _found(folder: Path) -> list[tuple[str, str, list[str]]]:
    run = scan(folder)
    return [
        (f.code, f.message, [run.table.keys[i] for i in f.rows.tolist()])
        for f in run.report.findings
    ]


def test_clean_annotations_are_silent_and_init_knows_the_layout(tmp_path: Path) -> None:
    assert _found(_voc(tmp_path / "d")) == []
    assert "extends: voc" in draft(tmp_path / "d").text


def test_boxes_outside_of_their_picture_are_found(tmp_path: Path) -> None:
    folder = _voc(
        tmp_path / "d", boxes={3: (100, 70, 120, 90), 5: (60, 40, 67.5, 48), 7: (8, 8, 8, 20)}
    )
    flat, edge, outside = sorted(
        _found(folder), key=lambda one: "centre" in one[1] or "beyond" in one[1]
    )
    assert flat[::2] == ("DC409", ["JPEGImages/007.jpg"])
    assert {edge[2][0], outside[2][0]} == {"JPEGImages/003.jpg", "JPEGImages/005.jpg"}
    said = {keys[0]: message for _, message, keys in (edge, outside)}
    assert "centre lies outside of image; they reach up to 56 pixels" in said["JPEGImages/003.jpg"]
    assert "reach beyond image, by up to 4 pixels" in said["JPEGImages/005.jpg"]


def test_a_size_that_is_not_the_picture_s_is_found(tmp_path: Path) -> None:
    folder = _voc(tmp_path / "d", sizes={4: "<width>64</width><height>48</height>"})
    ((code, message, keys),) = _found(folder)
    assert (code, keys) == ("DC111", ["JPEGImages/004.jpg"])
    assert "64 x 48 where the picture has 48 x 64 pixels" in message


def test_a_picture_on_its_side_was_not_resized(tmp_path: Path) -> None:
    folder = _voc(
        tmp_path / "d",
        sizes={
            4: "<width>64</width><height>48</height>",
            6: "<width>123456789</width><height>64</height>",
        },
    )
    run = scan(folder)
    fixes = {run.table.keys[int(f.rows[0])]: (f.fix, f.message) for f in run.report.findings}
    assert "EXIF orientation" in fixes["JPEGImages/004.jpg"][0]
    assert "resized" not in fixes["JPEGImages/004.jpg"][0]
    assert "resized" in fixes["JPEGImages/006.jpg"][0]
    assert "123456789 x 64 where the picture has 48 x 64" in fixes["JPEGImages/006.jpg"][1]


def test_missing_annotations_and_pictures_and_those_in_no_list_are_named(tmp_path: Path) -> None:
    folder = _voc(tmp_path / "d")
    (folder / "Annotations/002.xml").unlink()
    (folder / "JPEGImages/004.jpg").unlink()
    Image.new("RGB", (64, 48)).save(folder / "JPEGImages/more.jpg")
    found = {code + key: message for code, message, keys in _found(folder) for key in keys or [""]}
    assert set(found) >= {"DC129JPEGImages/002.jpg", "DC105JPEGImages/004.jpg", "DC105"}
    assert "JPEGImages/more.jpg" in found["DC105"]
    assert not any("first counts" in message for message in found.values())


def test_a_split_without_annotations_has_none_on_purpose(tmp_path: Path) -> None:
    folder = _voc(tmp_path / "d")
    for i in range(20, 30):
        (folder / f"Annotations/{i:03d}.xml").unlink()
    assert _found(folder) == []


def test_a_damaged_annotation_is_named(tmp_path: Path) -> None:
    folder = _voc(tmp_path / "d")
    path = folder / "Annotations/006.xml"
    path.write_bytes(path.read_bytes()[:60])
    ((code, message, keys),) = _found(folder)
    assert (code, keys) == ("DC101", ["JPEGImages/006.jpg"])
    assert "Annotations/006.xml: not XML" in message


def test_an_encoding_of_several_bytes_is_told_as_one(tmp_path: Path) -> None:
    path = tmp_path / "a.xml"
    path.write_bytes('<?xml version="1.0" encoding="gb2312"?><a><b>\u732b</b></a>'.encode("gb2312"))
    with pytest.raises(
        FormatError, match=r"^XML in an encoding that is not read .*: write it as UTF-8$"
    ):
        read_all(path)
