"""JSON documents with a record for each of many files: the frames of nerfstudio, COCO's pictures."""

import json

import numpy as np
import pytest

from datacheck.errors import FormatError
from datacheck.formats.base import open_container


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


def test_an_annotation_of_no_picture_is_named(tmp_path):
    lost = {"id": 4, "image_id": 8, "category_id": 3, "bbox": [0, 0, 1, 1], "caption": ""}
    container = opened(tmp_path, {**COCO, "annotations": [lost, *COCO["annotations"]]})
    container.groups("/images/*")
    assert container.unmatched() == {
        "annotations/0": "has image_id 8, which is the id of no picture"
    }


def test_polygons_stay_lists_also_where_all_are_alike(tmp_path):
    polygon = [[0, 0, 1, 0, 1, 1]]
    annotations = [{**a, "segmentation": polygon} for a in COCO["annotations"]]
    container = opened(tmp_path, {**COCO, "annotations": annotations})
    container.groups("/images/*")
    assert container.read("images/a.jpg/segmentation") == [polygon]


def test_annotations_that_lack_a_box_keep_lists(tmp_path):
    annotations = [COCO["annotations"][0], {"id": 2, "image_id": 7, "category_id": 4}]
    container = opened(tmp_path, {**COCO, "annotations": annotations})
    container.groups("/images/*")
    assert container.read("images/b.jpg/bbox") == [[1, 2, 10, 5]]
    assert container.read("images/a.jpg/bbox") == [None]
    assert container.read("images/a.jpg/classes").tolist() == [4]


@pytest.mark.parametrize(
    "records",
    [
        [{"file_name": "a.jpg"}, {"name": "b.jpg"}],
        [{"file_name": "a.jpg"}, "b.jpg"],
        [{"file_name": "../a.jpg"}, {"file_name": "b.jpg"}],
        [{"file_name": "/etc/a.jpg"}, {"file_name": "b.jpg"}],
        [{"file_name": ""}, {"file_name": "b.jpg"}],
        [{"file_name": 1}, {"file_name": 2}],
        [],
    ],
)
def test_other_lists_give_no_groups(tmp_path, records):
    container = opened(tmp_path, {"images": records})
    assert container.groups("/images/*") == []
    assert container.names() == ["images"]
    assert container.file_lists() == {}


def test_two_records_of_one_file_are_refused(tmp_path):
    container = opened(tmp_path, {"images": [{"file_name": "a.jpg"}, {"file_name": "./a.jpg"}]})
    with pytest.raises(FormatError, match=r"two records name a\.jpg"):
        container.groups("/images/*")
