"""Batches judged while they are trained on: every way of collating, and as a scan judges samples."""

from __future__ import annotations

import functools
import threading
import weakref

import numpy as np
import pytest
import torch
import yaml
from torch.utils.data import DataLoader

from datacheck import build_cache
from datacheck.cache import layout
from datacheck.errors import BatchError, UsageError
from datacheck.model.finding import Level, Severity
from datacheck.model.sample import ArraySpec
from datacheck.rules import catalogue
from datacheck.rules.selection import served
from datacheck.schema.load import load_schema, parse_schema
from datacheck.testing import synth
from datacheck.torch import CachedDataset, CachedLoader, Windows, collate_pad, collate_ragged, guard
from datacheck.torch.contract import BatchJudge, _sample_key
from tests.cache.make import make_cache
from tests.rules import harness
from tests.rules.test_examples import sections
from tests.trials.memory import schema_of

SCHEMA = schema_of(
    {
        "fields": {
            "name": {"role": "id", "dtype": "text"},
            "joints": {"role": "joints", "shape": [21, 3], "dtype": "float32"},
            "label": {"dtype": "int64", "range": "0..9"},
            "points": {"role": "points", "shape": ["P", 3], "min_points": 2},
        }
    }
)
FIXED = ["joints", "label"]


def rows(count=6, bad=()):
    """Samples of a hand and a cloud; those at `bad` hold NaN."""
    rng = np.random.default_rng(0)
    made = []
    for i in range(count):
        joints = rng.normal(0, 0.05, (21, 3)).astype(np.float32)
        if i in bad:
            joints[3, 1] = np.nan
        made.append(
            {
                "name": f"hand{i}",
                "joints": torch.from_numpy(joints),
                "label": i,
                "points": torch.from_numpy(rng.normal(0, 1, (2 + i, 3))),
            }
        )
    return made


def batches(made, size=3, collate=None):
    collate = collate or functools.partial(collate_ragged, ragged=["points"])
    return DataLoader(made, batch_size=size, collate_fn=collate)


PAD = functools.partial(collate_pad, ragged=["points"], value=float("nan"))


@pytest.mark.parametrize("collate", [None, PAD, list])
def test_what_holds_passes_unchanged(collate):
    loader = batches(rows(), collate=collate)
    seen = list(guard(loader, SCHEMA))
    assert len(seen) == len(guard(loader, SCHEMA)) == 2
    for batch, wanted in zip(seen, loader, strict=True):
        for name in (b["joints"] for b in batch) if collate is list else [batch["joints"]]:
            assert torch.is_tensor(name)
        assert repr(batch) == repr(wanted)


@pytest.mark.parametrize("collate", [None, PAD, list])
def test_a_broken_sample_is_named_by_batch_place_key_and_rule(collate):
    loader = batches(rows(bad=[4]), collate=collate)
    seen = []
    with pytest.raises(BatchError) as error:
        seen += iter(guard(loader, SCHEMA))
    assert str(error.value).startswith(
        "batch 1 is wrong:\n  rank 0, sample 1 (hand4): DC221 non-finite: joints: "
    )
    assert len(seen) == 0 or len(seen) == 1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda b: b.pop("joints"), "DC121"),
        (lambda b: b.update(joints=b["joints"][:, :20]), "DC122"),
        (lambda b: b.update(label=b["label"] + 8), "DC224"),
        (
            lambda b: b.update(points=b["points"][:4], points_offset=torch.tensor([2, 3, 4])),
            "samples 1, 2 (hand1, hand2): DC124",
        ),
        (
            lambda b: b.update(label=b["label"][:2]),
            "fields of a batch have one entry per sample; found name 3, joints 3, label 2",
        ),
        (
            lambda b: b.update(points_offset=torch.tensor([2, 5, 8])),
            "points_offset says where each sample ends",
        ),
        (lambda b: b.update(name=[object()] * 3), "DC101 name: object"),
        (lambda b: b.clear(), "DC103 the batch has no samples"),
        (
            lambda b: b.update({name: value[:0] for name, value in b.items()}),
            "DC103 the batch has no samples",
        ),
    ],
)
def test_each_way_of_being_wrong_has_its_code(change, words):
    batch = next(iter(batches(rows())))
    change(batch)
    with pytest.raises(BatchError) as error:
        list(guard([batch], SCHEMA))
    assert words in str(error.value)


def test_what_is_no_batch_is_told():
    for batch in (7, None, "text", object()):
        with pytest.raises(BatchError, match="DC101 a batch is a dict of fields"):
            list(guard([batch], SCHEMA))
    texts = parse_schema(
        "{datacheck: 1, name: s, samples: {files: '*'}, fields: {text: {dtype: text}}}"
    )
    assert len(list(guard([[{"text": "one"}, {"text": "two"}]], texts))) == 1
    for batch in ({"step": 7}, {"step": 7, "joints": torch.zeros(0, 21, 3)}, [], ()):
        with pytest.raises(BatchError, match="DC103 the batch has no samples"):
            list(guard([batch], SCHEMA, first=0, every=2))


def test_a_loader_that_raises_is_a_broken_batch():
    def loader():
        yield next(iter(batches(rows())))
        raise OSError("disk gone")

    with pytest.raises(
        BatchError, match="rank 0, batch: DC101 the loader raised OSError: disk gone"
    ) as error:
        list(guard(loader(), SCHEMA))
    assert isinstance(error.value.__cause__, OSError)


def test_the_first_batches_are_judged_then_one_in_n():
    """Batches 0, 1 and then 2, 5, 8: a broken one at 3 is not seen, at 5 it is; an empty one is seen anywhere."""
    good, bad = (next(iter(batches(rows(3, broken)))) for broken in ((), (0,)))

    def seen(at, batch):
        judged = guard([batch if i == at else good for i in range(9)], SCHEMA, first=2, every=3)
        try:
            return sum(1 for _ in judged)
        except BatchError:
            return -1

    assert [seen(at, bad) for at in range(9)] == [-1, -1, -1, 9, 9, -1, 9, 9, -1]
    assert [seen(at, {}) for at in range(9)] == [-1] * 9
    judged = guard([good, bad], SCHEMA, first=0, every=2)
    assert [len(list(judged)), judged.batches] == [2, 2]


def test_only_the_fields_that_are_named_must_be_there():
    batch = {name: value for name, value in next(iter(batches(rows()))).items() if name in FIXED}
    assert len(list(guard([batch], SCHEMA, fields=FIXED))) == 1
    with pytest.raises(BatchError, match="DC121"):
        list(guard([batch], SCHEMA))
    with pytest.raises(UsageError, match="no field elbow"):
        guard([batch], SCHEMA, fields=["elbow"])


def test_a_message_says_what_to_do():
    batch = next(iter(batches(rows(bad=[0, 2]))))
    with pytest.raises(BatchError) as error:
        list(guard([batch], SCHEMA))
    assert str(error.value).splitlines() == [
        "batch 0 is wrong:",
        "  rank 0, samples 0, 2 (hand0, hand2): DC221 non-finite: joints: 2 samples hold NaN or "
        "infinity (2 values); "
        "the first one in row 3.",
        "    fix: Repair the source, or declare finite: false where NaN means missing.",
    ]
    del batch["joints"]
    with pytest.raises(BatchError, match=r"fix: .*guard\(\.\.\., fields=\[\.\.\.\]\)"):
        list(guard([batch], SCHEMA))


def pages():
    """The good and the bad samples of each rule's page that need no files, and what a scan says of them."""
    for code, rule in sorted(catalogue().items()):
        for block in ("Good::", "Bad::"):
            said = yaml.safe_load(sections(rule.doc)[block])
            pieces = harness.pieces_of(said["samples"])
            whole = all(not split and not isinstance(piece, str) for split, piece in pieces)
            if whole and code not in {"DC104"}:  # companion files
                yield (
                    code,
                    harness.schema_of(said.get("schema", {})),
                    [piece for _, piece in pieces],
                    block,
                )


def test_a_batch_is_judged_as_a_scan_judges_samples():
    told = set()
    for code, schema, pieces, block in pages():
        judge = BatchJudge(schema, None, "")
        found, table = harness.scan(sections(catalogue()[code].doc)[block])
        place = {piece.key: i for i, piece in enumerate(pieces)}
        judged = {choice.rule.code for choice in judge._choices}
        wanted = {
            (f.code, tuple(sorted(place[table.keys[row]] for row in f.rows.tolist())), f.message)
            for f in found.findings
            if f.severity is Severity.ERROR and f.level is Level.SAMPLE and f.code in judged
        }
        faults = judge([dict(piece.fields) for piece in pieces])
        messages = [message for *_, message in wanted]
        assert {
            (f.code, f.samples, next(m for m in messages if f.words.endswith(m))) for f in faults
        } == wanted, code
        told |= {f.code for f in faults}
    assert len(told) > 30


def test_what_a_scan_calls_good_is_good_in_batches_of_three():
    for code, schema, pieces, block in pages():
        if block == "Good::":
            judge = BatchJudge(schema, None, "")
            parts = [pieces[i : i + 3] for i in range(0, min(len(pieces), 30), 3)]
            assert [judge([dict(piece.fields) for piece in part]) for part in parts] == [[]] * len(
                parts
            ), code


def test_clean_episodes_are_clean_in_windows(tmp_path):
    synth.write("robomimic", tmp_path / "data", demos=3)
    (built,) = build_cache("robomimic", str(tmp_path / "data"), str(tmp_path / "out"))
    edge, zero = Windows(4, stride=5, history=2, pad="edge"), Windows(8, stride=5, pad="zero")
    for windows in (Windows(6, stride=5), edge, zero):
        data = CachedDataset(built.path, windows=windows)
        guarded = guard(
            DataLoader(data, batch_size=16), "robomimic", fields=list(data.fields), every=2
        )
        assert len(list(guarded)) == len(guarded) > 1
    bare = [
        {name: part for name, part in batch.items() if not name.endswith("_is_pad")}
        for batch in guarded
    ]
    # Control: padding is data
    with pytest.raises(BatchError, match=r"DC304 bad-rotation: .* quaternions of length 0"):
        list(guard(bare, "robomimic", fields=list(data.fields)))


def test_no_name_in_a_batch_is_a_line_of_the_error():
    schema = parse_schema(
        "{datacheck: 1, name: s, samples: {files: '*'},"
        " fields: {name: {role: id, dtype: text}, x: {range: 0..1}}}"
    )
    forged = "a\n  rank 7, batch: DC103 the batch has no samples"
    batch = {"name": [forged, "b"], "x": torch.tensor([9.0, 0.5])}
    with pytest.raises(BatchError) as error:
        list(guard([batch], schema))
    first, *lines = str(error.value).split("\n")
    assert first == "batch 0 is wrong:"
    spelled = forged.replace("\n", "\\n")
    assert lines[0].startswith(f"  rank 0, sample 0 ({spelled}): DC224 out-of-range: x: ")
    assert [line for line in lines[1:] if not line.startswith("    fix: ")] == []

    def broken():
        yield batch | {"x": torch.tensor([0.5, 0.5])}
        raise ValueError(forged)

    with pytest.raises(BatchError) as error:
        list(guard(broken(), schema))
    said = str(error.value).split("\n")
    assert said[1] == f"  rank 0, batch: DC101 the loader raised ValueError: {spelled}"
    assert len(said) == 3  # and the fix


def test_waivers_count_and_stale_ones_are_no_error():
    rules = {"DC221": {"ignore": ["hand4", "hand99"], "reason": "known"}}
    schema = schema_of({"fields": SCHEMA.as_dict()["fields"], "rules": rules})
    assert len(list(guard(batches(rows(bad=[4])), schema))) == 2
    twice = rows(bad=[4])[3:5] + rows(bad=[4])[4:]
    assert len(list(guard(batches(twice), schema))) == 2
    with pytest.raises(BatchError, match="hand2"):
        list(guard(batches(rows(bad=[2])), schema))


def test_a_schema_may_say_what_the_loader_calls_a_field():
    schema = parse_schema(
        "{datacheck: 1, name: s, samples: {files: '*'}, fields: {x: {at: in/x, range: 0..1}}}"
    )
    batch = {"in": {"x": torch.tensor([0.5, 2.0])}, "step": 7, "none": None}
    with pytest.raises(BatchError, match=r"sample 1: DC224 out-of-range: x: "):
        list(guard([batch], schema))
    assert served(schema).fields["x"].at == "in/x"


def test_a_tuple_has_the_names_that_a_scan_gives_it():
    schema = parse_schema(
        "{datacheck: 1, name: s, samples: {files: '*'},"
        " fields: {x: {at: '0', range: 0..1}, y: {at: 1/label, range: 0..9}, '*': {optional: "
        "true}}}"
    )
    good = [(torch.zeros(3), {"label": i, "other": "a"}) for i in range(4)]
    assert len(list(guard(DataLoader(good, batch_size=2), schema))) == 2
    bad = [*good[:3], (torch.full((3,), 2.0), {"label": 10, "other": "b"})]
    with pytest.raises(BatchError) as error:
        list(guard(DataLoader(bad, batch_size=2), schema))
    assert "sample 1: DC224 out-of-range: x: " in str(error.value)
    assert "sample 1: DC224 out-of-range: y: " in str(error.value)
    single = parse_schema(
        "{datacheck: 1, name: s, samples: {files: '*'}, fields: {x: {at: '0', range: 0..1}}}"
    )
    with pytest.raises(BatchError, match="sample 1: DC224"):
        list(guard(DataLoader([0.5, 2.0], batch_size=2), single))


PARTS = (
    "{datacheck: 1, name: s, samples: {files: '*'},"
    " fields: {x: {at: 0/image, range: 0..1}, y: {at: 1/label, range: 0..9}}}"
)
BOXES = (
    "{datacheck: 1, name: s, samples: {files: '*'},"
    " fields: {x: {at: '0'}, y: {at: 1/boxes, shape: [K, 4], range: 0..9}, z: {at: 1/in/id}}}"
)


def zipped(rows):
    """Collate as detection does: images, and a dict of each one's boxes."""
    return tuple(zip(*rows, strict=True))


def test_a_tuple_of_dicts_is_no_list_of_samples():
    """Either has two dicts; what the schema calls its fields tells them apart."""
    good = [({"image": torch.rand(3)}, {"label": i, "more": "a"}) for i in range(4)]
    assert len(list(guard(DataLoader(good, batch_size=2), parse_schema(PARTS)))) == 2
    bad = [*good[:3], ({"image": torch.rand(3)}, {"label": 99, "more": "a"})]
    with pytest.raises(
        BatchError, match=r"batch 1 is wrong:\n  rank 0, sample 1: DC224 out-of-range: y: "
    ):
        list(guard(DataLoader(bad, batch_size=2), parse_schema(PARTS)))
    with pytest.raises(BatchError, match="DC103 the batch has no samples"):
        list(
            guard(
                [[{"image": torch.zeros(0, 3)}, {"label": torch.zeros(0)}]],
                parse_schema(PARTS),
                first=0,
            )
        )


def test_each_sample_may_have_a_dict_within_a_tuple():
    good = [(torch.rand(3), {"boxes": torch.rand(i, 4), "in": {"id": i}}) for i in range(4)]
    assert (
        len(list(guard(DataLoader(good, batch_size=2, collate_fn=zipped), parse_schema(BOXES))))
        == 2
    )
    good[3][1]["boxes"] += 9
    with pytest.raises(
        BatchError, match=r"batch 1 is wrong:\n  rank 0, sample 1: DC224 out-of-range: y: "
    ):
        list(guard(DataLoader(good, batch_size=2, collate_fn=zipped), parse_schema(BOXES)))
    del good[0][1]["boxes"]
    with pytest.raises(BatchError, match="rank 0, sample 0: DC121 missing-field: y: "):
        list(guard(DataLoader(good, batch_size=2, collate_fn=zipped), parse_schema(BOXES)))


def test_a_tokenizer_that_is_not_there_is_no_reason_to_be_silent(tmp_path, monkeypatch):
    """A scan takes `tokenizer: {path: model}` from the data folder, which a guard is not told."""
    synth.write("minimind", tmp_path / "data", pretrain=1, sft=3, dpo=1)
    empty = tmp_path / "empty"
    empty.mkdir()
    monkeypatch.chdir(empty)
    said = [{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}]
    with pytest.raises(
        UsageError,
        match=r"schema minimind_sft: tokenizer: model: no tokenizer there; .*placed\(\(\), ",
    ):
        guard([], "minimind_sft")
    schema = load_schema("minimind_sft").placed((), tmp_path / "data")
    assert len(list(guard([[{"conversations": said}]], schema))) == 1
    with pytest.raises(BatchError, match="DC702"):
        list(guard([[{"conversations": said[:1]}]], schema))


def test_nothing_is_kept_of_a_batch_that_was_served():
    made = [[{"joints": torch.rand(21, 3) / 10, "label": i}] for i in range(3)]
    passing = iter(guard(iter(made), SCHEMA, fields=FIXED))
    for batch in made:
        assert next(passing) is batch
    served_one = weakref.ref(made[2][0]["joints"])
    del batch
    made.clear()
    assert served_one() is None
    bad = [{"joints": torch.full((1, 21, 3), torch.nan), "label": torch.tensor([1])}]
    with pytest.raises(BatchError) as error:
        list(guard(iter(bad), SCHEMA, fields=FIXED))
    served_one = weakref.ref(bad[0]["joints"])
    bad.clear()
    assert error.value.__traceback__ is not None
    assert served_one() is None


def test_a_guard_is_asked_what_its_loader_is_asked(tmp_path):
    specs = {"joints": ArraySpec("float32", (21, 3)), "label": ArraySpec("int64", ())}
    made = [{"joints": row["joints"].numpy(), "label": np.int64(row["label"])} for row in rows(8)]
    cached = CachedLoader(CachedDataset(make_cache(tmp_path, specs, made)), 2, shuffle=True, seed=3)
    guarded = guard(cached, SCHEMA, fields=FIXED)
    guarded.set_epoch(5)
    assert [len(guarded), guarded.batch_sampler.epoch] == [4, 5]
    alone = CachedLoader(cached.dataset, 2, shuffle=True, seed=3)
    alone.set_epoch(5)
    assert [b["label"].tolist() for b in guarded] == [b["label"].tolist() for b in alone]
    passing = iter(guarded)
    next(passing)
    assert guarded.state_dict() == cached.state_dict()
    assert guarded.state_dict()["consumed"] == 2
    del passing
    assert not [
        thread for thread in threading.enumerate() if thread.name.startswith("datacheck-loader")
    ]
    loader = batches(rows())
    assert guard(loader, SCHEMA).dataset is loader.dataset
    with pytest.raises(AttributeError):
        guard(loader, SCHEMA).set_epoch  # noqa: B018
    for wrong in ({"first": -1}, {"every": 0}):
        with pytest.raises(UsageError):
            guard(loader, SCHEMA, **wrong)


def test_a_cached_dataset_is_judged_in_every_mode(tmp_path):
    specs = {
        "joints": ArraySpec("float32", (21, 3)),
        "points": ArraySpec("float32", (3,), "P"),
        "pose": ArraySpec("float32", (7,), "T"),
        "name": ArraySpec("uint8", (), layout.text_dim("name"), "text"),
        "label": ArraySpec("int64", (), optional=True),
    }
    rng = np.random.default_rng(1)
    made = [
        {
            "joints": rng.normal(0, 0.05, (21, 3)).astype(np.float32),
            "name": f"ep{i}",
            "points": rng.random((3 + i, 3), np.float32),
            "pose": 1 + rng.random((3 + 2 * i, 7), np.float32),
        }
        | ({"label": np.int64(i)} if i % 2 else {})
        for i in range(4)
    ]
    path = make_cache(tmp_path, specs, made, k=2)
    fields = SCHEMA.as_dict()["fields"] | {"pose": {"shape": ["T", 7], "range": "1..2"}}
    fields["label"]["optional"] = True
    schema = schema_of({"fields": fields, "episode": {"length": "3.."}})
    windows = Windows(5, stride=2, pad="zero", short="pad")
    for loader in (
        DataLoader(CachedDataset(path, windows=False), batch_size=3, collate_fn=collate_ragged),
        DataLoader(CachedDataset(path, windows=False), batch_size=3, collate_fn=collate_pad),
        DataLoader(CachedDataset(path, windows=False), batch_size=3, collate_fn=list),
        DataLoader(CachedDataset(path, windows=windows), batch_size=3, collate_fn=list),
        DataLoader(CachedDataset(path, windows=windows), batch_size=3, collate_fn=collate_ragged),
    ):
        assert len(list(guard(loader, schema))) == len(loader)
    narrow = schema_of({"fields": fields | {"pose": {"shape": ["T", 7], "range": "1..1.5"}}})
    with pytest.raises(BatchError, match="DC224 out-of-range: pose"):
        list(guard(loader, narrow))


@pytest.mark.parametrize("as_array", [False, True])
def test_of_a_long_id_faults_repeat_a_beginning(as_array):
    """Each fault says eight ids, on all ranks."""
    name = "q" * 300_000
    key = _sample_key(np.array(name) if as_array else name, 3)
    assert key.startswith("qqq")
    assert len(key.encode()) <= 200
    assert _sample_key("a", 3) == "a"
