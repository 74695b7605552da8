"""A required field under a near name: read where the schema says so, told, and an error where samples do not agree."""

import h5py
import numpy as np
import pytest

from datacheck.formats import hdf5
from datacheck.model.sample import Origin, Piece
from datacheck.schema.load import parse_schema
from datacheck.schema.model import Schema
from datacheck.sources import Item, open_source
from datacheck.sources.fields import near_name
from tests.rules.harness import judged, measured, schema_of


@pytest.mark.parametrize(
    ("wanted", "names", "found"),
    [
        ("action", ["actions", "state"], "actions"),
        ("actions", ["action"], "action"),
        ("actions", ["Actions"], "Actions"),
        ("obs/ee_pos", ["observation.ee_pos"], "observation.ee_pos"),
        ("obs/ee_pos", ["ee-pos", "ee_ori"], "ee-pos"),
        ("handJoints3D", ["handjoints3d"], "handjoints3d"),
        ("action", ["obs/action"], "obs/action"),
        ("action", ["actions", "Action"], ""),  # nobody knows which
        ("action", ["next_actions", "reaction", "action_is_pad", "actions_mean"], ""),
        ("obs/ee_pos", ["next_obs/ee_pos"], ""),
        ("pos", ["poss"], ""),
    ],
)
def test_names_are_near_that_differ_in_case_plural_dashes_or_a_group_of_observations(
    wanted, names, found
):
    assert near_name(wanted, names) == found


def demos(path, names):
    with h5py.File(path, "w") as file:
        for d, name in enumerate(names):
            file[f"data/demo_{d}/{name}"] = np.arange(14.0).reshape(2, 7)
            file[f"data/demo_{d}/other"] = np.arange(3.0)


def read(folder, **field):
    said = {
        "datacheck": 1,
        "name": "x",
        "near_names": True,
        "samples": {"files": ["*.h5"], "each": "/data/demo_*"},
    }
    schema = Schema.model_validate(said | {"fields": {"actions": {"shape": ["T", 7]} | field}})
    blocks = list(open_source(schema, folder).read(Item("a.h5")))
    return {
        key: (
            sorted(block.fields),
            {n: c.objects[i] for n, c in block.facts.items() if n.startswith("near/")},
        )
        for block in blocks
        for i, key in enumerate(block.keys)
    }


def test_a_near_name_of_the_declared_kind_is_read_and_told(tmp_path):
    demos(tmp_path / "a.h5", ["action", "actions"])
    assert read(tmp_path) == {
        "a.h5:/data/demo_0": (["actions"], {"near/actions": "action"}),
        "a.h5:/data/demo_1": (["actions"], {}),
    }


OTHERS = [
    {"shape": ["T", 6]},
    {"shape": ["T"]},
    {"role": "text", "shape": None},
    {"optional": True},
]


@pytest.mark.parametrize("field", OTHERS)
def test_what_is_of_another_kind_or_need_not_be_there_is_not_taken(tmp_path, field):
    demos(tmp_path / "a.h5", ["action"])
    assert read(tmp_path, **field) == {"a.h5:/data/demo_0": ([], {})}


def test_only_a_schema_that_says_so_takes_near_names(tmp_path):
    demos(tmp_path / "a.h5", ["action"])
    text = (
        "datacheck: 1\nname: x\nsamples: {files: '*.h5', each: /data/demo_*}\nfields: {actions: "
        "{shape: [T, 7]}}\n"
    )
    (block,) = open_source(parse_schema(text), tmp_path).read(Item("a.h5"))
    assert (sorted(block.fields), block.facts.keys() & {"near/actions"}) == ([], set())


@pytest.mark.parametrize(
    ("each", "missing", "asked"), [("/data/demo_*", 2, 1), ("/data/demo_*", 0, 0), (None, 2, 1)]
)
def test_the_names_of_a_file_are_asked_for_once_and_only_where_a_field_is_missing(
    tmp_path, monkeypatch, each, missing, asked
):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for group in ["data/demo_0", "data/demo_1", "data/demo_2"] if each else [""]:
            for name in ("xs", "ys") if missing else ("x", "y"):
                file[f"{group}/{name}"] = np.arange(3.0)
    calls = []
    inner = hdf5._Hdf5.names
    monkeypatch.setattr(hdf5._Hdf5, "names", lambda self: calls.append(self) or inner(self))
    said = {
        "datacheck": 1,
        "name": "x",
        "near_names": True,
        "samples": {"files": ["*.h5"]} | ({"each": each} if each else {}),
    }
    schema = Schema.model_validate(
        said | {"fields": {"x": {"shape": ["T"]}, "y": {"shape": ["T"]}}}
    )
    (block,) = open_source(schema, tmp_path).read(Item("a.h5"))
    assert sorted(block.fields) == ["x", "y"]
    assert len(calls) == asked


def told(*names):
    """What DC121 says of samples that call a field so; "" where they call it as the schema does."""
    schema = schema_of("fields: {a: {shape: [T]}}")
    samples = [
        (
            "",
            Piece(f"{i}", {"a": np.arange(9.0)}, Origin("f"), "", {"near/a": name} if name else {}),
        )
        for i, name in enumerate(names)
    ]
    found = judged(schema, measured(schema, samples)).findings
    return [(str(f.severity), f.rows.tolist(), f.message) for f in found if f.code == "DC121"]


def test_a_name_on_which_all_samples_agree_is_for_information_and_any_other_an_error():
    assert told("", "", "") == []
    assert told("as", "as") == [
        ("info", [0, 1], "2 samples have as where the schema names a: taken for it.")
    ]
    assert told("as", "", "as") == [
        ("error", [0, 2], "2 samples have as where the schema names a: the others call it a.")
    ]
    assert told("as", "A") == [
        ("error", [0, 1], "2 samples have A or as where the schema names a: they do not agree.")
    ]
