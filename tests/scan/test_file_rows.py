"""Folders with a table whose rows name the files: a driving log, boxes of pictures, sounds with texts."""

import wave

import numpy as np
import pytest
from PIL import Image

from datacheck.formats.table_rows import named_path
from datacheck.infer.draft import draft
from datacheck.scan import scan
from datacheck.schema.load import parse_schema

WIDTH, HEIGHT = 40, 30
SIDES = ("center", "left", "right")


def picture(path, seed):
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 255, (HEIGHT, WIDTH, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path)


def table(path, *rows):
    path.write_text("\n".join(rows) + "\n")


def scanned(data):
    return scan(data, output=data.parent / "out", level="deep")


def found(run):
    """Return code, fields and keys of the findings."""
    return sorted(
        (f.code, f.fields, tuple(sorted(run.table.keys[row] for row in f.rows)))
        for f in run.report.findings
    )


def driving(data, prefix="IMG/", steering=None):
    """Write the log of Udacity's simulator with 60 rows of three pictures."""
    rng = np.random.default_rng(4)
    rows = ["center,left,right,steering,throttle,brake,speed"]
    for i in range(60):
        names = [f"{side}_2016_12_01_13_30_{i:03d}.jpg" for side in SIDES]
        for k, name in enumerate(names):
            picture(data / "IMG" / name, seed=3 * i + k)
        value = (steering or {}).get(i, f"{rng.normal(0, 0.1):.6f}")
        cells = ", ".join(prefix + name for name in names)
        rows.append(f"{cells}, {value}, {rng.random():.5f}, 0, {20 + rng.random():.5f}")
    table(data / "driving_log.csv", *rows)
    return data


@pytest.mark.parametrize("prefix", ["IMG/", "/home/x/data/IMG/", "C:\\sim\\IMG\\"])
def test_the_rows_of_a_driving_log_are_samples_with_three_pictures(tmp_path, prefix):
    data = driving(tmp_path / "drive", prefix)
    schema = parse_schema(draft(data).text)
    assert schema.samples.files == ("driving_log.csv",)
    folder = {"IMG/": "IMG", "C:\\sim\\IMG\\": "sim/IMG"}.get(prefix, "home/x/data/IMG")
    assert schema.samples.each == f"/center/{folder}/center_{{image}}"
    files = {name: field.file for name, field in schema.fields.items() if field.role == "image"}
    assert files == {
        "picture": "IMG/center_{image}",
        "left": "IMG/left_{image}",
        "right": "IMG/right_{image}",
    }
    assert {"steering", "throttle", "brake", "speed"} <= schema.fields.keys()
    run = scanned(data)
    assert (found(run), len(run.table), run.report.exit_code) == ([], 60, 0)


def test_a_picture_that_is_gone_is_a_fault_of_its_row(tmp_path):
    data = driving(tmp_path / "drive")
    (data / "IMG/left_2016_12_01_13_30_005.jpg").unlink()
    codes = {code: keys for code, _, keys in found(scanned(data))}
    key = "driving_log.csv:/center/IMG/center_2016_12_01_13_30_005.jpg"
    assert codes["DC104"] == (key,)


def boxes(data, header, row, change=lambda rows: rows):
    """Write 40 pictures with 1 to 3 boxes of 10 x 8 pixels each."""
    rng = np.random.default_rng(2)
    rows = []
    for i in range(40):
        picture(data / f"images/im{i:03d}.jpg", seed=i)
        for _ in range(1 + i % 3):
            x, y = rng.integers(0, 20, 2)
            label = ("car", "bike", "person")[rng.integers(3)]
            rows.append([f"im{i:03d}.jpg", x, y, x + 10, y + 8, label])
    lines = [row.format(*cells) for cells in change(rows)]
    table(data / "labels.csv", header, *lines)
    return data


LAYOUTS = [  # the header, and a row of name, corners and class
    ("filename,x1,y1,x2,y2,class", "{0},{1},{2},{3},{4},{5}"),
    ("filename,width,height,class,xmin,ymin,xmax,ymax", "{0},40,30,{5},{1},{2},{3},{4}"),
    ("Image_Path,XMin,XMax,YMin,YMax,Label", "../images/{0},{1},{3},{2},{4},{5}"),
]


@pytest.mark.parametrize(("header", "row"), LAYOUTS)
def test_the_boxes_of_a_picture_are_its_rows(tmp_path, header, row):
    data = boxes(tmp_path / "boxes", header, row)
    schema = parse_schema(draft(data).text)
    assert schema.fields["picture"].file == "images/{image}"
    assert (schema.fields["boxes"].role, schema.fields["boxes"].unit) == ("boxes", "px")
    assert schema.fields["boxes"].pixels_of == "picture"
    run = scanned(data)
    assert (found(run), len(run.table), run.report.exit_code) == ([], 40, 0)


@pytest.mark.parametrize(("header", "row"), LAYOUTS)
def test_a_box_outside_of_its_picture_is_named(tmp_path, header, row):
    def spoil(rows):
        rows[9][1] += 300
        rows[9][3] += 300
        return rows

    data = boxes(tmp_path / "boxes", header, row, spoil)
    ((code, fields, keys),) = found(scanned(data))
    assert (code, fields) == ("DC409", ("boxes",))
    # 1, 2 and 3 rows for each three pictures: row 9 is of the picture 5.
    assert [key.rpartition("/")[2] for key in keys] == ["im005.jpg"]


def test_a_class_of_a_box_in_two_spellings_is_named_with_its_picture(tmp_path):
    def spoil(rows):
        number = next(i for i, row in enumerate(rows) if i > 20 and row[5] == "person")
        rows[number][5] = "Person"
        spoilt.append(rows[number][0])
        return rows

    spoilt = []
    ((code, fields, keys),) = found(scanned(boxes(tmp_path / "boxes", *LAYOUTS[0], spoil)))
    assert (code, fields) == ("DC413", ("class",))
    assert keys == (f"labels.csv:/filename/{spoilt[0]}",)


def test_fractions_of_a_picture_are_boxes_without_a_unit(tmp_path):
    def fractions(rows):
        return [[n, x / 40, y / 30, a / 40, b / 30, c] for n, x, y, a, b, c in rows]

    data = boxes(tmp_path / "boxes", *LAYOUTS[0], fractions)
    assert parse_schema(draft(data).text).fields["boxes"].unit == "1"
    assert found(scanned(data)) == []


def test_a_row_without_corners_is_a_picture_without_a_box(tmp_path):
    def empty(rows):
        return [["im000.jpg", "", "", "", "", ""], *rows[1:]]

    run = scanned(boxes(tmp_path / "boxes", *LAYOUTS[0], empty))
    assert (found(run), len(run.table)) == ([], 40)


def classes(data, labels, ending=""):
    rows = ["image,label,age"]
    for i, label in enumerate(labels):
        picture(data / f"images/im{i:03d}.jpg", seed=i)
        rows.append(f"im{i:03d}{ending},{label},{20 + i % 9}")
    table(data / "train.csv", *rows)
    return data


@pytest.mark.parametrize("ending", ["", ".jpg"])
@pytest.mark.parametrize("odd", ["horse", "Horse"])
def test_a_class_in_two_spellings_is_named_with_its_row(tmp_path, ending, odd):
    labels = ["horse", "zebra"] * 30
    labels[8] = odd
    expected = [("DC413", ("label",), (f"train.csv:/image/im008{ending}",))]
    assert found(scanned(classes(tmp_path / "d", labels, ending))) == expected * (odd == "Horse")


def test_the_second_row_of_one_picture_is_named(tmp_path):
    data = classes(tmp_path / "a", ["horse", "zebra"] * 30, ".jpg")
    with (data / "train.csv").open("a") as file:
        file.write("im003.jpg,horse,25\n")
    (finding,) = [f for f in scanned(data).report.findings if f.code == "DC101"]
    assert "im003.jpg was named before" in finding.message
    assert finding.examples == ("train.csv:/image[60]",)


def test_the_texts_of_sounds_have_the_sound_beside_them(tmp_path):
    data = tmp_path / "sounds"
    (data / "wavs").mkdir(parents=True)
    rng = np.random.default_rng(5)
    rows = ["file_name,text"]
    for i in range(30):
        with wave.open(str(data / f"wavs/a{i:03d}.wav"), "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(8000)
            file.writeframes((rng.normal(size=1000 + i) * 3000).astype("<i2").tobytes())
        rows.append(f'wavs/a{i:03d}.wav,"sentence {i}, as it is spoken"')
    table(data / "metadata.csv", *rows)
    schema = parse_schema(draft(data).text)
    assert schema.fields["samples"].file == schema.fields["rate"].file == "wavs/{image}"
    assert "text" in schema.fields
    run = scanned(data)
    assert (found(run), len(run.table)) == ([], 30)


def test_a_table_that_names_no_files_decides_nothing(tmp_path):
    data = tmp_path / "d"
    for i in range(40):
        picture(data / f"images/{i}.jpg", seed=i)
    table(data / "notes.csv", "who,what", "anna,one", "bert,two", "carl,three")
    assert "notes.csv" not in str(parse_schema(draft(data).text).samples.files)


@pytest.mark.parametrize(
    ("cell", "path"),
    [
        (" IMG/1.jpg", "IMG/1.jpg"),
        ("./IMG//1.jpg", "IMG/1.jpg"),
        ("../IMG/1.jpg", "IMG/1.jpg"),
        ("D:\\a\\1.jpg", "a/1.jpg"),
        ("a/../1.jpg", None),
        ("", None),
        ("/", None),
        ("a\nb", None),
        ("x" * 501, None),
    ],
)
def test_names_of_files(cell, path):
    assert named_path(cell) == path


def boxes_of(path, numbers):
    rows = ["filename,xmin,ymin,xmax,ymax,class"]
    rows += [f"{n:03d}.jpg,{n % 9},{n % 7},{n % 9 + 8},{n % 7 + 9},cat" for n in numbers]
    table(path, *rows)


def test_a_table_of_all_rows_is_no_split_beside_train_and_test(tmp_path):
    """The tables of the raccoon dataset: cats_labels.csv has the rows of the other two."""
    data = tmp_path / "cats"
    for n in range(40):
        picture(data / "images" / f"{n:03d}.jpg", n)
    tables = {"cats": range(40), "train": range(30), "test": range(30, 40)}
    for name, numbers in tables.items():
        boxes_of(data / f"{name}_labels.csv", numbers)
    schema = parse_schema(draft(data).text)
    assert schema.samples.files == ("{split:test|train}_labels.csv",)
    run = scanned(data)
    assert (found(run), len(run.table)) == ([], 40)
