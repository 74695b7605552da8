"""Folders with a document that names their pictures: COCO, Roboflow, nerfstudio, without a schema."""

import json

import numpy as np
import pytest
from PIL import Image

from datacheck.infer.draft import draft
from datacheck.model.finding import Severity
from datacheck.pipeline import build
from datacheck.scan import scan
from datacheck.schema.load import parse_schema
from datacheck.torch import CachedDataset

WIDTH, HEIGHT = 64, 48
CATEGORIES = [{"id": number, "name": f"class {number}"} for number in (1, 2, 5)]


def picture(path, seed):
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 255, (HEIGHT, WIDTH, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path)


def coco(names, seed=0):
    """Return a document with 1 to 3 boxes for each picture, whose areas are theirs."""
    rng = np.random.default_rng(seed)
    images = [
        {"id": 10 + i, "file_name": name, "width": WIDTH, "height": HEIGHT}
        for i, name in enumerate(names)
    ]
    annotations = []
    for image in images:
        for _ in range(rng.integers(1, 4)):
            x, y = rng.uniform(2, 40), rng.uniform(2, 30)
            width, height = rng.uniform(4, 20), rng.uniform(4, 15)
            annotations.append(
                {
                    "id": len(annotations),
                    "image_id": image["id"],
                    "category_id": int(rng.choice([1, 2, 5])),
                    "bbox": [round(float(v), 2) for v in (x, y, width, height)],
                    "area": float(width * height),
                    "iscrowd": 0,
                    "segmentation": [],
                }
            )
    return {"images": images, "annotations": annotations, "categories": CATEGORIES}


def frames(folder, count, ending=".png"):
    """Return the document of cameras on a circle of 4 m around the origin."""
    records = []
    for i in range(count):
        angle = 2 * np.pi * i / count
        cos, sin = np.cos(angle), np.sin(angle)
        matrix = [[cos, -sin, 0, 4 * cos], [sin, cos, 0, 4 * sin], [0, 0, 1, 0.5], [0, 0, 0, 1]]
        path = f"./{folder}/r_{i}{ending}"
        records.append({"file_path": path, "transform_matrix": np.array(matrix).tolist()})
    return {"camera_angle_x": 0.69, "frames": records}


def written(path, document):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document))


@pytest.fixture
def roboflow(tmp_path):
    """Three splits, each with its pictures and its document in one folder."""
    data = tmp_path / "roboflow"
    for split, count in (("train", 20), ("valid", 6), ("test", 6)):
        names = [f"{split}_{i:03d}.jpg" for i in range(count)]
        for i, name in enumerate(names):
            picture(data / split / name, seed=hash_of(split, i))
        written(data / split / "_annotations.coco.json", coco(names, seed=count))
    return data


def hash_of(split, number):
    return [*split.encode(), number]


def scanned(data):
    return scan(data, output=data.parent / "out", level="deep")


def found(run):
    return sorted((f.code, f.fields, f.kind) for f in run.report.findings)


def test_the_splits_of_roboflow_are_those_of_the_folders(roboflow):
    schema = parse_schema(draft(roboflow).text)
    assert schema.samples.files == ("{split}/_annotations.coco.json",)
    assert schema.samples.each == "/images/{image}"
    assert schema.fields["picture"].file == "{split}/{image}"
    assert schema.fields["boxes"].role == "boxes"
    assert schema.fields["boxes"].pixels_of == "picture"
    assert schema.fields["classes"].classes == (1, 2, 5)
    run = scanned(roboflow)
    assert (found(run), len(run.table), run.report.exit_code) == ([], 32, 0)


def test_the_pictures_of_coco_lie_beside_the_folder_of_its_documents(tmp_path):
    data = tmp_path / "coco"
    for part, count in (("train2017", 20), ("val2017", 6)):
        names = [f"{i:012d}.jpg" for i in range(count)]
        for i, name in enumerate(names):
            picture(data / part / name, seed=hash_of(part, i))
        written(data / f"annotations/instances_{part}.json", coco(names, seed=count))
        captions = [{"id": i, "image_id": 10 + i, "caption": f"{part} {i}"} for i in range(count)]
        document = {**coco(names), "annotations": captions}
        written(data / f"annotations/captions_{part}.json", document)
    drafted = draft(data)
    schema = parse_schema(drafted.text)
    assert schema.samples.files == ("annotations/instances_{split}.json",)
    assert schema.fields["picture"].file == "{split}/{image}"
    assert any("not described" in note and ".json" in note for note in drafted.notes)
    run = scanned(data)
    assert (found(run), run.report.exit_code) == ([], 0)


@pytest.mark.parametrize("document", ["annotations/custom_{}.json", "labels/{}2017.json"])
def test_documents_and_folders_may_name_a_split_with_and_without_a_year(tmp_path, document):
    data = tmp_path / "coco"
    for split, count in (("train", 20), ("val", 12)):
        folder = f"{split}2017" if "custom" in document else split
        names = [f"{i:012d}.jpg" for i in range(count)]
        for i, name in enumerate(names):
            picture(data / folder / name, seed=hash_of(split, i))
        written(data / document.format(split), coco(names, seed=count))
    run = scanned(data)
    assert (found(run), len(run.table)) == ([], 32)
    half = data / ("val2017" if "custom" in document else "val")
    for i in range(12):
        path = half / f"{i:012d}.jpg"
        with Image.open(path) as pixels:
            small = pixels.resize((WIDTH // 2, HEIGHT // 2))
        small.save(path)
    sizes = [f for f in scanned(data).report.findings if f.code == "DC111"]
    assert [(f.cause.kind, f.cause.factor, f.failed) for f in sizes] == [("resized", 0.5, 12)]


@pytest.mark.parametrize("ending", [".png", ""])
def test_the_frames_of_nerfstudio_are_samples_with_a_pose(tmp_path, ending):
    data = tmp_path / "nerf"
    for part, count in (("train", 20), ("val", 5)):
        for i in range(count):
            picture(data / f"{part}/r_{i}.png", seed=hash_of(part, i))
        written(data / f"transforms_{part}.json", frames(part, count, ending))
    schema = parse_schema(draft(data).text)
    assert schema.samples.files == ("transforms_{split}.json",)
    assert schema.samples.each == "/frames/{folder}/{image}"
    assert schema.fields["picture"].file == "{folder}/{image}" + (".png" if not ending else "")
    assert schema.fields["transform_matrix"].role == "transform"
    run = scanned(data)
    assert (found(run), run.report.exit_code) == ([], 0)


def spoilt_coco(data, spoil):
    path = data / "train/_annotations.coco.json"
    document = json.loads(path.read_text())
    spoil(document)
    path.write_text(json.dumps(document))


def unknown_class(document):
    for annotation in document["annotations"][:3]:
        annotation["category_id"] = 3


def larger_size(document):
    document["images"][4]["width"] = 2 * WIDTH


def annotation_of_no_picture(document):
    document["annotations"][2]["image_id"] = 999


def outside(document):
    document["annotations"][5]["bbox"] = [100, 100, 10, 10]


@pytest.mark.parametrize(
    ("spoil", "expected"),
    [
        (unknown_class, ["DC404"]),
        (larger_size, ["DC111"]),
        (annotation_of_no_picture, ["DC101"]),
        (outside, ["DC409"]),
    ],
)
def test_a_fault_of_the_document_is_named(roboflow, spoil, expected):
    spoilt_coco(roboflow, spoil)
    run = scanned(roboflow)
    assert [code for code, _, _ in found(run)] == expected
    assert run.report.exit_code == 1


def test_a_picture_that_is_gone_is_a_fault_of_its_sample(roboflow):
    (roboflow / "train/train_003.jpg").unlink()
    run = scanned(roboflow)
    (finding,) = [f for f in run.report.findings if f.severity is Severity.ERROR]
    assert (finding.code, finding.fields) == ("DC104", ("picture",))
    keys = [run.table.keys[row] for row in finding.rows]
    assert keys == ["train/_annotations.coco.json:/images/train_003.jpg"]


@pytest.mark.parametrize("factor", [1000, 100])
def test_poses_in_another_unit_are_named_with_the_factor(tmp_path, factor):
    data = tmp_path / "nerf"
    document = frames("images", 40)
    for record in document["frames"][3:7]:
        for row in record["transform_matrix"][:3]:
            row[3] *= factor
    for i in range(40):
        picture(data / f"images/r_{i}.png", seed=i)
    written(data / "transforms.json", document)
    run = scanned(data)
    (finding,) = run.report.findings
    assert (finding.code, finding.cause.factor) == ("DC203", factor)
    keys = {run.table.keys[row] for row in finding.rows}
    assert keys == {f"transforms.json:/frames/images/r_{i}.png" for i in range(3, 7)}


def test_a_document_of_few_pictures_beside_much_other_data_is_no_draft(tmp_path):
    data = tmp_path / "d"
    for i in range(3):
        picture(data / f"images/{i}.jpg", seed=i)
    written(data / "about.json", coco([f"images/{i}.jpg" for i in range(3)]))
    for i in range(20):
        np.save(data / f"{i}.npy", np.random.default_rng(i).normal(size=(5000, 3)))
    assert parse_schema(draft(data).text).samples.each is None


def test_a_cache_holds_pictures_with_their_boxes(roboflow, tmp_path):
    (roboflow / "mine.yaml").write_text(draft(roboflow).text)
    cache = tmp_path / "cache"
    build(roboflow / "mine.yaml", roboflow, cache, workers=1)
    document = json.loads((roboflow / "valid/_annotations.coco.json").read_text())
    first = document["images"][0]
    boxes = [a["bbox"] for a in document["annotations"] if a["image_id"] == first["id"]]
    data = CachedDataset(cache, split="valid", fields=["picture", "boxes"])
    (place,) = [i for i in range(len(data)) if data.key(i).endswith(f"/{first['file_name']}")]
    sample = data[place]
    with Image.open(roboflow / "valid" / first["file_name"]) as image:
        assert (sample["picture"].numpy() == np.asarray(image)).all()
    expected = [[x, y, x + width, y + height] for x, y, width, height in boxes]
    assert np.allclose(sample["boxes"].numpy(), expected)


def test_a_small_document_does_not_decide_what_the_samples_of_other_files_are(tmp_path):
    data = tmp_path / "d"
    data.mkdir()
    for i in range(20):
        np.save(data / f"c{i:03d}.npy", np.random.default_rng(i).uniform(-1, 1, (50, 3)))
    (data / "z.json").write_text('{"x": [{"file": "c000.npy"}]}')
    assert parse_schema(draft(data).text).samples.each is None


def test_pictures_that_no_record_names_are_told(roboflow):
    picture(roboflow / "train/other.jpg", seed=99)
    scanned(roboflow)
    result = json.loads((roboflow.parent / "out/result.json").read_text())
    (kind,) = result["dataset"]["read"]["unread"]
    assert (kind["files"], kind["first"]) == (1, "train/other.jpg")


def test_one_odd_entry_does_not_hide_the_faults_of_the_others(roboflow):
    def spoil(document):
        unknown_class(document)
        document["annotations"][9]["bbox"] = "1 2 3 4"
        document["images"].append({"id": 5000, "file_name": "../../x.jpg"})

    spoilt_coco(roboflow, spoil)
    assert {code for code, _, _ in found(scanned(roboflow))} == {"DC101", "DC404"}


def test_the_reason_for_an_odd_entry_is_told(roboflow):
    spoilt_coco(roboflow, annotation_of_no_picture)
    (finding,) = scanned(roboflow).report.findings
    assert "image_id 999 is the id of no picture" in finding.message
    assert finding.examples == ("train/_annotations.coco.json:/annotations[2]",)


def test_a_split_with_further_keys_belongs_to_the_others(roboflow):
    path = roboflow / "valid/_annotations.coco.json"
    document = json.loads(path.read_text())
    for image in document["images"]:
        image["flickr_url"] = "x"
    path.write_text(json.dumps(document))
    drafted = draft(roboflow)
    assert "3 documents" in drafted.text
    assert not any("not described" in note for note in drafted.notes)
    assert "left_out" not in drafted.text


def test_a_mask_that_another_field_reads_belongs_to_a_sample(roboflow):
    picture(roboflow / "train/mask.jpg", seed=98)
    text = draft(roboflow).text.replace(
        "fields:", "fields:\n  mask: {file: train/mask.jpg, role: image}", 1
    )
    (roboflow.parent / "mine.yaml").write_text(text.replace("left_out: true", "left_out: false"))
    scan(roboflow, schema=str(roboflow.parent / "mine.yaml"), output=roboflow.parent / "out")
    result = json.loads((roboflow.parent / "out/result.json").read_text())
    assert result["dataset"]["read"]["unread"] == []


def alone(data, change=lambda document: None, name="ann.json"):
    """Write 20 pictures and their document, in which the sixth has a box outside; scan them."""
    names = [f"{i:04d}.jpg" for i in range(20)]
    for i, picture_name in enumerate(names):
        picture(data / picture_name, seed=i)
    document = coco(names)
    box = next(a for a in document["annotations"] if a["image_id"] == document["images"][5]["id"])
    box["bbox"] = [100, 100, 10, 10]
    change(document)
    written(data / name, document)
    return scanned(data)


def repeated(document):
    for image in document["images"][:3]:
        image["file_name"] = "0010.jpg"


def gone(document):
    for image in document["images"][8:]:
        image["file_name"] = "no_" + image["file_name"]


@pytest.mark.parametrize("name", ["ann.json", "ann{x}.json", "a*n{}.json"])
def test_a_document_of_any_name_is_read_by_its_records(tmp_path, name):
    assert [code for code, _, _ in found(alone(tmp_path / "d", name=name))] == ["DC409"]


@pytest.mark.parametrize(("change", "code", "count"), [(repeated, "DC101", 3), (gone, "DC104", 12)])
def test_many_odd_names_hide_no_fault_of_the_other_pictures(tmp_path, change, code, count):
    """Two repeated names of 60 turned the document into one value that no rule judges."""
    report = alone(tmp_path / "d", change).report
    # DC113 names the pictures that no record names, of which the dataset as a whole is told.
    failed = {f.code: f.failed for f in report.findings if f.severity == "error" and f.failed}
    assert failed == {code: count, "DC409": 1}


def test_repeated_frames_of_nerfstudio_hide_no_pose(tmp_path):
    data = tmp_path / "nerf"
    for i in range(20):
        picture(data / f"images/r_{i}.png", seed=i)
    document = frames("images", 20)
    for frame in document["frames"][2:5]:
        frame["file_path"] = "./images/r_9.png"
    document["frames"][12]["transform_matrix"][0][0] = 7.0
    written(data / "transforms.json", document)
    report = scanned(data).report
    assert {f.code: f.failed for f in report.findings if f.severity == "error"} == {
        "DC101": 3,
        "DC304": 1,
    }


def one_id(document):
    for image in document["images"]:
        image["id"] = 10


def no_id(document):
    for image in document["images"]:
        del image["id"]


def shifted_ids(document):
    for annotation in document["annotations"]:
        annotation["image_id"] += 1000


def texts(document):
    for annotation in document["annotations"]:
        annotation["image_id"] = str(annotation["image_id"])


@pytest.mark.parametrize("change", [one_id, no_id, shifted_ids, texts])
def test_annotations_that_belong_to_no_picture_are_named(tmp_path, change):
    """All of them passed: a document of which no annotation fits was taken for another layout."""
    run = alone(tmp_path / "d", change)
    document = json.loads((tmp_path / "d/ann.json").read_text())
    ids = {image.get("id") for image in document["images"]}
    lost = [
        f"ann.json:/annotations[{place}]"
        for place, annotation in enumerate(document["annotations"])
        if annotation["image_id"] not in ids
    ]
    (finding,) = [f for f in run.report.findings if f.code == "DC101"]
    keys = {run.table.keys[row] for row in finding.rows}
    assert keys.issuperset(lost)
    assert len(lost) > 20
    assert run.report.exit_code == 1


def test_ids_that_pandas_wrote_as_fractions_are_ids(tmp_path):
    def change(document):
        for image in document["images"]:
            image["id"] = float(image["id"])

    assert [code for code, _, _ in found(alone(tmp_path / "d", change))] == ["DC409"]


@pytest.mark.parametrize(
    ("start", "reason"),
    [
        ("/home/me/", "its records name no file below the folder"),
        ("../", "its records name no file below the folder"),
        ("https://host/", "most of the files that its records name are not there"),
    ],
)
def test_a_document_whose_names_lead_elsewhere_is_no_sample(tmp_path, start, reason):
    def change(document):
        for image in document["images"]:
            image["file_name"] = start + image["file_name"]

    run = alone(tmp_path / "d", change)
    assert len(run.table) == 20
    assert any("such as ann.json" in sentence for sentence in run.report.unchecked)
    (note,) = [note for note in draft(tmp_path / "d").notes if "ann.json" in note]
    assert note == f"not described: ann.json: {reason}"


def test_a_document_that_names_archives_does_not_make_them_one_value(tmp_path):
    data = tmp_path / "d"
    data.mkdir()
    for i in range(20):
        state = np.random.default_rng(i).normal(size=(50, 6))
        state[7, 2] = np.nan if i == 4 else 0.5
        np.savez(data / f"{i}.npz", act=state, pos=state[:, :3])
    named = [{"file": f"{i}.npz", "weight": i} for i in range(15)]
    written(data / "index.json", {"frames": named})
    report = scanned(data).report
    assert {f.code: f.failed for f in report.findings if f.severity == "error"} == {"DC221": 1}


def captions(data, count=30):
    """Write pictures with five captions each, an entry of `images` for each caption."""
    names = [f"p_{i:03d}.jpg" for i in range(count)]
    for i, name in enumerate(names):
        picture(data / name, seed=i)
    document = coco([name for name in names for _ in range(5)])
    written(data / "captions.json", document)


def questions(data, count=30):
    """Write pictures with four questions each, and answers by question."""
    names = [f"p_{i:03d}.jpg" for i in range(count)]
    for i, name in enumerate(names):
        picture(data / name, seed=i)
    asked = [{"id": i, "file_name": names[i // 4], "question": f"q {i}"} for i in range(4 * count)]
    answers = [{"question_id": i, "answer": f"a {i}"} for i in range(4 * count)]
    written(data / "vqa.json", {"images": asked, "annotations": answers})


def moving(data, count=8):
    """Write frames that name one of a few files each, at ten times."""
    for i in range(count):
        picture(data / f"images/r_{i}.png", seed=i)
    document = frames("images", count)
    written(data / "transforms.json", {"frames": document["frames"] * 10})


@pytest.mark.parametrize("write", [captions, questions, moving])
def test_entries_that_share_their_files_are_no_faults(tmp_path, write):
    """The captions of MDETR, questions about pictures and rigs of videos name a file repeatedly."""
    data = tmp_path / "d"
    write(data)
    assert scanned(data).report.exit_code == 0


def test_a_folder_with_a_small_part_of_the_pictures_is_no_thousand_faults(tmp_path):
    data = tmp_path / "d"
    names = [f"{i:04d}.jpg" for i in range(200)]
    for i, name in enumerate(names[:20]):
        picture(data / name, seed=i)
    written(data / "ann.json", coco(names))
    run = scanned(data)
    assert run.report.exit_code == 0
    assert any("such as ann.json" in sentence for sentence in run.report.unchecked)


def entry(number):
    return {"label": ("cat", "dog")[number % 2], "bbox": [1 + number, 2, 10.5, 12]}


def keyed(data, document, folder="images/"):
    """Write 20 pictures, and a document with an entry for each; scan them."""
    for i in range(20):
        picture(data / f"{folder}{i:04d}.jpg", seed=i)
    written(data / "labels.json", document)
    return scanned(data)


@pytest.mark.parametrize(
    ("name", "each", "first"),
    [
        ("images/{:04d}.jpg", "/images/{image}", "labels.json:/images/0000.jpg"),
        ("./images/{:04d}.jpg", "/images/{image}", "labels.json:/images/0000.jpg"),
        ("{:04d}.jpg", "/{image}", "labels.json:/0000.jpg"),
        ("{:04d}", "/{image}", "labels.json:/0000"),
    ],
)
@pytest.mark.parametrize("value", [entry, lambda number: number % 3])
def test_a_mapping_by_file_is_read_entry_by_entry(tmp_path, name, each, first, value):
    data = tmp_path / "d"
    run = keyed(data, {name.format(i): value(i) for i in range(20)})
    schema = parse_schema(draft(data).text)
    assert schema.samples.each == each
    assert schema.fields["picture"].role == "image"
    assert (found(run), len(run.table), run.report.exit_code) == ([], 20, 0)
    assert run.table.keys[0] == first


def test_a_mapping_by_file_may_lie_below_a_key_beside_others(tmp_path):
    entries = {f"{i:04d}.jpg": entry(i) for i in range(20)}
    run = keyed(tmp_path / "d", {"version": 2, "labels": entries})
    assert (found(run), run.table.keys[19]) == ([], "labels.json:/labels/0019.jpg")


def test_a_mapping_by_file_may_lie_beside_one_of_settings(tmp_path):
    entries = {f"{i:04d}.jpg": entry(i) for i in range(20)}
    document = {"labels": entries, "settings": {f"p{i}": i for i in range(9)}}
    assert len(keyed(tmp_path / "d", document).table) == 20


def test_a_key_without_the_ending_of_a_file_is_about_the_document(tmp_path):
    document = {"version": "1", **{f"{i:04d}.jpg": "cat" for i in range(20)}}
    assert len(keyed(tmp_path / "d", document, folder="").table) == 20


def test_each_odd_entry_of_a_mapping_by_file_is_named(tmp_path):
    document = {f"images/{i:04d}.jpg": entry(i) for i in range(20)}
    document["images/0003.jpg"] = None
    document["images/0004.jpg"] = "cat"
    document["../0006.jpg"] = document.pop("images/0006.jpg")
    document["images/9999.jpg"] = entry(0)
    run = keyed(tmp_path / "d", document)
    keys = {f.code: sorted(run.table.keys[row] for row in f.rows) for f in run.report.findings}
    assert keys == {
        "DC101": [
            "labels.json:/../0006.jpg",
            "labels.json:/images/0003.jpg",
            "labels.json:/images/0004.jpg",
        ],
        "DC104": ["labels.json:/images/9999.jpg"],
    }


def test_a_picture_without_an_entry_is_told(tmp_path):
    run = keyed(tmp_path / "d", {f"images/{i:04d}.jpg": entry(i) for i in range(19)})
    assert any("images/0019.jpg" in sentence for sentence in run.report.unchecked)


def test_a_mapping_by_name_of_other_data_is_no_list_of_files(tmp_path):
    data = tmp_path / "d"
    for i in range(20):
        picture(data / f"images/{i:04d}.jpg", seed=i)
    written(data / "labels.json", {f"weight {i}": i for i in range(20)})
    assert parse_schema(draft(data).text).samples.each is None


def demos_of(keys, entries=2):
    """Return a document with a mapping of arrays for each key."""
    rng = np.random.default_rng(0)
    return {
        key: {f"x{i}": rng.normal(size=(20, 2)).round(3).tolist() for i in range(entries)}
        for key in keys
    }


@pytest.mark.parametrize(
    ("document", "each"),
    [
        (demos_of([f"demo_{i}" for i in range(10)], entries=10), "/demo_*"),
        (demos_of([f"demo.{i}" for i in range(10)]), "/demo.*"),
        ({"data": demos_of([f"demo_{i}" for i in range(10)])}, "/data/demo_*"),
        (
            demos_of([f"demo_{i}" for i in range(10)]) | {"env": {f"p{i}": i for i in range(12)}},
            "/demo_*",
        ),
        (
            demos_of([f"demo_{i}" for i in range(10)])
            | {"sources": [{"file": f"{i}.bag"} for i in range(10)]},
            "/demo_*",
        ),
    ],
)
def test_episodes_of_a_document_are_samples_whatever_else_looks_like_names_of_files(
    tmp_path, document, each
):
    """The keys of an episode, or of its settings, were taken for names of files: one sample."""
    written(tmp_path / "d/demos.json", document)
    assert parse_schema(draft(tmp_path / "d").text).samples.each == each
    run = scanned(tmp_path / "d")
    assert (len(run.table), found(run)) == (10, [])


def test_a_document_with_a_mapping_by_file_for_each_split_is_not_read_by_half(tmp_path):
    """Only the largest mapping was read, and the scan ended with all samples fit."""
    entries = {f"images/{i:04d}.jpg": entry(i) for i in range(20)}
    train = dict(list(entries.items())[:14])
    val = {name: value for name, value in entries.items() if name not in train}
    val["images/0000.jpg"] = entry(0)  # a leak
    run = keyed(tmp_path / "d", {"train": train, "val": val})
    assert len(run.table) >= 20
    assert any("labels.json" in sentence for sentence in [*run.report.unchecked, *run.table.keys])


# ---------------------------------------------------------------------------- annotations as XML, too

VOC = """<annotation><filename>{name}</filename><size><width>64</width><height>48</height></size>
<object><name>cat</name><bndbox><xmin>{0}</xmin><ymin>{1}</ymin><xmax>{2}</xmax><ymax>{3}</ymax>
</bndbox></object></annotation>"""


@pytest.fixture
def twice(tmp_path):
    """Pictures with their boxes in a table for each split, and in XML."""
    data = tmp_path / "twice"
    rng = np.random.default_rng(4)
    for split, count in (("train", 20), ("test", 10)):
        rows = ["filename,width,height,class,xmin,ymin,xmax,ymax"]
        for i in range(count):
            name = f"{split}-{i}.jpg"
            picture(data / "images" / name, seed=hash_of(split, i))
            low = rng.integers(2, 12, 2)
            box = [*low.tolist(), *(low + rng.integers(25, 30, 2)).tolist()]
            rows.append(f"{name},64,48,cat,{','.join(map(str, box))}")
            (data / "xml").mkdir(exist_ok=True)
            (data / f"xml/{split}-{i}.xml").write_text(VOC.format(*box, name=name))
        (data / f"{split}_labels.csv").write_text("\n".join(rows) + "\n")
    return data


def test_xml_files_of_the_pictures_of_a_table_are_held_against_it(twice):
    drafted = draft(twice)
    schema = parse_schema(drafted.text)
    assert schema.fields["xml_boxes"].file == "xml/{image}.xml"
    assert not any("not described" in note for note in drafted.notes)
    run = scanned(twice)
    assert (found(run), len(run.table)) == ([], 30)
    box = VOC.format(4, 6, 28, 29, name="")  # x, y, width, height
    (twice / "xml/train-7.xml").write_text(box)
    assert ("DC409", ("boxes", "xml_boxes"), "contradictory") in found(scanned(twice))


def test_xml_files_of_other_names_are_left_beside_a_table(twice):
    for path in sorted((twice / "xml").iterdir())[:4]:  # four of thirty
        path.rename(path.with_name(f"other-{path.name}"))
    schema = parse_schema(draft(twice).text)
    assert "xml_boxes" not in schema.fields
    assert schema.samples.each == "/filename/{image}"
