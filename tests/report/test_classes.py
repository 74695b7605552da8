"""The shares of classes by split, against counts of planted labels."""

import json

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datacheck.model.table import CHECKED, Measured, Table, Texts
from datacheck.report.html import run_summary
from datacheck.report.rendering import size_of
from datacheck.report.split_tables import MOST_CLASSES, MOST_SPLITS, class_shares
from datacheck.rules.label_counts import class_names, declared
from datacheck.scan import scan
from datacheck.scan.run_documents import SCHEMA
from datacheck.schema.load import parse_schema
from datacheck.schema.model import FieldSpec

HEAD = 'datacheck: 1\nname: s\nsamples: {files: "{split}/{file}"}\nfields:\n'
POINTS = (
    HEAD + "  xyz: {role: points, shape: [P, 3]}\n  label: {role: class, shape: [P], classes: 4}\n"
)
SPLITS = "splits: {key: file, disjoint: [train, val, test]}\n"


def table_of(rows, name="label", present=None, **columns):
    """A table of (split, {class: how often})."""
    counts = np.zeros((len(rows), 64), np.int32)
    for n, (_, labels) in enumerate(rows):
        for label, often in labels.items():
            counts[n, label % 64] += often
    known = counts.sum(axis=1) > 0 if present is None else np.array(present, bool)
    keys = [f"{n}.npy" for n in range(len(rows))]
    return Table(
        keys=keys,
        files=keys,
        inner=[""] * len(rows),
        splits=[split for split, _ in rows],
        groups=[""] * len(rows),
        reasons=[""] * len(rows),
        status=np.full(len(rows), CHECKED, np.int8),
        nbytes=np.full(len(rows), 9),
        columns={f"{name}:classes": Measured(counts, known)}
        | {k: Measured(v, known) for k, v in columns.items()},
    )


def made(rows, schema=POINTS + SPLITS, codes=None, reference=None, **more):
    table = table_of(rows, **more)
    then = None if reference is None else table_of(reference, more.get("name", "label"))
    return list(
        class_shares(table, parse_schema(schema), Texts.of(codes or [""] * len(rows)), then)
    )


def counted(said):
    return {row["name"]: row["counts"] for row in said["rows"]}


def test_labels_are_summed_by_split_those_that_differ_most_first():
    (said,) = made(
        [("val", {0: 5, 1: 5}), ("train", {0: 60, 1: 20, 2: 10}), ("train", {1: 10}), ("val", {})]
    )
    assert (said["field"], said["what"], said["splits"]) == ("label", "point", ["train", "val"])
    assert (said["of"], said["samples"], said["then"], said["rest"]) == (
        [100, 10],
        [2, 1],
        None,
        None,
    )
    # 60 % against 50 %, 30 % against 50 %, 10 % against none
    assert [(row["name"], row["counts"]) for row in said["rows"]] == [
        ("1", [30, 5]),
        ("0", [60, 5]),
        ("2", [10, 0]),
    ]
    assert said["nowhere"] == {"many": 1, "names": ["3"]}
    assert (said["folded"], said["left_out"], said["without"], said["more_splits"]) == (
        False,
        0,
        [],
        0,
    )


def test_the_reference_stands_beside_the_same_split():
    rows = [("train", {0: 3, 1: 1}), ("val", {0: 1}), ("test", {0: 2})]
    (said,) = made(
        rows, reference=[("train", {0: 8}), ("train", {2: 2}), ("val", {1: 4}), ("other", {3: 9})]
    )
    assert said["splits"] == ["train", "val", "test"]
    assert (said["of"], said["then"]) == ([4, 1, 2], [10, 4, None])
    assert {row["name"]: (row["counts"], row["then"]) for row in said["rows"]} == {
        "0": ([3, 1, 2], [8, 0, 0]),
        "1": ([1, 0, 0], [0, 4, 0]),
        "2": ([0, 0, 0], [2, 0, 0]),
    }


def test_one_split_or_none_is_one_column_the_most_frequent_class_first():
    for split in ("", "train"):
        (said,) = made([(split, {1: 1}), (split, {2: 3})])
        assert (said["splits"], counted(said)) == ([split], {"2": [3], "1": [1]})
    assert [row["name"] for row in said["rows"]] == ["2", "1"]


def test_a_split_without_labels_is_named_and_has_no_column():
    (said,) = made([("train", {1: 1}), ("test", {}), ("val", {0: 2})])
    assert (said["splits"], said["without"]) == (["train", "val"], ["test"])
    assert made([("train", {}), ("val", {})]) == []


def test_of_many_classes_thirty_are_shown_and_the_others_added_up():
    schema = HEAD + "  label: {role: class, shape: [P], classes: 60}\n"
    train = dict.fromkeys(range(60), 100) | {n: 100 + 10 * n for n in range(30)}
    val = dict.fromkeys(range(59), 100)
    (said,) = made([("train", train), ("val", val)], schema)
    total = 6000 + 10 * sum(range(30))
    assert said["of"] == [total, 5900]
    spread = {n: abs(train[n] / total - val.get(n, 0) / 5900) for n in range(60)}
    worst = sorted(spread, key=lambda n: (-spread[n], n))
    assert [row["name"] for row in said["rows"]] == [str(n) for n in worst[:MOST_CLASSES]]
    others = worst[MOST_CLASSES:]
    assert said["rest"]["classes"] == 30
    assert said["rest"]["counts"] == [
        sum(train[n] for n in others),
        sum(val.get(n, 0) for n in others),
    ]
    assert said["rest"]["most"] == pytest.approx(max(spread[n] for n in others))
    assert said["rest"]["lacking"] == [0, int(59 in others)]


def test_of_two_hundred_classes_those_that_share_a_place_are_one_row():
    schema = HEAD + "  label: {role: class, shape: [P], classes: 200}\n"
    (said,) = made(
        [("train", {n: 1 + (n == 130) for n in range(200)}), ("val", dict.fromkeys(range(200), 1))],
        schema,
    )
    assert said["folded"]
    assert len(said["rows"]) == MOST_CLASSES
    assert said["rows"][0] == {"name": "2 or 66 or 130", "counts": [5, 4], "then": None}
    assert sum(row["counts"][1] for row in said["rows"]) + said["rest"]["counts"][1] == 200


def test_placeholders_and_labels_in_the_place_of_another_are_left_out_and_counted():
    rows = [("train", {0: 4}), ("train", {1: 4}), ("train", {2: 4})]
    (said,) = made(rows, codes=["DC227", "DC109 DC221", "DC404"])
    assert (counted(said), said["of"], said["left_out"]) == ({"0": [4]}, [4], 2)


@pytest.mark.parametrize(("high", "folded"), [(63, False), (64, True)])
def test_undeclared_classes_have_a_place_of_their_own_only_where_they_are_known_to_be_small(
    high, folded
):
    schema = HEAD + "  label: {role: class, shape: [P]}\n"
    ends = {"label:min": np.zeros((1, 1)), "label:max": np.full((1, 1), high)}
    assert made([("", {1: 5})], schema, **ends)[0]["folded"] is folded
    assert made([("", {1: 5})], schema)[0]["folded"]


def test_what_has_a_label_is_said_where_it_is_known():
    one = HEAD + "  label: {role: class, shape: [], classes: 4}\n"
    assert made([("", {1: 1}), ("", {2: 1})], one)[0]["what"] == "sample"
    assert (
        made([("", {1: 1}), ("", {2: 2})], HEAD + "  label: {role: class, shape: [H, W]}\n")[0][
            "what"
        ]
        == "label"
    )


def test_of_more_splits_than_there_is_room_for_the_others_are_counted():
    (said,) = made(
        [(f"s{n:02d}", {n % 3: 1}) for n in range(MOST_SPLITS + 3)],
        HEAD + "  label: {role: class}\n",
    )
    assert (len(said["splits"]), said["more_splits"]) == (MOST_SPLITS, 3)


def test_columns_of_another_form_are_left_alone():
    schema = parse_schema(POINTS)
    for values in (np.array(["a"], object), np.ones((1, 3), int), np.ones((1, 64))):
        table = table_of([("", {0: 1})])
        table.columns["label:classes"] = table.columns[":classes"] = Measured(
            values, np.ones(1, bool)
        )
        assert list(class_shares(table, schema, Texts.of([""]))) == []


def test_classes_are_named_as_declared_but_for_what_is_ignored():
    def names(**said):
        return class_names(FieldSpec(role="class", **said))

    assert names(classes=[64, 3, -1], ignore=[-1])[:4] == ["64", "1", "2", "3"]
    assert names(classes=[64, 3, -1])[63] == "-1"
    assert names(classes="1..65")[:2] == ["64", "1 or 65"]
    for endless in ({"classes": "5.."}, {"classes": 10**12}, {"classes": "0..1000000000"}, {}):
        assert names(**endless) == [str(n) for n in range(64)]
    assert declared(FieldSpec(role="class", classes=3, ignore=[0])) == [1, 2]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["train", "val", "x"]),
            st.dictionaries(st.integers(0, 63), st.integers(1, 9)),
        )
    )
)
def test_no_label_is_lost(rows):
    said = made(rows, HEAD + "  label: {role: class, classes: 64}\n")
    wanted = {}
    for split, labels in rows:
        for often in labels.values():
            wanted[split] = wanted.get(split, 0) + often
    if not wanted:
        assert said == []
        return
    assert dict(zip(said[0]["splits"], said[0]["of"], strict=True)) == wanted
    rest = said[0]["rest"]["counts"] if said[0]["rest"] else [0] * len(wanted)
    shown = [sum(row["counts"][n] for row in said[0]["rows"]) for n in range(len(wanted))]
    assert [a + b for a, b in zip(shown, rest, strict=True)] == said[0]["of"]


def test_the_page_of_a_scan_counts_what_the_files_hold_and_its_reference(tmp_path):
    counts = {
        "old": {"train": [50, 30, 20], "val": [10, 6, 4]},
        "new": {"train": [50, 30, 20], "val": [2, 18, 0]},
    }
    for version, splits in counts.items():
        for split, often in splits.items():
            (tmp_path / version / split).mkdir(parents=True)
            labels = np.repeat(np.arange(3), often)
            for part in range(2):
                mine = labels[part::2]
                xyz = np.random.default_rng(part).normal(size=(len(mine), 3)).astype(np.float32)
                np.savez(tmp_path / version / split / f"{part}.npz", xyz=xyz, label=mine)
    (tmp_path / "s.yaml").write_text(
        POINTS.replace("{file}", "{file}.npz") + SPLITS, encoding="utf-8"
    )
    for version, reference in (("old", None), ("new", tmp_path / "old.run")):
        scan(
            tmp_path / version,
            tmp_path / "s.yaml",
            output=tmp_path / f"{version}.run",
            reference=reference,
        )
    (said,) = json.loads(orjson.dumps(run_summary(tmp_path / "new.run")["classes"]))
    assert (said["what"], said["of"], said["then"], said["samples"]) == (
        "point",
        [100, 20],
        [100, 20],
        [2, 2],
    )
    for n, (split, column) in enumerate([("train", 0), ("val", 1)]):
        for name in ("0", "1", "2"):
            row = next(row for row in said["rows"] if row["name"] == name)
            assert row["counts"][n] == counts["new"][split][int(name)]
            assert row["then"][column] == counts["old"][split][int(name)]
    assert run_summary(tmp_path / "old.run")["classes"][0]["then"] is None


def test_many_fields_of_classes_and_long_names_have_room_and_no_more(made_run):
    schema = HEAD + "".join(
        f"  f{n}: {{role: class, shape: [P], classes: 60}}\n" for n in range(40)
    )
    folder = made_run(rows=10, failed=0)
    (folder / SCHEMA).write_text(schema, encoding="utf-8")
    rows = [("s" * 5000 + str(n), dict.fromkeys(range(60), 10**6)) for n in range(10)]
    table = table_of(rows, "f0")
    table.columns.update({f"f{n}:classes": table.columns["f0:classes"] for n in range(40)})
    said = run_summary(folder, table)["classes"]
    assert 1 < len(said) < 40
    assert size_of(said) < 50_100
    assert all(len(name) <= 500 for one in said for name in one["splits"])
