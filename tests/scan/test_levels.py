"""What each level reads, what it finds, and what it says it did not look at."""

import h5py
import numpy as np
import pytest
from PIL import Image

from datacheck.formats.hdf5 import _Hdf5
from datacheck.model.sample import DEPTHS
from datacheck.rules import catalogue
from datacheck.rules.base import Measure
from datacheck.rules.selection import choose_rules, measures_of
from datacheck.scan import Request, run_scan, scanned_dataset
from datacheck.scan.measurement_settings import MeasurementSettings
from tests.scan.conftest import make_rule, make_schema

FILM = {
    "actions": {"role": "action", "shape": ["T", 2]},
    "rgb": {"role": "image", "shape": ["T", 4, 4, 3], "dtype": "uint8"},
}


def write_demos(path, demos):
    with h5py.File(path, "w") as file:
        for number, (actions, frames) in enumerate(demos):
            group = file.create_group(f"data/demo_{number}")
            group["actions"] = actions
            group["rgb"] = np.zeros((frames, 4, 4, 3), np.uint8)


def film_schema(**more):
    return make_schema(FILM | more, samples={"files": "*.hdf5", "each": "/data/demo_*"})


def scan(schema, data, level="numeric", **options):
    return run_scan(schema, Request(data, workers=1, level=level, **options))


def verdicts(run):
    return {v.code: v.verdict.value for v in run.report.verdicts}


def why(run):
    return {v.code: v.why for v in run.report.verdicts}


@pytest.fixture
def reads(in_tmp, monkeypatch):
    """The names that are read from HDF5 files, in this process."""
    from datacheck.scan import measuring, worker
    from datacheck.workers.parallel import TaskResult

    names = []
    real = _Hdf5.read
    monkeypatch.setattr(_Hdf5, "read", lambda self, name: names.append(name) or real(self, name))
    here = lambda function, tasks, **options: (  # noqa: E731
        TaskResult(t, [worker.measure_items(t, lambda i: None)]) for t in tasks
    )
    monkeypatch.setattr(measuring, "ordered_map", here)
    return names


def test_pixels_are_read_at_deep_only_and_values_not_at_structure(reads, in_tmp):
    write_demos(in_tmp / "a.hdf5", [(np.ones((5, 2)), 5)])
    scan(film_schema(), in_tmp, "structure")
    assert reads == []
    scan(film_schema(), in_tmp)
    assert reads == ["data/demo_0/actions"]
    scan(film_schema(), in_tmp, "deep")
    assert sorted(set(reads)) == ["data/demo_0/actions", "data/demo_0/rgb"]


@pytest.mark.parametrize("level", DEPTHS)
def test_every_level_sees_lengths_that_differ_and_wrong_shapes(in_tmp, level):
    write_demos(
        in_tmp / "a.hdf5", [(np.ones((5, 2)), 5), (np.ones((5, 2)), 4), (np.ones((5, 3)), 5)]
    )
    run = scan(film_schema(), in_tmp, level)
    found = {f.code: [run.table.keys[int(i)][-1] for i in f.rows] for f in run.report.findings}
    assert found["DC123"] == ["1"]
    assert found["DC122"] == ["2"]
    assert run.report.run["level"] == level


def test_structure_finds_no_values_and_says_so(in_tmp):
    write_demos(in_tmp / "a.hdf5", [(np.full((5, 2), np.nan), 5)])
    run = scan(film_schema(), in_tmp, "structure")
    assert verdicts(run)["DC221"] == "skip"
    assert why(run)["DC221"] == "needs --level numeric"
    assert not run.report.findings
    assert sum("needs --level numeric" in line for line in run.report.unchecked) == 1
    run = scan(film_schema(), in_tmp)
    assert [f.code for f in run.report.findings] == ["DC221"]
    assert any("pixels of rgb" in line and "--level deep" in line for line in run.report.unchecked)
    run = scan(film_schema(), in_tmp, "deep")
    assert not any("pixels" in line for line in run.report.unchecked)


def test_a_file_that_was_not_read_whole_has_no_digest_and_is_still_kept(in_tmp):
    write_demos(in_tmp / "a.hdf5", [(np.ones((5, 2)), 5)])
    np.save(in_tmp / "b.npy", np.zeros(3))
    first = scan(film_schema(), in_tmp)
    assert [e.digest for e in first.listing.entries if e.path == "a.hdf5"] == [""]
    deep = scan(film_schema(), in_tmp, "deep")
    assert all(e.digest for e in deep.listing.entries if e.path == "a.hdf5")


def test_a_rule_deeper_than_the_level_is_skipped_and_its_measurement_not_run():
    def slow(column, spec):
        raise AssertionError

    deep = make_rule("DC901", measures=(Measure("slow", 1, "field", slow, depth="deep"),))
    late = make_rule("DC902", depth="deep")
    plain = make_rule("DC903", measures=(Measure("some", 1, "field", slow),))
    rules = {r.code: r for r in (deep, late, plain)}
    said = {
        c.rule.code: (c.verdict and c.verdict.value, c.why)
        for c in choose_rules(make_schema(), rules, "numeric")
    }
    skip = ("skip", "needs --level deep")
    assert said == {"DC901": skip, "DC902": skip, "DC903": (None, "")}
    names = {
        level: [m.name for m in measures_of(choose_rules(make_schema(), rules, level), level)]
        for level in DEPTHS
    }
    assert names == {"structure": [], "numeric": ["some"], "deep": ["slow", "some"]}


def test_a_rule_about_pixels_alone_is_skipped_where_they_are_not_read():
    values = make_rule(
        "DC901",
        measures=(Measure("v", 1, "field", len),),
        applies=lambda spec: spec.role == "image",
    )
    shapes = make_rule(
        "DC902",
        measures=(Measure("s", 1, "field", len, depth="structure"),),
        applies=lambda s: s.role == "image",
    )
    chosen = choose_rules(film_schema(), {"DC901": values, "DC902": shapes}, "numeric")
    assert [(c.verdict and c.verdict.value, c.why) for c in chosen] == [
        ("skip", "needs --level deep"),
        (None, ""),
    ]


def test_a_waiver_of_a_rule_that_the_level_leaves_out_is_no_error(in_tmp):
    np.save(in_tmp / "a.npy", np.full(3, np.nan))
    schema = make_schema(rules={"DC221": {"ignore": ["a.npy"], "reason": "known"}})
    assert verdicts(scan(schema, in_tmp, "structure"))["DC221"] == "skip"
    assert why(scan(schema, in_tmp))["DC221"].startswith("1 failing samples waived")


def test_the_key_of_rows_knows_the_level_where_it_changes_them():
    rules = catalogue()

    def key(schema, level):
        measures = measures_of(choose_rules(schema, rules), "numeric")
        return MeasurementSettings.of(schema, measures, level).key

    plain, film, open_ = make_schema(), film_schema(), make_schema({"x": {}, "*": {}})
    assert key(plain, "numeric") == key(plain, "deep") != key(plain, "structure")
    assert key(film, "numeric") != key(film, "deep")
    # What the schema does not list may be pixels
    assert key(open_, "numeric") != key(open_, "deep")


def test_undeclared_arrays_that_look_like_pixels_are_named_and_not_read(reads, in_tmp):
    write_demos(in_tmp / "a.hdf5", [(np.ones((5, 2)), 5)])
    with h5py.File(in_tmp / "a.hdf5", "a") as file:
        file["data/demo_0/depth"] = np.full((5, 4, 4), np.inf, np.float32)
    schema = make_schema(
        {"actions": {}, "*": {}}, samples={"files": "*.hdf5", "each": "/data/demo_*"}
    )
    run = scan(schema, in_tmp)
    assert sorted(reads) == ["data/demo_0/actions", "data/demo_0/depth"]
    assert [(f.code, f.fields) for f in run.report.findings] == [("DC221", ("*",))]
    assert any(
        "not judged (not read, or there are too many)" in line and "rgb" in line
        for line in run.report.unchecked
    )


def shots(folder, size=(8, 6)):
    rng = np.random.default_rng(0)
    for name in "ab":
        np.save(folder / f"{name}.npy", np.arange(3.0))
        Image.fromarray(rng.integers(0, 255, (*size, 3), dtype=np.uint8)).save(
            folder / f"{name}.jpg"
        )
        Image.fromarray(rng.integers(0, 9999, size, dtype=np.uint16)).save(folder / f"{name}.png")
    return make_schema(
        {
            "x": {},
            "rgb": {"role": "image", "file": "{id}.jpg", "shape": [8, 6, 3]},
            "far": {"role": "depth", "file": "{id}.png", "shape": [8, 6], "dtype": "uint16"},
        },
        samples={"files": "{id}.npy"},
    )


@pytest.mark.parametrize("level", DEPTHS)
@pytest.mark.parametrize("suffix", ["jpg", "png"])
def test_a_truncated_image_is_found_at_every_level(in_tmp, level, suffix):
    schema = shots(in_tmp, (8, 6))
    data = (in_tmp / f"b.{suffix}").read_bytes()
    (in_tmp / f"b.{suffix}").write_bytes(data[: len(data) - 20])
    run = scan(schema, in_tmp, level)
    (finding,) = run.report.findings
    assert (finding.code, finding.examples) == ("DC101", ("b.npy",))
    assert f"b.{suffix}" in finding.message


@pytest.mark.parametrize("level", DEPTHS)
def test_whole_images_raise_nothing_and_their_shape_is_checked(in_tmp, level):
    schema = shots(in_tmp)
    assert not scan(schema, in_tmp, level).report.findings
    Image.fromarray(np.random.default_rng(1).integers(0, 255, (9, 6, 3), dtype=np.uint8)).save(
        in_tmp / "b.jpg"
    )
    found = [f for f in scan(schema, in_tmp, level).report.findings if f.code != "DC108"]
    assert [(f.code, f.fields, f.examples) for f in found] == [("DC122", ("rgb",), ("b.npy",))]


def test_samples_that_differ_in_their_pixels_alone_are_no_duplicates(in_tmp):
    schema = shots(in_tmp)
    assert [f.code for f in scan(schema, in_tmp).report.findings] == []
    for suffix in ("jpg", "png"):
        (in_tmp / f"b.{suffix}").write_bytes((in_tmp / f"a.{suffix}").read_bytes())
    assert [f.code for f in scan(schema, in_tmp).report.findings] == []
    assert [f.code for f in scan(schema, in_tmp, "deep").report.findings] == ["DC803"]


def test_the_field_that_tells_the_split_is_read_at_structure_too(in_tmp):
    np.savez(in_tmp / "a.npz", x=np.zeros(3), who=np.int64(7))
    schema = make_schema({"x": {}, "who": {}}, samples={"files": "*.npz"}, splits={"key": "who"})
    run = scan(schema, in_tmp, "structure")
    assert run.table.columns[":split_key"].values.tolist() == ["7"]


def test_columns_of_a_table_are_told_by_its_header(in_tmp):
    np.save(in_tmp / "a.npy", np.full((7, 5), np.nan, np.float32))
    fields = {"xyz": {"shape": ["P", 3]}, "c": {"shape": ["P"]}, "d": {"shape": ["P"]}}
    schema = make_schema(fields, columns="xyz:3 c d")
    deep, shallow = scan(schema, in_tmp, "deep"), scan(schema, in_tmp, "structure")
    assert not shallow.report.findings
    for name in ("xyz:dims", "c:dims", "d:dims", "xyz:ndim", "c:dtype"):
        assert (
            shallow.table.columns[name].values.tolist() == deep.table.columns[name].values.tolist()
        )
    assert shallow.table.nbytes.tolist() == deep.table.nbytes.tolist() == [140]


@pytest.mark.parametrize(("limit", "level"), [(0, "deep"), (-1, "numeric")])
def test_without_a_level_small_datasets_are_read_deep(in_tmp, monkeypatch, limit, level):
    write_demos(in_tmp / "a.hdf5", [(np.arange(20.0).reshape(10, 2), 10)] * 2)
    size = (in_tmp / "a.hdf5").stat().st_size
    monkeypatch.setattr(scanned_dataset, "SMALL", size + limit)
    scanned = scan(film_schema(), in_tmp, None)
    assert scanned.report.run["level"] == level
    assert any("pixels of rgb" in line for line in scanned.report.unchecked) == (level == "numeric")
