"""A user's own functions as steps."""

from __future__ import annotations

import sys
import types

import numpy as np
import pytest

from datacheck.errors import UsageError
from datacheck.model.sample import ArraySpec, Origin, Piece, stack
from datacheck.plugins import add_module_folders, resolve
from datacheck.transforms import bind, run, step

SPECS = {"x": ArraySpec("float32", (3,), "P")}

MODULE = """
import numpy as np
from datacheck.model.sample import Block, Sample
from datacheck.errors import InvalidSample
from datacheck.transforms.base import with_columns
from datacheck.model.sample import Column

def double(sample: Sample, times: int = 2) -> dict:
    if len(sample.fields["x"]) == 0:
        raise InvalidSample("empty")
    return {"x": sample.fields["x"] * np.float32(times), "n": len(sample.fields["x"])}

def whole(block: Block) -> Block:
    return with_columns(block, {"x": Column(block.fields["x"].values + 1, block.fields["x"].lengths)})

def broken(sample):
    raise KeyError("nope")

def wrong(sample):
    return 3

def uneven(block: Block) -> Block:
    return with_columns(block, {"x": Column(np.ones((1, 3), np.float32), np.array([1]))})

def shortened(block: Block) -> Block:
    return Block(block.keys[1:], {}, block.origins[1:])

memory = np.zeros((3, 3), np.float32)
words = []

def in_place(sample):
    rows = len(sample.fields["x"])
    memory[:] = rows
    words[:] = [rows]
    return {"x": memory[:rows], "said": words}

def in_place_of_blocks(block: Block) -> Block:
    memory[:] = len(block.keys)
    return with_columns(block, {"x": Column(memory[: len(block.fields["x"].values)], block.fields["x"].lengths)})

constant = 3
"""


@pytest.fixture
def mine(tmp_path, monkeypatch):
    (tmp_path / "mine_steps.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path / "mine_steps.py"
    sys.modules.pop("mine_steps", None)


def blocks():
    return stack(
        [Piece(f"k{i}", {"x": np.ones((i, 3), np.float32)}, Origin("f")) for i in range(3)]
    )[0]


def pieces(made):
    return [Piece(s.key, s.fields, s.origin) for b in made for s in b]


def test_a_function_of_samples(mine):
    entry = {
        "mine_steps:double": {
            "with": {"times": 3},
            "fields": {"n": {"shape": [], "dtype": "int64"}},
        }
    }
    steps, after = bind([step(entry)], SPECS)
    assert after == {**SPECS, "n": ArraySpec("int64")}
    made, refused = run(steps, blocks())
    assert refused == [("k0", "empty")]
    found = {s.key: s.fields for b in made for s in b}
    assert {k: f["n"].item() for k, f in found.items()} == {"k1": 1, "k2": 2}
    assert found["k2"]["x"].tolist() == [[3, 3, 3]] * 2
    assert step(steps[0].as_dict()) == steps[0]


def test_a_function_of_blocks(mine):
    steps, after = bind([step("mine_steps:whole")], SPECS)
    assert after == SPECS
    made, refused = run(steps, blocks())
    assert not refused
    assert {s.key: s.fields["x"].sum() for s in made[0]} == {"k0": 0, "k1": 6, "k2": 12}


def test_a_function_may_write_into_the_same_memory_each_time(mine):
    said = {"said": {"role": "value", "dtype": "json", "shape": []}}
    steps, _ = bind([step({"mine_steps:in_place": {"fields": said}})], SPECS)
    (made,), refused = run(steps, blocks())
    assert not refused
    assert [s.fields["x"].tolist() for s in made] == [[], [[1] * 3], [[2] * 3] * 2]
    assert [s.fields["said"] for s in made] == [[0], [1], [2]]
    steps, _ = bind([step("mine_steps:in_place_of_blocks")], SPECS)
    one, two = (
        run(steps, stack(some)[0])[0][0]
        for some in (pieces([blocks()])[:2], pieces([blocks()])[2:])
    )
    assert one.fields["x"].values.tolist() == [[2] * 3]
    assert two.fields["x"].values.tolist() == [[1] * 3] * 2


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("broken", "KeyError: 'nope' .at sample k0."),
        ("wrong", "returns a mapping of fields, not int"),
        ("shortened", "same keys"),
        ("constant", "not a function"),
        ("absent", "no attribute 'absent'"),
    ],
)
def test_a_faulty_function_is_told_without_a_traceback(mine, name, said):
    with pytest.raises(UsageError, match=said):
        run(bind([step(f"mine_steps:{name}")], SPECS)[0], blocks())


def test_the_source_is_part_of_the_identity_and_its_place_is_not(mine, tmp_path, monkeypatch):
    before = step("mine_steps:double").identity()
    assert str(tmp_path) not in str(before)
    mine.write_text(MODULE.replace("int = 2", "int = 4"))
    assert step("mine_steps:double").identity()["source"] != before["source"]
    assert step("mine_steps:whole").identity()["function"] == ["mine_steps", "whole"]


@pytest.mark.parametrize(
    "declared", [{"dtype": "float32"}, {"shape": [3]}, {"shape": ["T", "N"], "dtype": "int8"}]
)
def test_a_new_field_must_be_declared_in_full(mine, declared):
    with pytest.raises(UsageError, match="give dtype and shape"):
        bind([step({"mine_steps:double": {"fields": {"n": declared}}})], SPECS)


def test_text_may_come_out(mine):
    _, after = bind(
        [step({"mine_steps:double": {"fields": {"t": {"role": "text"}}, "drop": ["x"]}})], SPECS
    )
    assert list(after) == ["t"]
    assert after["t"].kind == "text"


def test_a_block_whose_columns_do_not_hold_its_samples_is_refused(mine):
    (one,), _ = bind([step("mine_steps:uneven")], SPECS)
    with pytest.raises(UsageError, match="the column x does not hold the rows of 3 samples"):
        run([one], blocks())


@pytest.mark.parametrize("source", ["def f(:\n", "1 / 0\n"])
def test_a_module_that_cannot_be_imported_is_said(tmp_path, monkeypatch, source):
    (tmp_path / "bad_steps.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(
        UsageError, match=r"bad_steps:f: the module cannot be imported: (Syntax|ZeroDivision)Error"
    ):
        bind([step("bad_steps:f")], SPECS)[0][0].identity()


def test_two_pipelines_may_have_modules_of_one_name(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "own_steps.py").write_text(f"def f(sample):\n    return {name!r}\n")
    add_module_folders([])  # what a test before this one built
    before = list(sys.path)
    for name in ("one", "two", "one"):
        add_module_folders([str(tmp_path / name)])
        assert resolve("own_steps:f")(None) == name
    add_module_folders([])
    assert sys.path == before
    with pytest.raises(UsageError, match="own_steps"):
        resolve("own_steps:f")


def test_modules_are_forgotten_while_another_thread_imports(tmp_path, monkeypatch):
    class Importing:
        """A module that is asked for its file just when something else is imported."""

        @property
        def __file__(self):
            sys.modules.setdefault(f"meanwhile_{len(sys.modules)}", types.ModuleType("meanwhile"))
            return None

    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "own_steps.py").write_text(f"def f(sample):\n    return {name!r}\n")
    monkeypatch.setattr(sys, "modules", dict(sys.modules) | {"importing": Importing()})
    add_module_folders([str(tmp_path / "one")])
    add_module_folders([str(tmp_path / "two")])
    assert resolve("own_steps:f")(None) == "two"
    add_module_folders([])


@pytest.mark.parametrize(
    ("spec", "served"), [({}, ["k0", "k2"]), ({"finite": False}, ["k0", "k1", "k2"])]
)
def test_a_sample_in_which_a_function_made_nan_is_refused(mine, spec, served):
    source = "import numpy as np\ndef log(sample):\n    return {'x': np.log(sample.fields['x'])}\n"
    (mine.parent / "mine_steps.py").write_text(source)
    start = stack(
        [
            Piece(k, {"x": np.full((1, 3), v, np.float32)}, Origin("f"))
            for k, v in [("k0", 1), ("k1", 0)]
        ]
    )
    start = stack(
        [*pieces(start), Piece("k2", {"x": np.array([[np.inf, 1, 1]], np.float32)}, Origin("f"))]
    )
    fields = {"x": {"shape": ["P", 3], "dtype": "float32", **spec}}
    steps, _ = bind([step({"mine_steps:log": {"fields": fields}})], SPECS)
    with np.errstate(divide="ignore"):
        made, refused = run(steps, start[0])
    assert [
        s.key for b in made for s in b
    ] == served  # k2 was infinite before: that is for the scan to say
    assert [key for key, _ in refused] == ([] if spec else ["k1"])


def test_json_that_has_no_json_form_is_refused(mine):
    (mine.parent / "mine_steps.py").write_text(
        "def bad(sample):\n    return {'x': {'v': float('nan')}}\n"
    )
    (one,), _ = bind([step("mine_steps:bad")], SPECS)
    with pytest.raises(UsageError, match="x: nan has no canonical JSON form"):
        run([one], blocks())
