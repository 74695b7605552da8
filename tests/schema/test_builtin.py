"""The built-in schemas: they load, are chosen by the real layouts and by nothing else, and hold what they say."""

import re
import shutil
import time

import pytest

from datacheck.errors import UsageError
from datacheck.schema.grammar import CENTRES, FRAMES, ROLES, SKELETONS, UNITS
from datacheck.schema.load import (
    builtin,
    builtin_folder,
    choose_schema,
    chosen_by_files,
    dump_schema,
    load_schema,
    parse_schema,
)
from datacheck.schema.model import (
    DuplicatesSpec,
    EpisodeSpec,
    FieldSpec,
    RuleSpec,
    SamplesSpec,
    Schema,
    SplitsSpec,
    TokenizerSpec,
    WindowsSpec,
)
from datacheck.schema.yaml_text import read_yaml
from datacheck.sources import list_files, matches, plan_work

HEX = "0123456789abcdef0123456789abcdef"
LAYOUTS = {
    "sceneleap, one folder": ("sceneleap", [f"mug_{HEX}.npy", f"red_bowl_2_{HEX}.npy"]),
    "sceneleap, split folders": (
        "sceneleap",
        [f"train/mug_{HEX}.npy", f"test/bowl_{HEX}.npy", f"objects/mug_{HEX}/mesh/simplified.obj"],
    ),
    "sceneleap, two collections": ("sceneleap", [f"1022_mini_succ_collect/mug_{HEX}.npy"]),
    "sceneleap's cache": ("sceneleap_cache", [f"objectcentric/train/objectcentric_{HEX}_v3.h5"]),
    "sceneleap's cache, the file's folder": ("sceneleap_cache", [f"oc_{HEX}_64_8192.h5"]),
    "HO-3D v3": (
        "ho3d",
        [
            "train.txt",
            "evaluation.txt",
            "evaluation_xyz.json",
            "train/ABF10/meta/0000.pkl",
            "train/ABF10/rgb/0000.jpg",
            "train/ABF10/depth/0000.png",
            "evaluation/SM1/meta/0000.pkl",
            "manual_annotations/a.npy",
            "calibration/ABF1/calibration/cam_0_intrinsics.txt",
        ],
    ),
    "HO-3D v2": ("ho3d", ["train.txt", "train/SS1/meta/0004.pkl", "train/SS1/rgb/0004.png"]),
    "ScanNet for Mask3D": (
        "scannet",
        [
            "train/0000_00.npy",
            "validation/0011_00.npy",
            "test/0707_00.npy",
            "instance_gt/train/0000_00.txt",
            "train_database.yaml",
            "label_database.yaml",
            "color_mean_std.yaml",
        ],
    ),
    "ScanNet, scene names": (
        "scannet",
        ["train/scene0000_00.npy", "instance_gt/train/scene0000_00.txt"],
    ),
    "ScanNet as published": (
        "scannet_raw",
        [
            f"scene0000_00/scene0000_00{end}"
            for end in (
                ".aggregation.json",
                ".sens",
                ".txt",
                "_2d-label.zip",
                "_vh_clean.ply",
                "_vh_clean.aggregation.json",
                "_vh_clean.segs.json",
                "_vh_clean_2.0.010000.segs.json",
                "_vh_clean_2.labels.ply",
                "_vh_clean_2.ply",
            )
        ],
    ),
    "ScanNet++ for ExCap3D": (
        "scannetpp",
        [
            "train/0a5c013435.npy",
            "validation/13c3e046d7.npy",
            "captions/0a5c013435.json",
            "train_list.txt",
        ],
    ),
    "LIBERO, all suites": (
        "libero",
        ["libero_10/KITCHEN_SCENE3_turn_on_demo.hdf5", "libero_goal/open_demo.hdf5"],
    ),
    "LIBERO, one suite": ("libero", ["pick_up_the_black_bowl_demo.hdf5"]),
    "LIBERO, a download": ("libero", ["datasets/libero_spatial/pick_demo.hdf5"]),
    "robomimic, all tasks": (
        "robomimic",
        ["lift/ph/low_dim_v141.hdf5", "can/mh/image_v141.hdf5", "can/ph/demo.hdf5"],
    ),
    "robomimic, one file": ("robomimic", ["low_dim.hdf5"]),
    "ALOHA": ("aloha", ["sim_transfer/episode_0.hdf5", "sim_transfer/episode_49.hdf5"]),
    "minimind, pre-training": ("minimind_pretrain", ["dataset/pretrain_hq.jsonl"]),
    "minimind, chat": (
        "minimind_sft",
        ["sft_mini_512.jsonl", "lora_identity.jsonl", "r1_mix_1024.jsonl"],
    ),
    "minimind, preferences": ("minimind_dpo", ["dpo.jsonl"]),
    "minimind, the whole folder": (
        "minimind",
        [
            "pretrain_hq.jsonl",
            "sft_mini_512.jsonl",
            "lora_identity.jsonl",
            "dpo.jsonl",
            "model/a.json",
        ],
    ),
    "minimind, two kinds": ("minimind", ["dataset/sft_512.jsonl", "dataset/dpo.jsonl"]),
    "minimind, chat and what is held out": ("minimind", ["sft_512.jsonl", "sft_512_eval.jsonl"]),
    "minimind, chat of values": ("minimind_sft", ["sft_values.jsonl", "sft_latest.jsonl"]),
    "KITTI object": (
        "kitti_object",
        ["training/velodyne/000000.bin", "training/label_2/000000.txt"],
    ),
    "KITTI object and raw": (
        "kitti",
        ["training/velodyne/000000.bin", "drive_sync/velodyne_points/data/0000000000.bin"],
    ),
    "KITTI raw": (
        "kitti",
        ["2011_09_26/2011_09_26_drive_0001_sync/velodyne_points/data/0000000000.bin"],
    ),
    "SemanticKITTI": (
        "kitti",
        ["sequences/00/velodyne/000000.bin", "sequences/00/labels/000000.label"],
    ),
    "Pascal VOC": ("voc", ["JPEGImages/a.jpg", "Annotations/a.xml", "ImageSets/Main/train.txt"]),
    "Pascal VOC, pictures as PNG": ("voc", ["JPEGImages/a.png", "Annotations/a.xml"]),
    "Universal Dependencies": ("conllu", ["en_pud-ud-test.conllu", "stats.xml", "LICENSE.txt"]),
    "treebanks in folders": (
        "conllu",
        ["UD_English-PUD/en_pud-ud-test.conllu", "UD_French-PUD/fr_pud-ud-test.conllu"],
    ),
    "WebDataset, numbered": ("webdataset", ["000000.tar", "000001.tar"]),
    "WebDataset, named": (
        "webdataset",
        ["train/imagenet-train-000000.tar", "val/imagenet_val_0007.tar"],
    ),
    "LeRobot v2": (
        "lerobot",
        ["meta/info.json", "meta/episodes.jsonl", "data/chunk-000/episode_000000.parquet"],
    ),
    "LeRobot v3": (
        "lerobot",
        [
            "pusht/meta/info.json",
            "pusht/meta/episodes/chunk-000/file-000.parquet",
            "pusht/data/chunk-000/file-000.parquet",
            "pusht/videos/top/chunk-000/file-000.mp4",
        ],
    ),
    "MosaicML Streaming": (
        "mds",
        ["train/index.json", "train/shard.00000.mds", "val/shard.00000.mds.zstd"],
    ),
    "Diffusion Policy": ("replay_zarr", ["pusht/pusht_cchi_v7_replay.zarr/.zgroup"]),
}
NOBODY_S = {
    "arrays": ["a.npy", "train/b.npy"],
    "clouds": ["scene.ply", "x/y.pcd", "data.bin"],
    "groups": ["data.hdf5", "train.h5"],
    "lines": ["corpus.jsonl", "c4.json"],
    "an archive": ["images.tar", "HO3D_v3.tar"],
    "tables": ["a.parquet", "data/train-00000-of-00001.parquet"],
    "a store": ["dataset.zarr/.zgroup"],
    "pickles": ["meta/0000.pkl"],
    "grasps of ACRONYM": [f"grasps/Mug_{HEX}_0.0002682457830986903.h5", f"meshes/Mug/{HEX}.obj"],
}


def listing(folder, paths):
    for path in paths:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).touch()
    return list_files(folder)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_real_layout_chooses_its_schema(layout, tmp_path):
    name, paths = LAYOUTS[layout]
    files = listing(tmp_path, paths)
    assert choose_schema(lambda schema: matches(schema, files)).name == name


def test_every_schema_but_files_has_a_layout_here():
    presets = {name for name in builtin() if name.startswith("lerobot_")}
    assert {name for name, _ in LAYOUTS.values()} | {"files"} | presets == set(builtin())
    assert presets.isdisjoint(chosen_by_files())


@pytest.mark.parametrize("layout", NOBODY_S)
def test_files_of_no_known_layout_choose_nothing(layout, tmp_path):
    files = listing(tmp_path, NOBODY_S[layout])
    assert choose_schema(lambda schema: matches(schema, files)) is None


def test_datasets_of_different_systems_in_one_folder_are_named(tmp_path):
    files = listing(tmp_path, ["sft_mini_512.jsonl", "dpo.jsonl", "libero_10/open_demo.hdf5"])
    with pytest.raises(
        UsageError,
        match=r"libero \(1 file\), minimind_dpo \(1 file\), minimind_sft \(1 file\). Say what",
    ):
        choose_schema(lambda schema: matches(schema, files))


def test_the_files_of_a_whole_minimind_folder_have_the_split_of_their_kind(tmp_path):
    splits = {
        "pretrain_hq.jsonl": "pretrain",
        "pretrain_hq_val.jsonl": "pretrain_eval",
        "sft_mini_512.jsonl": "sft",
        "sft_eval_512.jsonl": "sft_eval",
        "lora_identity.jsonl": "sft",
        "lora_medical-test.jsonl": "sft_eval",
        "r1_mix_1024.jsonl": "sft",
        "sft_values.jsonl": "sft",
        "sft_latest.jsonl": "sft",
        "dpo.jsonl": "dpo",
        "x/dpo_dev.jsonl": "dpo_eval",
    }
    schema = load_schema("minimind")
    work = plan_work(schema, listing(tmp_path, splits))
    assert {item.path: item.split for item in work.items} == splits
    kinds = {"pretrain": ["text"], "sft": ["conversations"], "dpo": ["chosen", "rejected"]}
    for split in splits.values():
        own = schema.for_split(split)
        assert [name for name, spec in own.fields.items() if not spec.absent] == kinds[
            split.removesuffix("_eval")
        ]
        assert own.tokenizer.max_length == (1024 if split.startswith("dpo") else 768)


@pytest.mark.parametrize("kind", ["pretrain", "sft", "dpo"])
def test_the_whole_of_minimind_promises_what_each_kind_does(kind):
    part, whole = load_schema(f"minimind_{kind}"), load_schema("minimind").for_split(kind)
    assert {n: s for n, s in whole.fields.items() if not s.absent} == {
        n: s.model_copy(update={"absent": False}) for n, s in part.fields.items()
    }
    assert set(part.samples.files) <= set(whole.samples.files)
    for key in ("vocab", "max_length", "start", "end"):
        assert getattr(whole.tokenizer, key) == getattr(part.tokenizer, key)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_chosen_schema_reads_every_file_that_is_a_sample(layout, tmp_path):
    name, paths = LAYOUTS[layout]
    schema = load_schema(name)
    lists = {
        "train.txt": "ABF10/0000\nSS1/0004\n",
        "evaluation.txt": "SM1/0000\n",
        "ImageSets/Main/train.txt": "a\n",
    }
    for list_file, lines in lists.items():
        if list_file in paths:
            (tmp_path / list_file).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / list_file).write_text(lines)
    work = plan_work(schema.placed([]), listing(tmp_path, paths))
    assert work.items
    assert {item.split for item in work.items} <= {
        "",
        *(p.split("/")[0] for p in paths),
        "train",
        *schema.samples.split,
    }


@pytest.mark.parametrize("name", builtin())
def test_both_yaml_parsers_read_a_built_in_schema_alike(name):
    """Built-in schemas are read by libyaml, those of users by the parser in Python."""
    text = (builtin_folder("schemas") / f"{name}.yaml").read_text(encoding="utf-8")
    assert read_yaml(text, name, libyaml=True) == read_yaml(text, name)


@pytest.mark.parametrize("name", builtin())
def test_a_schema_that_is_loaded_again_is_the_same(name):
    """Loaded schemas are kept: those that extend one must not change it."""
    first, path = load_schema(name), builtin_folder("schemas") / f"{name}.yaml"
    fresh = parse_schema(path.read_text(encoding="utf-8"), str(path))
    assert first == load_schema(name) == fresh


@pytest.mark.parametrize("name", builtin())
def test_a_built_in_schema_loads_is_short_and_says_what_it_is(name):
    text = (builtin_folder("schemas") / f"{name}.yaml").read_text(encoding="utf-8")
    assert text.startswith("# ")
    assert len([line for line in text.splitlines() if line and not line.startswith("#")]) <= 30
    schema = load_schema(name)
    assert schema.name == name
    assert parse_schema(dump_schema(schema)) == schema
    for condition in schema.when:
        schema.for_split(condition.removeprefix("split="))


@pytest.mark.parametrize("name", builtin())
def test_a_number_that_decides_has_its_reason_beside_it(name):
    lines = (builtin_folder("schemas") / f"{name}.yaml").read_text(encoding="utf-8").splitlines()
    deciding = [
        line
        for line in lines
        if re.search(r"\b(size|distance|range|min_points|max_idle|length): -?[\d.]", line)
    ]
    by_encoding = re.compile(r"range: 0\.\.(255|1)\b")  # bytes and shares
    assert [line for line in deciding if "#" not in line and not by_encoding.search(line)] == []


# ------------------------------------------------------------------------------------ what they say


def test_ho3d_groups_the_cameras_of_one_recording():
    match = re.compile(load_schema("ho3d").splits.match)
    found = {
        name: match.search(name)[0]
        for name in ("ABF10", "ABF14", "SM1", "SMu41", "SiBF12", "SB13", "SB2", "MC4")
    }
    assert found == {
        "ABF10": "ABF1",
        "ABF14": "ABF1",
        "SM1": "SM1",
        "SMu41": "SMu41",
        "SiBF12": "SiBF1",
        "SB13": "SB1",
        "SB2": "SB2",
        "MC4": "MC4",
    }


def test_ho3d_expects_the_root_alone_in_evaluation():
    schema = load_schema("ho3d")
    held = schema.for_split("evaluation")
    assert schema.fields["handJoints3D"].shape == (21, 3)
    assert held.fields["handJoints3D"].shape == (3,)
    assert held.fields["handPose"].absent
    assert held.fields["handBoundingBox"].shape == (4,)


def test_ho3d_s_bone_band_takes_metres_and_refuses_centimetres_and_millimetres():
    band = load_schema("ho3d").fields["handJoints3D"].size
    median = 0.02795  # of the 20 bones of the MANO mean shape, in metres
    assert band.low == pytest.approx(median / 2, rel=0.01)
    assert band.high == pytest.approx(median * 2, rel=0.01)
    assert not any(band.low <= median * wrong <= band.high for wrong in (100, 1000))


def test_scannet_groups_the_scans_of_one_room_and_scannetpp_does_not():
    schema, finer = load_schema("scannet"), load_schema("scannetpp")
    assert re.search(schema.splits.match, "scene0123_02")[0] == "0123"
    assert re.search(schema.splits.match, "0123_02")[0] == "0123"
    assert re.search(finer.splits.match, "0a1b2c3d4e")[0] == "0a1b2c3d4e"
    assert finer.splits.key == "scene"


def test_scannet_keeps_the_twenty_classes_of_the_benchmark():
    dropped = load_schema("scannet").loader.get("drop_classes")
    benchmark = {*range(1, 13), 14, 16, 24, 28, 33, 34, 36, 39}
    assert set(range(41)) - set(dropped) == benchmark - {1, 2}  # wall and floor are no instances


def test_scannetpp_differs_from_scannet_where_its_data_differ():
    schema = load_schema("scannetpp")
    assert schema.columns == load_schema("scannet").columns
    assert schema.fields["semantic"].ignore == (-100,)
    assert schema.fields["instance"].ignore == (-100,)
    assert [name for name, _ in schema.loader.steps] == [
        "clip",
        "keep_classes",
        "voxel",
        "drop_classes",
        "min_points",
        "captions",
    ]
    assert schema.for_split("test").fields["captions"].absent


@pytest.mark.parametrize(
    ("name", "field", "parts"),
    [
        ("sceneleap", "grasp_qpos", {"pos": (0, 3), "quat": (3, 7), "joints": (7, 23)}),
        ("sceneleap", "obj_pose", {"pos": (0, 3), "quat": (3, 7)}),
        (
            "sceneleap_cache",
            "hand_model_pose",
            {"pos": (0, 3), "joints": (3, 19), "quat": (19, 23)},
        ),
    ],
)
def test_the_columns_of_a_grasp_are_where_the_code_writes_them(name, field, parts):
    schema = load_schema(name)
    assert schema.parts(field) == parts
    assert schema.spec(f"{field}.quat").role == "quaternion"
    assert schema.spec(f"{field}.quat").order == "wxyz"


def test_sceneleap_s_meshes_are_looked_for_beside_the_grasps_or_where_the_user_says(tmp_path):
    schema = load_schema("sceneleap")
    models = f"object/objaverse_v1/flat_models/mug_{HEX}/mesh/simplified.obj"
    files = listing(tmp_path, [f"1022_mini_succ_collect/mug_{HEX}.npy", models])
    # As the code has it: data/object/..., which no rule looked at without --root
    work = plan_work(schema, files)
    assert ([item.split for item in work.items], list(work.unclaimed)) == (
        ["1022_mini_succ_collect"],
        [],
    )
    assert schema.placed([], tmp_path).fields["verts"].file == models.replace(
        f"mug_{HEX}", "{object}"
    )
    (tmp_path / "objects").mkdir()
    (tmp_path / "objects/readme.txt").write_text("not a mesh")  # hides no mesh
    assert schema.placed([], tmp_path).fields["verts"].file == models.replace(
        f"mug_{HEX}", "{object}"
    )
    assert schema.placed([]).fields["verts"].file == "objects/{object}/mesh/simplified.obj"
    assert (
        schema.placed(["objects"]).fields["verts"].file == "{objects}/{object}/mesh/simplified.obj"
    )


TWO = (
    "{datacheck: 1, name: t, samples: {files: '{id}.npy'}, roots: {more: [a, b]}, fields: {x: "
    "{file: '%s'}}}"
)


@pytest.mark.parametrize("pattern", ["{more}/**/{id}.npz", "{more}/*/*/{id}.npz"])
def test_of_two_places_the_one_counts_in_which_files_lie_however_deep(tmp_path, pattern):
    listing(tmp_path, ["a/readme.txt", "b/deep/er/0.npz"])
    assert parse_schema(TWO % pattern).placed([], tmp_path).fields["x"].file == pattern.replace(
        "{more}", "b"
    )


def test_no_link_makes_the_search_for_the_place_of_an_extra_folder_long(tmp_path):
    """Of 120 links to their own folder each level of a pattern tried every one."""
    listing(tmp_path, ["data/a/readme.txt", "data/b/x/y/z/0.npz", "outside/x/y/z/0.npz"])
    for i in range(120):
        (tmp_path / f"data/a/l{i}").symlink_to(".")
    schema, began = parse_schema(TWO % "{more}/*/*/*/{id}.npz"), time.process_time()
    assert schema.placed([], tmp_path / "data").fields["x"].file == "b/*/*/*/{id}.npz"
    assert time.process_time() - began < 2
    shutil.rmtree(tmp_path / "data/a")
    (tmp_path / "data/a").symlink_to("../outside")  # what lies there is not read
    assert schema.placed([], tmp_path / "data").fields["x"].file == "b/*/*/*/{id}.npz"


def test_a_place_counts_whatever_links_lie_in_it(tmp_path):
    """One link to itself hid the files beside it, and a link to their folder that came first on the disk did so too."""
    listing(tmp_path, ["a/readme.txt", *(f"b/x/{i}.npz" for i in range(8))])
    schema = parse_schema(TWO % "{more}/x/{id}.npz")
    (tmp_path / "b/x/loop").symlink_to("loop")
    for name in ("all", "best", "current", "latest", "y"):
        (tmp_path / "b" / name).symlink_to("x")
    assert schema.placed([], tmp_path).fields["x"].file == "b/x/{id}.npz"
    named = parse_schema(TWO % "{more}/best/all/{id}.npz")
    # Behind two links, the second of which leads out of the place
    (tmp_path / "b/x/all").symlink_to("../../c")
    listing(tmp_path, ["c/0.npz"])
    assert named.placed([], tmp_path).fields["x"].file == "b/best/all/{id}.npz"


def test_two_folders_that_link_to_one_another_end_the_search(tmp_path):
    listing(tmp_path, ["a/x/readme.txt", "a/y/readme.txt", "b/p/q/r/0.npz"])
    for i in range(60):
        (tmp_path / f"a/x/l{i}").symlink_to("../y")
        (tmp_path / f"a/y/l{i}").symlink_to("../x")
    schema, began = parse_schema(TWO % "{more}/*/*/*/{id}.npz"), time.process_time()
    assert schema.placed([], tmp_path).fields["x"].file == "b/*/*/*/{id}.npz"
    # Of processors: 1,000 folders, not 60 ** 3 and more of them
    assert time.process_time() - began < 10


def test_of_two_places_that_hold_files_of_an_extra_folder_the_user_says_which_counts(tmp_path):
    schema = load_schema("sceneleap")
    places = ["objects", "object/objaverse_v1/flat_models"]
    for place in places:
        listing(tmp_path, [f"{place}/mug_{HEX}/mesh/simplified.obj"])
    with pytest.raises(
        UsageError,
        match=r"objects and object/objaverse_v1/flat_models hold files of objects\. Say whic",
    ):
        schema.placed([], tmp_path)
    assert (
        schema.placed(["objects"], tmp_path).fields["verts"].file
        == "{objects}/{object}/mesh/simplified.obj"
    )
    shutil.rmtree(tmp_path / "objects")
    (tmp_path / "objects").symlink_to(places[1])  # one folder by two names
    assert (
        schema.placed([], tmp_path).fields["verts"].file == "objects/{object}/mesh/simplified.obj"
    )
    (tmp_path / "objects").unlink()
    shutil.rmtree(tmp_path / "object")
    (tmp_path / places[1]).mkdir(parents=True)  # empty, and the only one that is there
    assert (
        schema.placed([], tmp_path).fields["verts"].file
        == f"{places[1]}/{{object}}/mesh/simplified.obj"
    )


@pytest.mark.parametrize(
    ("name", "length"), [("libero", 64), ("aloha", 64), ("robomimic", 10), ("replay_zarr", 16)]
)
def test_a_robot_schema_declares_its_windows_and_a_time_axis(name, length):
    schema = load_schema(name)
    assert schema.windows.length == length
    assert any(spec.ragged == "T" and spec.role == "action" for spec in schema.fields.values())


# --------------------------------------------------------------------------------------- the README


def _blocks(folder):
    text = (folder / "README.md").read_text(encoding="utf-8")
    return re.findall(r"```yaml\n(.*?)```", text, flags=re.DOTALL)


def test_every_example_of_the_readme_loads_or_stands_in_the_file_it_names():
    whole = [
        block for block in _blocks(builtin_folder("schemas")) if block.startswith("datacheck: 1\n")
    ]
    taken = [block for block in _blocks(builtin_folder("schemas")) if block.startswith("# from ")]
    assert len(whole) >= 2
    assert len(whole) + len(taken) == len(_blocks(builtin_folder("schemas")))
    for block in whole:
        parse_schema(block)
    for block in taken:
        first, _, lines = block.partition("\n")
        assert lines in (builtin_folder("schemas") / first.removeprefix("# from ")).read_text(
            encoding="utf-8"
        ), first


def test_every_example_of_the_page_about_importers_loads(repository):
    text = (repository / "docs/importers.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```yaml\n(.*?)```", text, flags=re.DOTALL)
    assert [parse_schema(block).name for block in blocks] == ["cups", "pusht"]


def _keys(model):
    for name, info in model.model_fields.items():
        yield name
        for inner in (
            FieldSpec,
            SamplesSpec,
            EpisodeSpec,
            WindowsSpec,
            TokenizerSpec,
            SplitsSpec,
            DuplicatesSpec,
            RuleSpec,
        ):
            if inner is not model and inner.__name__ in str(info.annotation):
                yield from _keys(inner)


def test_every_key_word_and_step_of_the_language_is_in_the_readme():
    text = (builtin_folder("schemas") / "README.md").read_text(encoding="utf-8")
    words = [*_keys(Schema), *ROLES, *UNITS, *FRAMES, *CENTRES, *SKELETONS, *builtin(), "extends"]
    words += ["clip", "voxel", "drop_classes", "min_points", "captions", "line", "row"]
    assert [word for word in dict.fromkeys(words) if f"`{word}`" not in text] == []
