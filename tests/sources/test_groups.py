"""Groups of a container are samples: HDF5 demos, caches with one group per index."""

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datacheck.errors import FormatError, TooManySamplesError
from datacheck.sources import Item, kinds, open_source
from tests.sources.schemas import every, facts, schema

DEMOS = {"files": "{task}_demo.hdf5", "each": "/data/demo_*", "group": "{file}"}


def write(path, lengths, *, extra=()):
    with h5py.File(path, "w") as file:
        data = file.create_group("data")
        data.attrs["total"] = sum(lengths.values())
        for number, length in lengths.items():
            demo = data.create_group(f"demo_{number}")
            demo.attrs["num_samples"] = str(length)
            demo["actions"] = np.full((length, 7), number, ">f8")
            demo["obs/ee_pos"] = np.zeros((length, 3))
            for name in extra:
                demo[name] = np.zeros(length)
        file["mask/train"] = np.array([b"demo_0"])


def item(path, **more):
    return Item(
        path.name,
        "",
        {"task": path.name.removesuffix("_demo.hdf5")},
        nbytes=path.stat().st_size,
        **more,
    )


def test_groups_come_in_bytewise_order_with_keys_that_name_them(tmp_path):
    path = tmp_path / "lift_demo.hdf5"
    write(path, {0: 5, 2: 4, 10: 3})
    source = open_source(schema(DEMOS, {"actions": {}, "obs/ee_pos": {}}), tmp_path)
    samples, unread = every(source, item(path))
    assert unread == []
    assert list(samples) == [f"lift_demo.hdf5:/data/demo_{n}" for n in (0, 10, 2)]
    assert [s["actions"].shape for s in samples.values()] == [(5, 7), (3, 7), (4, 7)]
    assert all(s["actions"].dtype == np.dtype("<f8") for s in samples.values())
    (block,) = source.read(item(path))
    assert block.origins[1].inner == "/data/demo_10"
    assert block.groups == ["lift_demo.hdf5"] * 3


def test_attributes_and_ids_of_groups(tmp_path):
    path = tmp_path / "lift_demo.hdf5"
    write(path, {0: 5, 2: 4})
    spec = schema(DEMOS, {"actions": {}}, attrs={"num_samples": "T"}, splits={"key": "group"})
    told = facts(open_source(spec, tmp_path), item(path))
    assert told["lift_demo.hdf5:/data/demo_2"] == {
        "attrs/num_samples": 4,
        "id": "lift:/data/demo_2",
        "size": path.stat().st_size,
        "split_key": "lift_demo.hdf5",
    }


def test_undeclared_values_of_the_group_are_read_on_request(tmp_path):
    path = tmp_path / "lift_demo.hdf5"
    write(path, {1: 5, 10: 4}, extra=["rewards", "a"])
    source = open_source(schema(DEMOS, {"actions": {}, "*": {}}), tmp_path)
    samples, _ = every(source, item(path))
    assert [sorted(s) for s in samples.values()] == [["a", "actions", "obs/ee_pos", "rewards"]] * 2


def test_values_outside_the_group_need_a_leading_slash(tmp_path):
    path = tmp_path / "lift_demo.hdf5"
    write(path, {0: 5})
    source = open_source(schema(DEMOS, {"actions": {}, "mask": {"at": "/mask/train"}}), tmp_path)
    assert every(source, item(path))[0]["lift_demo.hdf5:/data/demo_0"]["mask"] == ["demo_0"]


def test_placeholders_of_the_group_are_names_like_others(tmp_path):
    with h5py.File(tmp_path / "grasps.h5", "w") as file:
        for name in ("0", "1", "10", "meta"):
            file[f"{name}/pc"] = np.zeros((2, 3))
    (tmp_path / "1.txt").write_text("a mug")
    spec = schema(
        {"files": "grasps.h5", "each": r"/{id:\d+}", "group": "g{id}"},
        {"pc": {}, "words": {"role": "text", "file": "{id}.txt"}},
        splits={"key": "id"},
    )
    source = open_source(spec, tmp_path)
    samples, _ = every(source, Item("grasps.h5"))
    assert sorted(samples) == ["grasps.h5:/0", "grasps.h5:/1", "grasps.h5:/10"]
    assert samples["grasps.h5:/1"]["words"] == "a mug"
    told = facts(source, Item("grasps.h5"))
    assert told["grasps.h5:/10"]["id"] == told["grasps.h5:/10"]["split_key"] == "10"
    assert told["grasps.h5:/10"]["absent/words"] == "10.txt"


def test_group_names_from_the_file_cannot_lead_out_of_the_folder(tmp_path):
    inner = tmp_path / "in"
    inner.mkdir()
    (tmp_path / "secret.txt").write_text("secret")
    with h5py.File(inner / "a.h5", "w") as file:
        low = h5py.h5g.create(file.id, b"..secret")
        del low
        file["..secret/x"] = np.zeros(1)
        group = file["..secret"]
        file.id.links.create_hard(b"..", file.id, b"..secret")
        del group
    spec = schema(
        {"files": "a.h5", "each": "/{id}"}, {"x": {}, "words": {"file": "{id}/secret.txt"}}
    )
    samples, unread = every(open_source(spec, inner), Item("a.h5"))
    assert not any("words" in sample for sample in samples.values())
    assert all("cannot be part of a path" in u.reason for u in unread)


def test_one_bad_dataset_spoils_one_demo(tmp_path):
    path = tmp_path / "lift_demo.hdf5"
    write(path, {0: 5, 1: 5, 2: 5})
    with h5py.File(path, "a") as file:
        del file["data/demo_1/actions"]
        file["data/demo_1/actions"] = h5py.ExternalLink("other.h5", "/x")
    samples, unread = every(open_source(schema(DEMOS, {"actions": {}}), tmp_path), item(path))
    assert list(samples) == ["lift_demo.hdf5:/data/demo_0", "lift_demo.hdf5:/data/demo_2"]
    assert [(u.key, u.code, u.group) for u in unread] == [
        ("lift_demo.hdf5:/data/demo_1", "DC101", "lift_demo.hdf5")
    ]
    assert "external link" in unread[0].reason


def test_a_missing_dataset_is_a_field_less(tmp_path):
    path = tmp_path / "lift_demo.hdf5"
    write(path, {0: 5})
    source = open_source(schema(DEMOS, {"actions": {}, "rewards": {}}), tmp_path)
    assert sorted(every(source, item(path))[0]["lift_demo.hdf5:/data/demo_0"]) == ["actions"]


def test_a_file_without_such_groups_is_a_format_error(tmp_path):
    path = tmp_path / "lift_demo.hdf5"
    write(path, {})
    with pytest.raises(FormatError, match=r"holds no group like /data/demo_\*"):
        list(open_source(schema(DEMOS, {"actions": {}}), tmp_path).read(item(path)))


def test_groups_of_other_containers_are_found_by_their_names(tmp_path):
    np.savez(tmp_path / "a.npz", **{"0/x": np.zeros(2), "1/x": np.ones(3), "y": np.zeros(1)})
    source = open_source(schema({"files": "*.npz", "each": "/*"}, {"x": {}}), tmp_path)
    assert {k: len(s["x"]) for k, s in every(source, Item("a.npz"))[0].items()} == {
        "a.npz:/0": 2,
        "a.npz:/1": 3,
    }


@given(st.lists(st.sampled_from([0, 1, 2, 10, 99]), max_size=6))
def test_reading_some_keys_is_reading_all_and_choosing(tmp_path_factory, numbers):
    path = tmp_path_factory.mktemp("demos") / "lift_demo.hdf5"
    write(path, {0: 5, 1: 1, 2: 4, 10: 3})
    source = open_source(schema(DEMOS, {"actions": {}}), path.parent)
    everything, _ = every(source, item(path))
    keys = tuple(dict.fromkeys(f"lift_demo.hdf5:/data/demo_{n}" for n in numbers))
    samples, unread = every(source, item(path, keys=keys))
    assert list(samples) == [key for key in keys if key in everything]
    assert [u.key for u in unread] == [key for key in keys if key not in everything]
    for key, sample in samples.items():
        np.testing.assert_array_equal(sample["actions"], everything[key]["actions"])


def test_asking_for_one_group_reads_no_other(tmp_path, monkeypatch):
    from datacheck.formats import hdf5

    path = tmp_path / "lift_demo.hdf5"
    write(path, {0: 5, 1: 5})
    read, asked = hdf5._Hdf5.read, []
    monkeypatch.setattr(
        hdf5._Hdf5, "read", lambda self, name: asked.append(name) or read(self, name)
    )
    source = open_source(
        schema(DEMOS, {"actions": {}, "obs/ee_pos": {}}), tmp_path, fields=frozenset({"actions"})
    )
    list(source.read(item(path, keys=("lift_demo.hdf5:/data/demo_1",))))
    assert asked == ["data/demo_1/actions"]


def test_keys_of_other_files_and_absent_groups_are_answered_under_their_own_name(tmp_path):
    path = tmp_path / "lift_demo.hdf5"
    write(path, {0: 5})
    source = open_source(schema(DEMOS, {"actions": {}}), tmp_path)
    asked = (
        "other.hdf5:/data/demo_0",
        "lift_demo.hdf5:/data/demo_9",
        "x",
        "data/demo_0",
        "lift_demo.hdf5:/data/demo_0",
    )
    samples, unread = every(source, item(path, keys=asked))
    assert list(samples) == [asked[-1]]
    assert [u.key for u in unread] == list(asked[:-1])


def test_companions_that_groups_name_count_as_files_of_the_item(tmp_path):
    path = tmp_path / "lift_demo.hdf5"
    write(path, {0: 5, 1: 5})
    (tmp_path / "masks").mkdir()
    names = ("lift_demo_1", "lift_demo_0", "push_demo_0", "lift_demo_x[0]")
    for name in names:
        np.save(tmp_path / f"masks/{name}.npy", np.ones(5))
    samples = DEMOS | {"each": r"/data/{demo:demo_\d+}"}
    spec = schema(
        samples, {"actions": {}, "mask": {"file": "masks/{task}_{demo}.npy", "optional": True}}
    )
    source = open_source(spec, tmp_path)
    assert [s["mask"].shape for s in every(source, item(path))[0].values()] == [(5,), (5,)]
    assert source.files(item(path))[:3] == [
        "lift_demo.hdf5",
        "masks/lift_demo_0.npy",
        "masks/lift_demo_1.npy",
    ]
    assert "masks/push_demo_0.npy" not in source.files(item(path))
    spec = schema(samples, {"mask": {"file": "{extra}/{demo}.npy"}}, roots={"extra": ""})
    elsewhere = open_source(spec, tmp_path, {"extra": tmp_path / "masks"})
    assert elsewhere.files(item(path)) == [
        "lift_demo.hdf5",
        *(f"@extra/{name}.npy" for name in sorted(names)),
    ]


# ----------------------------------------------------------------------------- attributes and lists


def instructed(path, **attrs):
    write(path, {0: 5, 2: 4})
    with h5py.File(path, "r+") as file:
        file.attrs["tag"], file["data"].attrs["tag"], file["data/demo_2"].attrs["tag"] = (
            "file",
            "data",
            "demo",
        )
        file["data"].attrs.update(attrs)


def told_of(path, fields):
    return every(open_source(schema(DEMOS, {"actions": {}, **fields}), path.parent), item(path))


def test_a_field_may_be_an_attribute_of_the_group_those_above_it_or_the_file(tmp_path):
    path = tmp_path / "lift_demo.hdf5"
    instructed(
        path,
        problem_info='{"language_instruction": "put the bowl", "a.b": {"n": [1.5, 2.5]}}',
        env="Lift",
    )
    fields = {
        "words": {"role": "text", "at": "@problem_info.language_instruction"},
        "near": {"role": "text", "at": "@tag"},
        "total": {"role": "value", "shape": [], "at": "@total"},
        "none": {"role": "text", "at": "@problem_info.other"},
        "no": {"role": "text", "at": "@other.more"},
        "env": {"role": "text", "at": "@env"},
    }
    samples, unread = told_of(path, fields)
    assert unread == []
    first, second = samples.values()
    assert (first["words"], first["near"], int(first["total"]), first["env"]) == (
        "put the bowl",
        "data",
        9,
        "Lift",
    )
    assert second["near"] == "demo"
    assert not {"none", "no"} & set(first)


def test_a_value_with_the_mark_of_attributes_in_its_name_is_none(tmp_path):
    path = tmp_path / "lift_demo.hdf5"
    write(path, {0: 5})
    with h5py.File(path, "r+") as file:
        file["data/demo_0/@q"] = np.arange(5.0)
        file["data/demo_0"].attrs["q"] = "attribute"
    samples, unread = told_of(path, {"@q": {}, "said": {"role": "text", "at": "@q"}})
    assert unread == []
    (sample,) = samples.values()
    assert (sample["@q"].tolist(), sample["said"]) == ([0, 1, 2, 3, 4], "attribute")


def test_an_attribute_that_is_not_the_json_text_it_should_be_is_said(tmp_path):
    path = tmp_path / "lift_demo.hdf5"
    instructed(path, problem_info="{broken")
    samples, unread = told_of(
        path, {"words": {"role": "text", "at": "@problem_info.language_instruction"}}
    )
    assert samples == {}
    assert [u.key for u in unread] == ["lift_demo.hdf5:/data/demo_0", "lift_demo.hdf5:/data/demo_2"]
    assert unread[0].reason.startswith(
        "words: attribute @problem_info.language_instruction: not JSON: "
    )


def test_counts_of_the_file_are_facts_of_every_sample_in_it(tmp_path):
    path = tmp_path / "lift_demo.hdf5"
    write(path, {0: 5, 2: 4})
    spec = schema(
        DEMOS, {"actions": {}}, attrs={"num_samples": "T", "total": "sum T", "num_demos": "samples"}
    )
    told = facts(open_source(spec, tmp_path), item(path))
    assert [(t["attrs/num_samples"], t["attrs/total"]) for t in told.values()] == [(5, 9), (4, 9)]
    assert all("attrs/num_demos" not in t for t in told.values())


@pytest.mark.parametrize(
    "lists", [{"valid": ["demo_0", "demo_7"]}, {"valid": ["demo_7"], "test": ["demo_7", "demo_2"]}]
)
def test_demos_that_a_list_in_the_file_names_and_that_are_not_there_are_told_once(tmp_path, lists):
    path = tmp_path / "lift_demo.hdf5"
    write(path, {0: 5, 2: 4})
    with h5py.File(path, "r+") as file:
        for name, entries in lists.items():
            file[f"mask/{name}"] = np.array(entries, dtype="S8")
    samples, unread = every(
        open_source(schema(DEMOS | {"masks": "mask"}, {"actions": {}}), tmp_path), item(path)
    )
    assert len(samples) == 2
    (lost,) = unread
    assert (lost.key, lost.code) == ("lift_demo.hdf5:/data/demo_7", "DC105")
    assert lost.reason in {
        f"/mask/{name} names it, but the file holds no such group" for name in lists
    }
    without = every(open_source(schema(DEMOS, {"actions": {}}), tmp_path), item(path))
    assert without[1] == []


def lists(tmp_path, **entries):
    path = tmp_path / "lift_demo.hdf5"
    write(path, {0: 5, 2: 4})
    with h5py.File(path, "r+") as file:
        for name, values in entries.items():
            file.create_dataset(f"mask/{name}", data=values, compression="gzip")
    return every(
        open_source(schema(DEMOS | {"masks": "mask"}, {"actions": {}}), tmp_path), item(path)
    )


def test_a_name_of_32000_letters_in_a_list_in_the_file_is_shortened(tmp_path):
    names = np.array([f"{n:04}{'x' * 32_000}".encode() for n in range(20)])
    _, unread = lists(tmp_path, valid=names)
    assert len({part.key for part in unread}) == 20
    assert max(len(part.key) for part in unread) < 1_100
    assert all(part.key.startswith("lift_demo.hdf5:/data/0") for part in unread)


def test_lists_in_a_file_name_at_most_as_many_samples_as_the_file_may_hold(tmp_path, monkeypatch):
    monkeypatch.setattr("datacheck.sources.base.SAMPLES_FREE", 5)
    monkeypatch.setattr("datacheck.formats.limits.SAMPLES_FREE", 5)
    monkeypatch.setattr("datacheck.formats.limits.SAMPLES_PER_BYTE", 0)
    assert len(lists(tmp_path, valid=np.array([b"a", b"b", b"c"]))[1]) == 3
    (tmp_path / "lift_demo.hdf5").unlink()
    with pytest.raises(TooManySamplesError):
        lists(tmp_path, valid=np.array([b"a", b"b", b"c", b"d"]))


@pytest.mark.parametrize(
    "names",
    [
        np.array([b"demo_0", b"demo_7", b"demo_\xff"]),
        np.array([b"demo_0", b"\xff"], dtype=h5py.string_dtype("ascii")),
    ],
)
def test_a_list_in_the_file_with_a_name_that_is_not_utf_8_is_a_finding(tmp_path, names):
    _, (lost,) = lists(tmp_path, valid=names)
    assert (lost.key, lost.code) == ("lift_demo.hdf5:/mask/valid", "DC105")
    assert "not UTF-8" in lost.reason


def test_an_empty_list_in_the_file_names_nothing(tmp_path):
    _, unread = lists(tmp_path, valid=np.zeros(0))
    assert unread == []


def test_entries_of_groups_that_are_no_values_are_named_without_the_group(tmp_path):
    path = tmp_path / "lift_demo.hdf5"
    write(path, {0: 5, 1: 4})
    with h5py.File(path, "a") as file:
        file["data/demo_1/jpeg"] = np.void(b"bytes")
    source = open_source(schema(DEMOS, {"actions": {}, "*": {}}), tmp_path)
    told = facts(source, item(path))
    assert source.passed == {"jpeg"}
    first, second = (told[f"lift_demo.hdf5:/data/demo_{n}"] for n in (0, 1))
    assert ("unread" in first, "opaque" in first) == (False, False)
    assert (second["unread"], second["opaque"]) == (1, 1)


def test_values_outside_of_the_samples_are_named_and_the_file_counts_as_partly_read(tmp_path):
    path = tmp_path / "lift_demo.hdf5"
    write(path, {0: 5, 10: 4})
    with h5py.File(path, "a") as file:
        file["data/Demo_1/a"] = file["data/loose"] = file["other/x"] = np.full(3, np.nan)
        file["data/blob"] = np.void(b"bytes")
    for fields in ({"actions": {}}, {"*": {}}):
        source = open_source(schema(DEMOS, fields), tmp_path, level="deep")
        source.unlisted = "*" not in fields
        every(source, item(path))
        assert source.passed == {"/data/Demo_1/a", "/data/loose", "/data/blob", "/other/x"}
        assert source.partly == {path.name}
    # A field of the schema may name one of them.
    source = open_source(
        schema(DEMOS, {"*": {}, "all": {"at": "/data/loose"}}), tmp_path, level="deep"
    )
    every(source, item(path))
    assert source.passed == {"/data/Demo_1/a", "/data/blob", "/other/x"}


def test_lists_of_samples_are_nothing_that_a_scan_left_out(tmp_path):
    """`write` makes mask/train; robomimic also writes empty lists, LIBERO has none."""
    path = tmp_path / "lift_demo.hdf5"
    write(path, {0: 5})
    with h5py.File(path, "a") as file:
        file["mask/valid"] = np.array([], "f8")
    source = open_source(schema(DEMOS, {"*": {}}), tmp_path, level="deep")
    every(source, item(path))
    assert (source.passed, source.partly) == (set(), set())
    with h5py.File(path, "a") as file:
        file["mask/numbers"] = np.zeros(3)
    source = open_source(schema(DEMOS, {"*": {}}), tmp_path, level="deep")
    every(source, item(path))
    assert (source.passed, source.partly) == ({"/mask/numbers"}, {path.name})


def test_names_outside_of_the_samples_are_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(kinds, "_MOST_OUTSIDE", 3)
    path = tmp_path / "lift_demo.hdf5"
    write(path, {0: 5})
    with h5py.File(path, "a") as file:
        for number in range(9):
            file[f"loose/{number}"] = np.zeros(3)
    source = open_source(schema(DEMOS, {"*": {}}), tmp_path, level="deep")
    every(source, item(path))
    assert source.passed == {"/loose/0", "/loose/1", "/loose/2", "more outside of the samples"}


def test_a_build_names_nothing_outside_of_the_samples(tmp_path):
    path = tmp_path / "lift_demo.hdf5"
    write(path, {0: 5})
    with h5py.File(path, "a") as file:
        file["loose"] = np.zeros(3)
    source = open_source(schema(DEMOS, {"*": {}}), tmp_path)
    every(source, item(path))
    assert source.passed == set()
