import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from datacheck.errors import SchemaError
from datacheck.infer.suggest import foreign_lines
from datacheck.model.finding import Severity
from datacheck.model.table import CHECKED, SKIPPED, Measured, Table
from datacheck.rules import catalogue
from datacheck.rules.engine import judge
from datacheck.rules.selection import choose_rules, options_of, without_unread_rule
from datacheck.scan import Request, run_scan, scan
from datacheck.scan.coverage import coverage as read_coverage
from datacheck.scan.coverage import first_bytes_notes, notes_with_unread
from datacheck.scan.run_state import RunState, Slots
from datacheck.scan.summary import RunContext, report_of
from datacheck.schema.load import load_schema
from datacheck.schema.model import Schema
from datacheck.sources.listing import Listing
from datacheck.sources.roots import Entries, Entry
from tests.scan.conftest import make_schema

PLAIN = Schema.model_validate({"datacheck": 1, "name": "plain", "samples": {"files": "*.npy"}})


def past(root=Path(), *, status=CHECKED, digests=None, **files):
    """Return a scan of files of so many bytes; those that are named with a "+" in front gave a sample each."""
    sizes = {path.lstrip("+"): nbytes for path, nbytes in files.items()}
    used = sorted(path[1:] for path in files if path[0] == "+")
    digests = digests or {}
    entries = Entries.of(
        [
            Entry(path, n, 0, 0, 0, 0, digests.get(path, "0" * 32))
            for path, n in sorted(sizes.items())
        ]
    )
    count = len(used)
    table = Table(
        used,
        used,
        [""] * count,
        [""] * count,
        [""] * count,
        np.full(count, status, np.int8),
        ["DC101 no library"] * count if status == SKIPPED else [""] * count,
        np.zeros(count, np.int64),
    )
    unclaimed = sorted(path for path in sizes.keys() - set(used) if path[0] != "@")
    return RunState(
        Listing(root, entries), "", Slots(used, [""] * count, {}), table, unclaimed=unclaimed
    )


def coverage(state, schema, level):
    return read_coverage(state, schema, level, options_of(schema, catalogue()["DC113"]))


def unread(state, schema=PLAIN, *, allow=False):
    """Return the findings of the rule about unread data."""
    choices = without_unread_rule(choose_rules(schema, catalogue()), unread=allow)
    judged = judge(
        state.table,
        schema,
        choices,
        notes_with_unread(state.notes, coverage(state, schema, "numeric")),
    )
    assert judged.crashes == []
    # What was read may still be trained on
    assert judged.valid.all() or (state.table.status == SKIPPED).any()
    return [finding for finding in judged.findings if finding.code == "DC113"]


def test_bytes_count_by_whether_a_sample_was_read_from_their_file():
    found = coverage(
        past(**{"+a.npy": 300, "b.rrd": 600, "c.dat": 100, "README.md": 5000}), PLAIN, "numeric"
    )
    assert (found.nbytes, found.opened, found.partly, found.left) == (1000, 300, 0, 0)
    assert [(kind.name, kind.files, kind.nbytes, kind.first) for kind in found.kinds] == [
        ("Rerun", 1, 600, "b.rrd"),
        (".dat", 1, 100, "c.dat"),
    ]


def test_a_folder_of_which_most_bytes_were_not_read_is_an_error_that_names_the_format_and_the_way_in():
    (finding,) = unread(past(**{"+config.npy": 300, "run.rrd": 600, "x.sqlite": 100}))
    assert finding.severity is Severity.ERROR
    assert finding.message == (
        "70 % of the bytes are in files that were not opened: Rerun (1 file, 60 %, such as "
        "run.rrd), "
        "SQLite (1 file, 10 %, such as x.sqlite)."
    )
    assert "--loader" in finding.fix
    assert "--allow-unread" in finding.fix


def test_half_of_the_bytes_are_most_of_them():
    assert unread(past(**{"+a.npy": 500, "b.rrd": 500})) == []
    assert len(unread(past(**{"+a.npy": 499, "b.rrd": 501}))) == 1


def test_whoever_allows_it_is_not_told_again():
    state = past(**{"+a.npy": 1, "b.rrd": 999})
    assert unread(state, allow=True) == []
    assert coverage(state, PLAIN, "numeric").opened == 1  # the share is what it is


def test_files_that_the_schema_says_nobody_reads_are_no_fault_and_not_read_either():
    schema = PLAIN.model_validate(PLAIN.as_dict() | {"rules": {"DC113": {"not_read": ["*/rgb/*"]}}})
    state = past(**{"+a.npy": 100, "train/rgb/0.exr": 900})
    assert len(unread(state)) == 1
    assert unread(state, schema) == []
    found = coverage(state, schema, "numeric")
    assert (found.nbytes, found.opened, found.left, found.kinds) == (1000, 100, 900, [])


def test_companions_that_no_field_reads_are_not_opened_and_need_not_be(tmp_path):
    companions = {"rgb": "rgb/{id}.jpg", "depth": "{maps}/{id}.png", "mask": "mask/{id}.png"}
    schema = Schema.model_validate(
        {
            "datacheck": 1,
            "name": "beside",
            "roots": {"maps": ""},
            "samples": {"files": "{id}.npy", "companions": companions},
            "fields": {"x": {}, "m": {"file": "mask/{id}.png"}},
        }
    )
    state = past(
        **{
            "+0.npy": 100,
            "rgb/0.jpg": 9000,
            "mask/0.png": 300,
            "@maps/0.png": 50,
            "run.rrd": 600,
            "rgb/9.jpg": 7,
        }
    )
    listing = replace(state.listing, roots={"maps": tmp_path})
    state = replace(state, listing=listing, unclaimed=["rgb/9.jpg", "run.rrd"])
    found = coverage(state, schema, "numeric")
    assert (found.nbytes, found.opened, found.left) == (10_007, 400, 9000)
    (finding,) = unread(state, schema)
    # 600 of 1,000
    assert finding.message.startswith("60 % of the bytes are in files that were not opened: Rerun")


def test_a_folder_whose_name_begins_with_an_at_sign_is_no_extra_folder():
    found = coverage(past(**{"+a.npy": 300, "+@eaDir/b.npy": 900}), PLAIN, "numeric")
    assert (found.nbytes, found.opened) == (1200, 1200)


def test_patterns_of_files_not_to_read_that_take_too_long_are_an_error(monkeypatch):
    """Each of 2,000 patterns is compared at each of 4,000 letters: hours for all files."""
    monkeypatch.setattr("datacheck.schema.globs._MOST_STEPS", 3_000_000_000)
    texts = [f"*{'a' * 440}b{n}*" for n in range(2_000)]
    schema = PLAIN.model_validate(PLAIN.as_dict() | {"rules": {"DC113": {"not_read": texts}}})
    state = past(**{f"{'a' * 4_000}{n}.rgb": 1 for n in range(1_000)})
    with pytest.raises(SchemaError, match=r"rules.DC113.not_read: 2,000 patterns .* take too long"):
        coverage(state, schema, "numeric")


def test_files_of_an_absent_library_are_not_read():
    state = past(status=SKIPPED, **{"+a.parquet": 900, "README.md": 1})
    assert coverage(state, PLAIN, "numeric").opened == 0
    assert len(unread(state)) == 1


def test_a_file_of_which_pixels_were_left_out_is_opened_in_part():
    found = coverage(
        past(digests={"a.png": ""}, **{"+a.png": 900, "+b.npy": 100}), PLAIN, "numeric"
    )
    assert (found.opened, found.partly) == (1000, 900)


def test_extra_folders_do_not_count():
    state = past(**{"+a.npy": 300, "@objects/x.obj": 900})
    state = replace(state, listing=replace(state.listing, roots={"objects": Path("o")}))
    found = coverage(state, PLAIN, "numeric")
    assert (found.nbytes, found.opened) == (300, 300)


@pytest.mark.parametrize(
    ("name", "files"),
    [
        (
            "ho3d",
            [
                "train/ABF10/rgb/0000.jpg",
                "evaluation/SM1/depth/0000.png",
                "train/ABF10/seg/0000.png",
            ],
        ),
        (
            "lerobot",
            [
                "videos/chunk-000/observation.image/episode_000000.mp4",
                "pusht/videos/x/file-000.mp4",
            ],
        ),
        (
            "scannet_raw",
            ["scene0000_00/scene0000_00.sens", "scene0000_00/scene0000_00_2d-label.zip"],
        ),
        ("minimind_sft", ["pretrain_hq.jsonl", "dpo.jsonl"]),
    ],
)
def test_built_in_schemas_name_what_they_do_not_read(name, files):
    schema = load_schema(name)
    assert unread(past(**{"+x": 1}, **dict.fromkeys(files, 1000)), schema) == []
    assert len(unread(past(**{"+x": 1, "train/other.rrd": 1000}), schema)) == 1


def test_files_that_could_be_read_and_that_the_patterns_leave_out_are_a_choice_and_not_read():
    state = past(**{"+a.npy": 300, "other/b.npy": 9000, "run.rrd": 200})
    assert unread(state) == []  # 300 of the 500 bytes that nobody chose to leave out
    found = coverage(state, PLAIN, "numeric")
    assert (found.nbytes, found.opened) == (9500, 300)
    assert [(kind.name, kind.chosen) for kind in found.kinds] == [(".npy", True), ("Rerun", False)]
    assert len(unread(past(**{"+a.npy": 100, "other/b.npy": 9000, "run.rrd": 200}))) == 1


def test_first_bytes_name_a_file_whose_name_says_nothing(tmp_path):
    (tmp_path / "recording.dat").write_bytes(b"RRF2\0\0\0\0" + bytes(992))
    (tmp_path / "noise.xyzzy").write_bytes(bytes(10))
    state = past(tmp_path, **{"+a.npy": 10, "recording.dat": 1000, "noise.xyzzy": 10})
    notes = first_bytes_notes(state.listing, state.unclaimed)
    assert [(note.key, note.reason) for note in notes] == [(".dat", "Rerun")]
    known = RunState(
        state.listing, "", state.items, state.table, unclaimed=state.unclaimed, notes=notes
    )
    assert [kind.name for kind in coverage(known, PLAIN, "numeric").kinds] == ["Rerun", ".xyzzy"]


def test_an_error_names_the_formats_with_most_bytes():
    state = past(**{"a.zip": 1, "b.mat": 5, "c.rrd": 9})
    assert [line.partition(":")[0] for line in foreign_lines(state.listing)] == [
        "no format reads Rerun (c.rrd)",
        "no format reads MATLAB (b.mat)",
    ]


def with_columns(*names):
    state = past(**{"+a.npy": 10})
    columns = {name: Measured(np.ones(1), np.ones(1, bool)) for name in names}
    return replace(state, table=replace(state.table, columns=columns))


def test_fields_count_as_read_where_their_values_were():
    fields = {"x": {"columns": "a:3 b"}, "x.a": {}, "image": {"role": "image"}}
    schema = Schema.model_validate(PLAIN.as_dict() | {"fields": fields})
    state = with_columns("x:ndim", "x.a:ndim", "image:ndim", "y:ndim", ":nbytes")
    state = replace(state, undeclared=["y", "large (not read)"])
    counted = {level: coverage(state, schema, level) for level in ("structure", "numeric", "deep")}
    assert {level: (one.fields, one.fields_read) for level, one in counted.items()} == {
        "structure": (4, 0),
        "numeric": (4, 2),
        "deep": (4, 3),
    }


def test_a_field_that_is_read_in_some_samples_only_counts_once():
    state = replace(
        with_columns("x:ndim", "y:ndim"), undeclared=["y", "y (not read)", "z", "z (not read)"]
    )
    found = coverage(
        state, Schema.model_validate(PLAIN.as_dict() | {"fields": {"x": {}}}), "numeric"
    )
    assert (found.fields, found.fields_read) == (3, 3)


def test_formats_without_a_reader_are_named_however_many_files_of_no_known_format_are_larger():
    state = past(
        **{"+a.npy": 1, "b.k1": 900, "b.k2": 800, "b.k3": 700, "run.rrd": 600, "x.sqlite": 500}
    )
    facts = RunContext(PLAIN, Path(), state, 0.0, 0, 0, coverage=coverage(state, PLAIN, "numeric"))
    judged = judge(state.table, PLAIN, choose_rules(PLAIN, catalogue()))
    said = [line.partition(":")[0] for line in report_of(facts, "", "error", judged).unchecked]
    assert [line for line in said if line.endswith("was not read")] == [
        "Rerun (1 file, such as run.rrd) was not read",
        "SQLite (1 file, such as x.sqlite) was not read",
    ]


def test_what_guessed_patterns_leave_out_counts_as_not_read():
    """Of 1,189 pictures and six arrays of labels, drafted for the arrays, all samples were fit."""
    state = past(**{"+a.npy": 300, "b.jpg": 600, "c.h5": 100})
    assert unread(state) == []  # somebody chose these patterns
    guessed = PLAIN.model_validate(PLAIN.as_dict() | {"rules": {"DC113": {"left_out": True}}})
    (finding,) = unread(state, guessed)
    assert finding.message.startswith(
        "70 % of the bytes are in files that were not opened: .jpg (1 file, 60 %"
    )
    assert finding.fix.startswith(".jpg, .h5: describe them in the schema")
    assert unread(past(**{"+a.npy": 700, "b.jpg": 300}), guessed) == []


def test_fields_beyond_those_that_are_judged_are_named_by_themselves(tmp_path):
    """The first 64 by name are judged: one file may name as many before the field of all others."""
    data = tmp_path / "data"
    data.mkdir()
    for number in range(3):
        np.savez(data / f"s{number}.npz", x=np.ones((4, 3)), velocity=np.ones((4, 3)))
    np.savez(
        data / "z.npz", x=np.ones((4, 3)), **{f"a{number:02}": np.ones(2) for number in range(64)}
    )
    schema = make_schema({"x": {"shape": ["P", 3]}}, samples={"files": "*.npz"})
    unchecked = run_scan(schema, Request(data, output=tmp_path / "out")).report.unchecked
    assert (
        "1 field that the schema does not list, not judged (not read, or there are too many): "
        "velocity" in unchecked
    )


def test_values_of_a_kind_that_is_not_read_are_named_where_a_schema_does_not_list_them(tmp_path):
    """A draft said so of pictures in TFRecord and Parquet files, the scan by it did not."""
    data = tmp_path / "data"
    data.mkdir()
    pq.write_table(
        pa.table({"x": [1.0, 2.0], "picture": [b"\xff\xd8", b"\xff"]}), data / "a.parquet"
    )
    schema = make_schema({"x": {"shape": []}}, samples={"files": "*.parquet", "each": "row"})
    unchecked = run_scan(schema, Request(data, output=tmp_path / "out")).report.unchecked
    assert (
        "1 field that the schema does not list, not judged (not read, or there are too many): "
        "picture" in unchecked
    )


@pytest.mark.parametrize(
    ("files", "samples", "warned"), [(20, 20, True), (20, 40, True), (19, 40, False), (9, 9, False)]
)
def test_files_that_are_not_read_and_lie_beside_samples_are_a_warning_however_small(
    files, samples, warned
):
    held = {f"+{i:02}.npy": 10_000 for i in range(samples)} | {
        f"{i:02}.ann": 10 for i in range(files)
    }
    found = unread(past(**held))
    assert [(one.severity, one.measured["files"]) for one in found] == (
        [(Severity.WARNING, files)] if warned else []
    )
    if warned:
        assert f"{files} files that were not read (.ann, such as 00.ann)" in found[0].message
    assert unread(past(**held), allow=True) == []
    named = make_schema({"x": {}}, rules={"DC113": {"not_read": ["*.ann"]}})
    assert unread(past(**held), named) == []


def test_values_that_no_rule_looks_into_are_named(tmp_path):
    """Pickled clips and questions in JSON ended as "all samples are fit", 100 % of the bytes read."""
    folder = tmp_path / "d"
    folder.mkdir()
    for name in ("train", "test"):
        clips = {"label": ["run", "sit"], "pose": [[[1.5, 2.5]], [[0.5, 1.5], [2.5, 3.5]]]}
        (folder / f"{name}.json").write_text(json.dumps(clips))
    unchecked = scan(folder, output=tmp_path / "out").report.unchecked
    assert [line for line in unchecked if line.startswith("what is inside of")] == [
        "what is inside of label, pose (lists or JSON values): no rule judges it without a role"
    ]
    files = scan(folder, schema="files", output=tmp_path / "out").report.unchecked
    assert any(line.startswith("each file is a sample by itself") for line in files)
