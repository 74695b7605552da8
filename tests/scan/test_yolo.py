"""Folders in YOLO's layout without a schema: pictures, a label file for each, and a data.yaml."""

import numpy as np
import pytest
from PIL import Image

from datacheck.infer.draft import draft
from datacheck.scan import scan
from datacheck.schema.load import parse_schema

WIDTH, HEIGHT = 64, 48
LISTED = "train: images/train\nval: images/val\nnc: 3\nnames: [cup, hand, box]\n"
NUMBERED = "path: .\ntrain: images/train\nval: images/val\nnames:\n  0: cup\n  1: hand\n  2: box\n"


def boxes(rng):
    """Return rows of class, centre and size, whose boxes lie in the picture."""
    count = int(rng.integers(1, 4))
    size = rng.uniform(0.05, 0.4, (count, 2))
    centre = rng.uniform(size / 2, 1 - size / 2)
    return np.concatenate([rng.integers(0, 3, (count, 1)), centre, size], axis=1)


def line(row):
    return " ".join([str(int(row[0])), *(f"{value:.6f}" for value in row[1:])])


@pytest.fixture
def yolo(tmp_path):
    """Write 30 pictures of train and 10 of val; return the folder."""
    data = tmp_path / "d"
    rng = np.random.Generator(np.random.Philox(5))
    for split, count in (("train", 30), ("val", 10)):
        for kind in ("images", "labels"):
            (data / kind / split).mkdir(parents=True)
        for i in range(count):
            pixels = rng.integers(0, 255, (HEIGHT, WIDTH, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(data / f"images/{split}/{split}_{i:03d}.jpg")
            rows = boxes(rng)
            rows[0, 0] = i % 3
            write(data, f"{split}/{split}_{i:03d}", rows)
    (data / "data.yaml").write_text(LISTED)
    return data


def write(data, name, rows):
    (data / f"labels/{name}.txt").write_text("".join(f"{line(row)}\n" for row in rows))


def read(data, name):
    return np.loadtxt(data / f"labels/{name}.txt", ndmin=2)


def found(data):
    report = scan(data, output=data.parent / "out").report
    return {f.code: (f.kind, f.failed) for f in report.findings}


@pytest.mark.parametrize("document", [LISTED, NUMBERED])
def test_labels_are_cut_into_classes_and_boxes(yolo, document):
    (yolo / "data.yaml").write_text(document)
    schema = parse_schema(draft(yolo).text)
    assert schema.samples.files == ("images/{split}/{id}.jpg",)
    assert schema.fields["labels"].file == "labels/{split}/{id}.txt"
    classes = schema.fields["labels.class"].classes
    assert (classes.low, classes.high) == (0, 2)
    box = schema.fields["labels.boxes"]
    assert (box.role, box.unit, box.box_format, box.pixels_of) == ("boxes", "1", "cxcywh", "images")
    assert found(yolo) == {}


def test_without_a_document_the_fractions_show_the_layout(yolo):
    (yolo / "data.yaml").unlink()
    fields = parse_schema(draft(yolo).text).fields
    assert fields["labels.boxes"].box_format == "cxcywh"
    assert fields["labels.class"].classes is None


def test_pictures_of_the_background_have_an_empty_file_or_none(yolo):
    write(yolo, "train/train_004", [])
    (yolo / "labels/train/train_009.txt").unlink()
    assert "DC101" not in found(yolo)
    assert "DC104" not in found(yolo)
    assert scan(yolo, output=yolo.parent / "out").report.exit_code == 0


def in_pixels(rows):
    rows[:, 1:] *= [WIDTH, HEIGHT, WIDTH, HEIGHT]


def next_class(rows):
    rows[:, 0] += 1


def no_width(rows):
    rows[0, 3] = 0


def corners(rows):
    rows[0, 1:] = [0.7, 0.7, 0.9, 0.9]  # x_max and y_max where width and height belong


@pytest.mark.parametrize(
    ("change", "code", "kind", "failed"),
    [
        (in_pixels, "DC409", "pixels", 3),
        (no_width, "DC409", "flat", 3),
        (next_class, "DC404", "", 1),  # of three, one holds the last class
        (corners, "DC409", "edge", 3),
    ],
)
def test_a_fault_of_the_labels_is_named(yolo, change, code, kind, failed):
    for i in (2, 7, 12):
        name = f"train/train_{i:03d}"
        rows = read(yolo, name)
        rows[:, 0] = (2, 0, 1)[(2, 7, 12).index(i)]
        change(rows)
        write(yolo, name, rows)
    assert found(yolo).get(code, ("absent", 0)) == (kind, failed)


@pytest.mark.parametrize("folder", ["gaze", "traj"])
def test_other_tables_of_five_columns_are_no_boxes(yolo, folder):
    """Corners by frame in 0..1, and rows of an index and four numbers of any size."""
    rng = np.random.Generator(np.random.Philox(6))
    (yolo / "data.yaml").unlink()
    for split in ("train", "val"):
        (yolo / folder / split).mkdir(parents=True)
        for path in sorted((yolo / "labels" / split).iterdir()):
            low = rng.uniform(0, 0.4, (6, 2))
            numbers = np.concatenate([low, low + 0.5], axis=1) if folder == "gaze" else None
            numbers = rng.normal(0, 5, (6, 4)) if numbers is None else numbers
            table = np.concatenate([np.arange(6.0)[:, None], numbers], axis=1)
            np.savetxt(yolo / folder / split / path.name, table, fmt="%.6f")
            path.unlink()
    fields = parse_schema(draft(yolo).text).fields
    assert not any(field.role == "boxes" for field in fields.values())


@pytest.mark.parametrize(
    "odd", ["20000 0.5 0.5 0.2 0.2", "-1 0.5 0.5 0.2 0.2", "0.5 0.5 0.5 0.2 0.2"]
)
def test_one_odd_line_hides_no_fault_of_the_other_files(yolo, odd):
    """The table of five numbers was then judged by its range, and nothing was found."""
    for i in (7, 12):
        rows = read(yolo, f"train/train_{i:03d}")
        rows[0, 0], rows[0, 3] = 7, 0
        write(yolo, f"train/train_{i:03d}", rows)
    (yolo / "labels/train/train_020.txt").write_text(odd + "\n")
    codes = found(yolo)
    assert codes["DC409"] == ("flat", 2)
    assert codes["DC404"][1] >= 2


def test_a_row_of_six_numbers_hides_no_fault_of_the_other_files(yolo):
    rows = read(yolo, "train/train_007")
    rows[0, 3] = 0
    write(yolo, "train/train_007", rows)
    (yolo / "labels/train/train_020.txt").write_text("0 0.5 0.5 0.2 0.2 0.9\n")
    codes = found(yolo)
    assert codes["DC409"] == ("flat", 1)
    assert codes.keys() - {"DC409"}  # the file itself
