"""JSON objects: arrays inside of mappings by name, and records of many files (COCO, nerfstudio)."""

import json

import numpy as np
import pytest

from datacheck.errors import FormatError
from datacheck.formats import jsonl
from datacheck.formats.base import open_container
from datacheck.formats.json_objects import squad_questions


def opened(folder, document):
    path = folder / "a.json"
    path.write_text(json.dumps(document))
    return open_container(path)


COCO = {
    "images": [
        {"id": 7, "file_name": "a.jpg", "width": 64, "height": 48},
        {"id": 9, "file_name": "b.jpg", "width": 32, "height": 24},
    ],
    "annotations": [
        {"id": 1, "image_id": 9, "category_id": 3, "bbox": [1, 2, 10, 5], "caption": "one"},
        {"id": 2, "image_id": 7, "category_id": 4, "bbox": [0, 0, 2.5, 4], "caption": "two"},
        {"id": 3, "image_id": 9, "category_id": 3, "bbox": [3, 3, 1, 1], "caption": "three"},
    ],
    "categories": [{"id": 3, "name": "cup"}, {"id": 4, "name": "box"}],
}


def test_a_list_of_records_that_name_files_is_a_list_until_groups_are_asked_for(tmp_path):
    frames = [{"file_path": f"./images/{i}.png", "matrix": np.eye(4).tolist()} for i in (1, 0)]
    container = opened(tmp_path, {"w": 640, "frames": frames})
    assert container.names() == ["frames", "w"]
    assert container.read("frames") == frames
    assert container.groups("/frames/*") == []  # their files lie in a folder
    assert container.groups("/frames/images/*") == ["frames/images/0.png", "frames/images/1.png"]
    assert container.names() == [
        *(f"frames/images/{i}.png/{key}" for i in (0, 1) for key in ("file_path", "matrix")),
        "w",
    ]
    assert (container.read("frames/images/0.png/matrix") == np.eye(4)).all()
    assert container.read("frames/images/0.png/file_path") == "./images/0.png"
    for absent in ("frames", "frames/images/2.png/matrix", "frames/images/0.png/x", "x"):
        with pytest.raises(KeyError):
            container.read(absent)


def test_a_picture_of_coco_has_its_annotations_with_boxes_as_corners(tmp_path):
    container = opened(tmp_path, COCO)
    assert container.groups("/images/*") == ["images/a.jpg", "images/b.jpg"]
    read = {key: container.read(f"images/b.jpg/{key}") for key in ("boxes", "classes", "size")}
    assert read["boxes"].tolist() == [[1, 2, 11, 7], [3, 3, 4, 4]]
    assert read["classes"].tolist() == [3, 3]
    assert read["size"].tolist() == [32, 24]
    assert container.read("images/b.jpg/caption") == ["one", "three"]
    assert container.read("images/a.jpg/boxes").tolist() == [[0, 0, 2.5, 4]]
    assert "annotations" not in container.names()
    assert container.unmatched() == {}
    assert container.category_ids() == [3, 4]


def test_a_picture_without_annotations_has_arrays_without_rows(tmp_path):
    images = [*COCO["images"], {"id": 11, "file_name": "c.jpg", "width": 8, "height": 8}]
    container = opened(tmp_path, {**COCO, "images": images})
    container.groups("/images/*")
    assert container.read("images/c.jpg/boxes").shape == (0, 4)
    assert container.read("images/c.jpg/classes").shape == (0,)
    assert container.read("images/c.jpg/caption") == []


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"image_id": 8}, "image_id 8 is the id of no picture"),
        ({"image_id": None}, "image_id None is the id of no picture"),
        ({"image_id": [7]}, "image_id list is the id of no picture"),
        ({"bbox": "1 2 3 4"}, "bbox '1 2 3 4' is not x, y, width and height"),
        ({"bbox": [1, 2, 3]}, "bbox list is not x, y, width and height"),
        ({"bbox": None}, "bbox None is not x, y, width and height"),
        ({"category_id": 1.5}, "category_id 1.5 is no whole number"),
    ],
)
def test_an_odd_annotation_is_named_and_spoils_no_other(tmp_path, change, reason):
    odd = {"id": 4, "image_id": 9, "category_id": 3, "bbox": [0, 0, 1, 1], "caption": "", **change}
    container = opened(tmp_path, {**COCO, "annotations": [odd, *COCO["annotations"]]})
    container.groups("/images/*")
    assert container.unmatched() == {"annotations[0]": reason}
    assert container.read("images/b.jpg/boxes").tolist() == [[1, 2, 11, 7], [3, 3, 4, 4]]
    assert container.read("images/b.jpg/classes").tolist() == [3, 3]


def test_a_picture_with_the_id_of_another_is_named(tmp_path):
    images = [*COCO["images"], {"id": 9, "file_name": "c.jpg"}]
    container = opened(tmp_path, {**COCO, "images": images})
    assert container.groups("/images/*") == ["images/a.jpg", "images/b.jpg"]
    assert container.unmatched() == {"images/c.jpg": "id 9 is also that of another picture"}


def test_keys_that_mean_something_here_are_not_taken_from_annotations(tmp_path):
    odd = {**COCO["annotations"][0], "boxes": "x", "classes": "y", "size": "z"}
    container = opened(tmp_path, {**COCO, "annotations": [odd, *COCO["annotations"][1:]]})
    container.groups("/images/*")
    assert container.read("images/b.jpg/boxes").tolist() == [[1, 2, 11, 7], [3, 3, 4, 4]]
    assert container.read("images/b.jpg/size").tolist() == [32, 24]


def test_polygons_stay_lists_also_where_all_are_alike(tmp_path):
    polygon = [[0, 0, 1, 0, 1, 1]]
    annotations = [{**a, "segmentation": polygon} for a in COCO["annotations"]]
    container = opened(tmp_path, {**COCO, "annotations": annotations})
    container.groups("/images/*")
    assert container.read("images/a.jpg/segmentation") == [polygon]


def test_annotations_of_which_half_have_no_box_keep_lists(tmp_path):
    annotations = [COCO["annotations"][0], {"id": 2, "image_id": 7, "category_id": 4}]
    container = opened(tmp_path, {**COCO, "annotations": annotations})
    container.groups("/images/*")
    assert container.read("images/b.jpg/bbox") == [[1, 2, 10, 5]]
    assert container.read("images/a.jpg/bbox") == [None]
    assert container.read("images/a.jpg/classes").tolist() == [4]


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ({"name": "c.jpg"}, "file_name names no file below the folder"),
        ("c.jpg", "file_name names no file below the folder"),
        ({"file_name": "../c.jpg"}, "file_name names no file below the folder"),
        ({"file_name": "/etc/c.jpg"}, "file_name names no file below the folder"),
        ({"file_name": "..\\\\c.jpg"}, "file_name names no file below the folder"),
        ({"file_name": ""}, "file_name names no file below the folder"),
        ({"file_name": "a\nb.jpg"}, "file_name names no file below the folder"),
        ({"file_name": "x" * 501}, "file_name names no file below the folder"),
        ({"file_name": "x/" * 17 + "c.jpg"}, "file_name names no file below the folder"),
        ({"file_name": 1}, "file_name names no file below the folder"),
        ({"file_name": "./a.jpg"}, "file_name a.jpg was named before"),
        ({"file_name": "below/a.jpg"}, "its name does not fit /images/*"),
    ],
)
def test_an_odd_record_is_named_and_spoils_no_other(tmp_path, record, reason):
    records = [{"file_name": "a.jpg"}, {"file_name": "b.jpg"}, record]
    container = opened(tmp_path, {"images": records})
    assert container.groups("/images/*") == ["images/a.jpg", "images/b.jpg"]
    (found,) = container.unmatched().values()
    assert found == reason


@pytest.mark.parametrize("name", ["fra{mes", "..", "a/b", "", "a\nb", "\x1b[31m", "a*", "a\\b"])
def test_lists_of_other_names_are_no_lists_of_files(tmp_path, name):
    container = opened(tmp_path, {name: [{"file": "a.jpg"}], "ok": 1})
    assert container.file_lists() == {}


@pytest.mark.parametrize(
    "records", [[], [{"file_name": 1}, {"file_name": 2}], ["a.jpg", "b.jpg"], [{"x": 1}]]
)
def test_lists_that_name_no_files_give_no_groups(tmp_path, records):
    container = opened(tmp_path, {"images": records})
    assert container.groups("/images/*") == []
    assert container.names() == ["images"]
    assert container.file_lists() == {}


ROWS = [{"acc": [float(i), 0.5, 1.0], "time": i} for i in range(20)]


def test_arrays_inside_of_mappings_have_names_and_the_keys_still_give_the_whole(tmp_path):
    document = {
        "emg": {"rate": 200, "data": [[i, -i] for i in range(10)], "unit": "mV"},
        "imu": {"data": ROWS},
        "about": {"site": "left", "box": [1, 2]},
        "none": None,
    }
    container = opened(tmp_path, document)
    assert container.names() == [
        "about",
        *("emg/data", "emg/rate", "emg/unit"),
        *("imu/data/acc", "imu/data/time"),
    ]
    assert container.read("emg/data").tolist() == document["emg"]["data"]
    assert container.read("imu/data/acc").tolist() == [row["acc"] for row in ROWS]
    assert container.read("imu/data/time").tolist() == list(range(20))
    assert container.read("emg/rate") == 200
    assert container.read("about") == document["about"]
    assert container.read("emg") == document["emg"]
    assert container.read("imu") == document["imu"]


@pytest.mark.parametrize(
    "value",
    [
        {"a": list(range(15))},  # too few numbers
        {"a/b": list(range(20))},
        {"": list(range(20))},
        ROWS[:15],
        [*ROWS, {"acc": [1.0, 2.0, 3.0]}],
        [*ROWS, {"acc": [1.0, 2.0], "time": 1}],
        [{**row, "text": "x"} for row in ROWS],
        [{"acc": None, "time": 1}] * 20,
        {},
    ],
)
def test_other_mappings_and_lists_are_one_value(tmp_path, value):
    container = opened(tmp_path, {"x": value})
    assert container.names() == ["x"]
    assert container.read("x") == value


def test_a_name_that_a_key_has_already_stays_that_key(tmp_path):
    document = {"a": {"b": list(range(20))}, "a/b": "text"}
    container = opened(tmp_path, document)
    assert container.names() == ["a", "a/b"]
    assert container.read("a/b") == "text"


def test_arrays_below_many_levels_have_no_name(tmp_path):
    deep = list(range(20))
    for _ in range(9):
        deep = {"x": deep}
    container = opened(tmp_path, {"x": deep})
    assert container.names() == ["x"]
    container = opened(tmp_path, {"x": deep["x"]["x"]})
    assert container.names() == ["/".join("x" * 8)]


@pytest.mark.parametrize(("repeats", "is_list"), [(1, True), (2, False)])
def test_a_list_that_names_files_again_and_again_is_a_list_of_something_else(
    tmp_path, repeats, is_list
):
    questions = [{"file_name": f"{i}.jpg", "question": "why?"} for i in range(20)]
    container = opened(tmp_path, {"data": questions + questions[:repeats]})
    assert ("data" in container.file_lists()) is is_list


def test_a_short_list_is_read_under_the_names_that_a_long_one_has(tmp_path):
    container = opened(tmp_path, {"imu": {"data": ROWS[:3]}, "a": {"b": [1, 2]}})
    assert container.names() == ["a", "imu"]
    assert container.read("imu/data/acc").tolist() == [row["acc"] for row in ROWS[:3]]
    assert container.read("a/b").tolist() == [1, 2]
    for absent in ("imu/data/x", "a/c", "a/b/c", "x/y"):
        with pytest.raises(KeyError):
            container.read(absent)


def test_a_size_is_stated_where_both_sides_are_numbers(tmp_path):
    images = [{"id": 7, "file_name": "a.jpg", "size": 900}, *COCO["images"][1:]]
    container = opened(tmp_path, {**COCO, "images": images})
    container.groups("/images/*")
    assert container.read("images/a.jpg/size") == 900
    assert container.read("images/b.jpg/size").tolist() == [32, 24]


def squad(*paragraphs, title="Rivers"):
    return {"version": "1.1", "data": [{"title": title, "paragraphs": list(paragraphs)}]}


ASKED = {
    "context": "The Rhine is long.",
    "id": "p",
    "qas": [{"id": "a", "question": "Which?"}, {"question": "How?"}],
}


def test_a_question_of_squad_has_the_values_of_its_paragraph_and_article(tmp_path):
    path = tmp_path / "train.json"
    path.write_text(json.dumps(squad(ASKED)))
    shared = {"title": "Rivers", "context": "The Rhine is long."}
    assert list(jsonl.lines(path)) == [
        (0, shared | {"id": "a", "question": "Which?"}),
        (1, shared | {"id": "p", "question": "How?"}),
    ]
    assert open_container(path).names() == ["data", "version"]  # as one document


def test_odd_entries_of_squad_stand_for_themselves():
    odd = {"context": "No questions here."}
    assert squad_questions(squad(ASKED, odd, ASKED))[2] == {"title": "Rivers"} | odd
    assert squad_questions(squad(ASKED | {"qas": ["Which?"]})) == ["Which?"]
    assert squad_questions(squad(ASKED | {"qas": []})) == []


@pytest.mark.parametrize(
    "document",
    [
        [ASKED],
        {"data": []},
        {"data": 3},
        {"data": [{"title": "a"}]},
        squad(),
        squad({"context": "a"}),
    ],
)
def test_a_document_of_another_layout_has_no_questions(document):
    assert squad_questions(document) is None


def test_questions_that_repeat_more_text_than_a_value_may_have_are_refused(monkeypatch):
    monkeypatch.setattr("datacheck.formats.json_objects.TEXT_BYTES", 47)  # twice 18 + 6 are 48
    with pytest.raises(FormatError, match="48 bytes; at most 47"):
        squad_questions(squad(ASKED | {"id": 5}))
