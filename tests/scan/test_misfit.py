"""What a scan says where no file fits: the folder that does, another schema, a schema of one line."""

import re
import shlex
from pathlib import Path, PurePosixPath

import pytest

from datacheck.errors import UsageError
from datacheck.infer import suggest
from datacheck.infer.draft import draft
from datacheck.scan import scan, schema_for
from datacheck.scan.scanned_dataset import list_dataset
from datacheck.schema.load import parse_schema
from datacheck.sources import matches
from datacheck.testing.synth import write


def touched(folder, *paths):
    for path in paths:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(b"x")


def said(data, schema=None):
    """Return the error of a scan with a schema, and of the commands that choose one themselves."""
    with pytest.raises(UsageError) as caught:
        scan(data, schema) if schema else schema_for(Path(data), None)
    return str(caught.value)


@pytest.fixture
def hands(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    touched(
        tmp_path,
        "a/HO3D/train/SM1/meta/0000.pkl",
        "a/HO3D/train/SM1/meta/0001.pkl",
        "a/b/train/SM1/meta/0000.pkl",
    )
    return tmp_path / "a/HO3D"


@pytest.mark.parametrize(
    "below", ["train", "train/SM1", "train/SM1/meta", "train/SM1/meta/0000.pkl"]
)
@pytest.mark.parametrize("schema", [None, "ho3d"])
def test_the_folder_above_that_fits_is_named(hands, below, schema):
    assert "fits the folder a/HO3D: datacheck scan a/HO3D --schema ho3d\n" in said(
        hands / below, schema
    )


@pytest.mark.parametrize("schema", [None, "ho3d"])
def test_the_folder_below_that_fits_most_is_named(hands, schema):
    assert f"schema ho3d fits the folder {hands}: datacheck scan {hands} --schema ho3d\n" in said(
        hands.parent, schema
    )
    assert f"schema ho3d fits the folder {hands}" in said(hands.parent.parent, schema)


def test_a_folder_of_another_layout_names_the_schema_that_fits_it(hands):
    assert "\n    schema ho3d fits 2 of them: --schema ho3d\n" in said(hands, "libero")


def test_a_robomimic_file_of_any_name_is_scanned_with_the_line_that_the_message_gives(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    write("robomimic", tmp_path / "made", seed=0)
    (tmp_path / "demos").mkdir()
    next((tmp_path / "made").rglob("*.hdf5")).rename(tmp_path / "demos/mine.hdf5")
    assert "extends: NAME, " in said(tmp_path / "demos")
    assert "(NAME is aloha or libero or robomimic)" in said(tmp_path / "demos")
    message = said(tmp_path / "demos", "robomimic")
    assert "its only file does not fit schema robomimic" in message
    line = re.search(r"\{datacheck: .*\}", message)[0]
    assert scan(tmp_path / "demos", parse_schema(line)).report.exit_code == 0


@pytest.mark.parametrize("ending", [".hdf5", ".jsonl", ".tar"])
def test_every_schema_that_is_offered_for_other_names_can_be_extended_so(tmp_path, ending):
    touched(tmp_path, f"some/odd one{ending}", "notes.txt")
    (tmp_path / f"some/odd one{ending}").write_bytes(b"more than the notes")
    message = said(tmp_path)
    line = re.search(r"\{datacheck: .*\}", message)[0]
    names = re.search(r"NAME is (.*)\)", message) or re.search(r"extends: (\w+)", message)
    for name in names[1].split(" or "):
        assert matches(parse_schema(line.replace("NAME", name)), list_dataset(tmp_path)) == 1


def test_files_without_a_header_are_not_said_to_be_of_a_layout(tmp_path):
    touched(tmp_path, "tokens/a.bin", "tokens/b.bin")
    assert "kitti, samples:" not in said(tmp_path)


def test_every_message_says_how_to_draft_a_schema(tmp_path):
    touched(tmp_path / "my data", "a.ply")
    data = tmp_path / "my data"
    assert said(data).endswith(
        f"\n    datacheck init '{data}' drafts a schema from what is in them"
    )
    assert said(data, "ho3d").endswith(
        f"\n    datacheck init '{data}' drafts a schema from what is in them"
    )


def test_a_folder_reached_by_a_link_is_named_where_it_lies(tmp_path, monkeypatch):
    """A scan follows no link that leads out of its folder: the one that holds the link has no files for it."""
    monkeypatch.chdir(tmp_path)
    touched(tmp_path, "real/velodyne/000000.bin", "plain/123/000000.bin", "links/other.txt")
    (tmp_path / "links/velodyne").symlink_to("../plain/123")
    (tmp_path / "links/points").symlink_to("../real/velodyne")
    assert "fits the folder" not in said(tmp_path / "links/velodyne")
    assert "schema kitti fits the folder real: datacheck scan real --schema kitti\n" in said(
        tmp_path / "links/points"
    )
    monkeypatch.chdir(tmp_path / "links")
    assert f"datacheck scan {tmp_path}/real --schema kitti\n" in said("../real/velodyne")


def test_what_is_to_be_typed_is_one_word_and_no_option(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    touched(tmp_path / "-x $(y) it's", "0.txt", "train/SM1/meta/0000.pkl")
    (line,) = re.findall(r": (datacheck scan .*)\n", said("."))
    assert shlex.split(line) == ["datacheck", "scan", "./-x $(y) it's", "--schema", "ho3d"]
    (line,) = re.findall(r"    (datacheck init .*) drafts", said("-x $(y) it's/train"))
    assert shlex.split(line) == ["datacheck", "init", "./-x $(y) it's/train"]


@pytest.mark.parametrize("schema", [None, "libero"])
def test_a_name_passes_for_no_line_of_advice(tmp_path, schema):
    touched(tmp_path, "a\n    datacheck scan \x1b[31mtrap/train/SM1/meta/0000.pkl")
    message = said(tmp_path, schema)
    assert "\x1b" not in message
    assert [line for line in message.split("\n") if line.startswith("    ")] == [
        f"    datacheck init {tmp_path} drafts a schema from what is in them"
    ]


def test_files_that_fit_and_that_a_list_leaves_out_are_no_misfit(hands):
    touched(hands, "train/SM2/notes.pkl")
    (hands / "train.txt").write_text("")
    message = said(hands, "ho3d")
    assert message == (
        f"{hands}: 2 of its 4 files fit schema ho3d, but the lists of samples (samples.list) name "
        f"none. Mend the lists."
    )


def test_of_a_large_folder_some_names_decide(tmp_path, monkeypatch):
    monkeypatch.setattr(suggest, "_PATHS", 10)
    touched(tmp_path, *(f"x/{i:04}.hdf5" for i in range(95)), "y.txt")
    seen = []
    monkeypatch.setattr(
        suggest, "PurePosixPath", lambda path: seen.append(path) or PurePosixPath(path)
    )
    assert 'files: "**/*.hdf5"' in suggest.advice(tmp_path, list_dataset(tmp_path))[0]
    assert (
        seen[: len(seen) // 2]
        == seen[len(seen) // 2 :]
        == [f"x/{i:04}.hdf5" for i in range(0, 95, 9)]
    )  # 96 // 10


RECORDING = ("run/a_0.rrd", "run/a_1.rrd")


@pytest.mark.parametrize("schema", [None, "kitti"])
def test_files_that_no_format_reads_are_sent_to_no_command_that_refuses_them(tmp_path, schema):
    touched(tmp_path, *RECORDING)
    message = said(tmp_path, schema)
    assert "datacheck init" not in message
    assert "--schema files" not in message
    assert "no format reads Rerun (run/" in message
    assert "--loader MODULE:FUNCTION" in message
    with pytest.raises(
        UsageError, match=r"no format reads any of its 2 files: 2 \.rrd files\."
    ) as caught:
        draft(tmp_path)
    assert "datacheck scan --loader MODULE:FUNCTION" in str(caught.value)


def test_beside_files_that_no_format_reads_others_are_drafted(tmp_path):
    touched(tmp_path, *RECORDING)
    (tmp_path / "run/metadata.yaml").write_text("a: 1")
    (tmp_path / RECORDING[0]).write_bytes(b"x" * 100)
    (tmp_path / "run/b.unheard").write_bytes(b"x" * 100)
    message = said(tmp_path)
    assert f"no format reads Rerun ({RECORDING[0]}): scan what your loader returns" in message
    assert "no format reads 1 .unheard file: scan what your own code reads" in message
    assert f"datacheck init {tmp_path} drafts" in message
    assert "no format reads: 2 .rrd files, 1 .unheard file" in draft(tmp_path).notes
