"""Near copies: sketches against exact sets, candidates that miss nothing and stay few, and scans of real files."""

import json
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datacheck.formats import jsonl
from datacheck.model.sample import Block, Column, Origin, Piece, Sample
from datacheck.rules import catalogue
from datacheck.rules.base import RuleContext
from datacheck.rules.similarity import (
    MOST_PAIRS,
    averaged,
    courses,
    grid_of,
    near_courses,
    near_sets,
    signatures,
)
from datacheck.scan import Request, run_scan
from datacheck.schema.load import parse_schema
from datacheck.sources import lines
from tests.rules.harness import judged, measured
from tests.trials import copies as made
from tests.trials.memory import schema_of

RULE = catalogue()["DC804"]
TEXT = {"fields": {"t": {"role": "text"}}, "duplicates": {"near": 0.8}}
CLOUD = {"fields": {"p": {"role": "points", "shape": ["P", 3]}}, "duplicates": {"near": 0.8}}
EPISODE = {"fields": {"a": {"role": "action", "shape": ["T", 7]}}, "duplicates": {"near": 0.8}}


def found(schema, values, splits=None, name=""):
    """Return the findings of the rule on samples of one field, and its verdict."""
    name = name or next(iter(schema["fields"]))
    splits = splits or [""] * len(values)
    pieces = [
        (split, Piece(f"s{i:05d}", {name: value}, Origin(f"s{i:05d}"), "", {"id": f"s{i:05d}"}))
        for i, (split, value) in enumerate(zip(splits, values, strict=True))
    ]
    ready = schema_of(schema)
    said = judged(ready, measured(ready, pieces), pieces=pieces)
    verdict = next(v for v in said.verdicts if v.code == "DC804")
    return [f for f in said.findings if f.code == "DC804"], verdict


def alike(schema, first, second):
    """Return what the rule's comparison says of two values."""
    name = next(iter(schema["fields"]))
    ready = schema_of(schema)
    case = RuleContext(ready, "", ready.spec(name), dict(RULE.defaults))
    return RULE.compare(
        *(Sample("k", {name: value}, Origin("k")) for value in (first, second)), case
    )["alike"]


def grams(text):
    """Return the runs of five characters of a text, the slow way."""
    text = "".join(chr(ord(c) + 32) if "A" <= c <= "Z" else c for c in " ".join(text.split()))
    return {text[i : i + 5] for i in range(len(text) - 4)}


def jaccard(a, b):
    return len(a & b) / len(a | b) if a | b else 0.0


def words(rng, count, make=made.word):
    return [make(rng) for _ in range(count)]


# -------------------------------------------------------------------------------------------- exact


@given(
    st.text(st.sampled_from("ab 中文\n\tZ\u3000é😀"), max_size=60),
    st.text(st.sampled_from("ab 中文\nZé😀"), max_size=60),
)
def test_the_similarity_of_texts_is_that_of_their_sets(a, b):
    assert alike(TEXT, a, b) == pytest.approx(jaccard(grams(a), grams(b)), abs=1e-12)


def test_white_space_and_capitals_do_not_count():
    assert alike(TEXT, "The  Robot\nmoves", " the robot moves ") == 1.0


@pytest.mark.parametrize("points", [1100, 3000, 9000, 20_000])
def test_the_similarity_of_clouds_is_that_of_their_cells(points):
    rng = np.random.default_rng(points)
    clouds = [rng.uniform(0, 1, (points, 3)) for _ in range(2)]
    cells = {1100: 8, 3000: 10, 9000: 16, 20_000: 24}[points]
    sets = []
    for cloud in clouds:
        low, high = cloud.min(axis=0), cloud.max(axis=0)
        place = np.clip(
            np.floor((cloud - (low + high) / 2) / (high - low).max() * cells + cells / 2),
            0,
            cells - 1,
        )
        sets.append(set(map(tuple, place.tolist())))
    assert alike(CLOUD, *clouds) == pytest.approx(jaccard(*sets), abs=1e-12)


def test_order_place_and_size_of_a_cloud_do_not_count():
    rng = np.random.default_rng(0)
    cloud = rng.uniform(0, 1, (3000, 3))
    assert alike(CLOUD, cloud, 4 * cloud[rng.permutation(3000)] + 2) == 1.0
    assert alike(CLOUD, cloud, np.concatenate([cloud, np.full((5, 3), np.nan)])) == 1.0


def test_clouds_of_other_sizes_are_compared_in_the_coarser_grid():
    assert [grid_of(n) for n in (1023, 1024, 2047, 2048, 8191, 8192, 20_000)] == [
        0,
        8,
        8,
        10,
        10,
        16,
        24,
    ]
    cloud = made.surface(np.random.default_rng(0), made.shape(1), 9000)
    assert alike(CLOUD, cloud, cloud[:4000]) > 0.8


def test_episodes_are_apart_by_parts_of_their_range_whatever_their_length():
    time_ = np.linspace(0, 1, 101)[:, None]
    one = np.concatenate([time_, 10 * time_, np.full((101, 1), 5.0)], axis=1)
    assert alike(EPISODE, one, one[::2]) == pytest.approx(1.0)
    assert alike(EPISODE, one, one + np.array([0, 0.3, 0])) == pytest.approx(0.97)
    assert alike(EPISODE, one, one[:, :2]) == 0.0
    # A column that stands still
    assert alike(EPISODE, one, one + np.array([0, 0, 1e-9])) == pytest.approx(1.0, abs=1e-6)


# ----------------------------------------------------------------------------------------- sketches


def sets_of(rng, count, size, similarity):
    """Return signatures of pairs of random sets of that size and Jaccard similarity, first ones then second ones."""
    both = round(2 * size * similarity / (1 + similarity))
    keys = rng.integers(0, 2**64, (count, 2 * size - both), dtype=np.uint64)
    sides = [keys[:, :size], np.concatenate([keys[:, :both], keys[:, size:]], axis=1)]
    parts = [(np.repeat(np.arange(count), side.shape[1]), side.reshape(-1)) for side in sides]
    return np.concatenate([signatures(iter([part]), count)[0] for part in parts])


@pytest.mark.parametrize("size", [40, 200, 5000])
@pytest.mark.parametrize("similarity", [0.5, 0.8])
def test_equal_numbers_estimate_the_similarity_of_sparse_and_of_large_sets(size, similarity):
    hashes = sets_of(np.random.default_rng(size), 400, size, similarity)
    share = (hashes[:400] == hashes[400:]).mean(axis=1)
    assert share.mean() == pytest.approx(similarity, abs=0.015)
    assert share.std() < 0.09


@pytest.mark.parametrize(
    ("near", "similarity"), [(0.8, 0.8), (0.5, 0.5), (0.9, 0.9), (0.8, 0.95), (0.3, 0.3)]
)
def test_pairs_as_alike_as_asked_for_are_candidates(near, similarity):
    count = 1000
    hashes = sets_of(np.random.default_rng(1), count, 1000, similarity + 0.005)
    pairs = near_sets(hashes, near)
    assert (
        len(set(map(tuple, pairs.tolist())) & {(i, i + count) for i in range(count)})
        >= 0.99 * count
    )
    assert (pairs[:, 0] < pairs[:, 1]).all()


def test_means_of_courses_differ_by_no_more_than_the_courses():
    rng = np.random.default_rng(2)
    for width in (1, 7, 14, 20, 64, 70):
        values = rng.normal(size=(3, 90, width))
        block = Block(["a", "b", "c"], {"a": Column.of(list(values))}, [Origin("")] * 3)
        course, reach, fits = courses(block, ["a"])
        mean = averaged(course)
        assert fits.all()
        assert reach.shape == (3, width)
        assert mean.shape[1] <= 64
        assert np.abs(mean[0] - mean[1]).max() <= np.abs(course[0] - course[1]).max()


def test_courses_within_the_limit_are_candidates_even_where_all_of_them_differ():
    rng = np.random.default_rng(4)
    values = [made.course(rng, 100).astype(np.float64) for _ in range(400)]
    values += [v + 0.045 * np.ptp(v, axis=0) * rng.choice([-1, 1], 7) for v in values]
    block = Block([str(i) for i in range(800)], {"a": Column.of(values)}, [Origin("")] * 800)
    course, reach, fits = courses(block, ["a"])
    assert fits.all()
    pairs = near_courses(averaged(course), reach, 0.05)
    assert len(set(map(tuple, pairs.tolist())) & {(i, i + 400) for i in range(400)}) >= 396


# -------------------------------------------------------------------------------------------- pairs


def test_a_bucket_of_equal_samples_gives_a_chain_and_not_all_pairs():
    hashes = np.zeros((50_000, 64), np.uint16)
    pairs = near_sets(hashes, 0.8)
    assert len(pairs) == MOST_PAIRS
    assert (pairs[:, 1] - pairs[:, 0]).max() <= 3
    assert len(near_courses(np.ones((2000, 64)), np.ones((2000, 8)), 0.05)) <= 3 * 2000


def test_time_grows_with_the_samples_and_not_with_their_square():
    rng = np.random.default_rng(0)
    seconds = []
    for count in (10_000, 80_000):
        hashes = rng.integers(0, 1 << 16, (count, 64)).astype(np.uint16)
        start = time.process_time()
        assert len(near_sets(hashes, 0.8)) == 0
        seconds.append(time.process_time() - start)
    assert seconds[1] < 30 * seconds[0]  # 8 times the samples; all pairs would be 64


def test_the_likeliest_pairs_are_kept_the_same_in_every_order():
    hashes = sets_of(np.random.default_rng(5), 300, 500, 0.85)
    order = np.random.default_rng(6).permutation(600)
    place = np.argsort(order)
    plain = {tuple(p) for p in near_sets(hashes, 0.8).tolist()}
    mixed = {tuple(sorted(order[p].tolist())) for p in near_sets(hashes[order], 0.8)}
    assert plain == mixed
    assert len(place) == 600


def test_fewer_than_two_samples_have_no_pairs():
    assert near_sets(np.zeros((0, 64), np.uint16), 0.8).shape == (0, 2)
    assert near_sets(np.zeros((1, 64), np.uint16), 0.8).shape == (0, 2)
    assert near_courses(np.zeros((1, 56)), np.ones((1, 7)), 0.05).shape == (0, 2)


# ----------------------------------------------------------------------------------------- verdicts


def distinct(kind, count):
    """Return a schema and that many samples of which no two have to do with one another."""
    rng = np.random.default_rng(9)
    if kind == "cloud":
        return CLOUD, [made.surface(rng, made.shape(i), 2048) for i in range(count)]
    if kind == "episode":
        return EPISODE, [made.course(rng, int(rng.integers(60, 200))) for _ in range(count)]
    texts = [made._joined(made._words(rng, i)) for i in range(count)]
    if kind == "text":
        return TEXT, texts
    head = {"role": "system", "content": "You are a helpful assistant."}
    chats = [
        [head, {"role": "user", "content": t[:80]}, {"role": "assistant", "content": t[80:]}]
        for t in texts
    ]
    return TEXT | {"fields": {"c": {"role": "chat"}}}, chats


@pytest.mark.parametrize("kind", ["text", "chat", "cloud", "episode"])
def test_no_two_of_a_thousand_distinct_samples_are_alike(kind):
    findings, verdict = found(*distinct(kind, 1000))
    assert findings == []
    assert (verdict.verdict, verdict.checked) == ("pass", 1000)


def test_copies_in_another_split_are_a_warning_that_names_both():
    rng = np.random.default_rng(0)
    texts = [" ".join(words(rng, 80)) for _ in range(8)]
    values = [*texts, texts[2] + " more", texts[3] + " more", texts[3] + " again"]
    splits = ["val"] * 4 + ["train"] * 4 + ["train", "val", "test"]
    schema = TEXT | {"splits": {"key": "file", "disjoint": ["train", "val"]}}
    findings, verdict = found(schema, values, splits)
    assert [(f.severity, f.kind, f.rows.tolist()) for f in findings] == [
        ("warning", "val", [2]),
        ("info", "", [9, 10]),
    ]
    assert findings[0].message.startswith(
        "In val 1 sample is nearly the same as one of train, in 1 cluster of up to 2: "
    )
    assert verdict.verdict == "fail"


def test_a_cluster_is_told_by_its_size_its_similarity_and_three_pairs():
    rng = np.random.default_rng(0)
    base = words(rng, 100)
    texts = [" ".join([*base[:i], "changed", *base[i + 1 :]]) for i in range(0, 50, 10)]
    other = " ".join(words(rng, 100))
    findings, _ = found(TEXT, [*texts, other, other + " end", " ".join(words(rng, 100))])
    (finding,) = findings
    assert finding.rows.tolist() == [1, 2, 3, 4, 6]
    large, small = finding.measured["largest"]
    assert (finding.measured["clusters"], large["size"], small["size"]) == (2, 5, 2)
    assert small["pairs"] == [
        ["s00005", "s00006", pytest.approx(jaccard(grams(other), grams(other + " end")), abs=1e-4)]
    ]
    every = [jaccard(grams(a), grams(b)) for i, a in enumerate(texts) for b in texts[i + 1 :]]
    assert len(large["pairs"]) == 3
    assert large["pairs"][0][2] == pytest.approx(max(every), abs=1e-4)
    assert min(every) - 1e-9 <= large["similarity"] <= max(every)


def test_equal_samples_are_left_to_the_rule_about_those():
    rng = np.random.default_rng(0)
    text = " ".join(words(rng, 60))
    assert found(TEXT, [text] * 50)[0] == []
    findings, _ = found(TEXT, [text] * 50 + [text + " end"])
    assert [f.rows.tolist() for f in findings] == [[50]]
    assert findings[0].measured["largest"][0]["pairs"][0][:2] == ["s00000", "s00050"]


def test_the_threshold_is_that_of_the_schema():
    rng = np.random.default_rng(0)
    one = words(rng, 100)
    pair = [" ".join(one), " ".join([*one[:80], *words(rng, 20)])]
    value = jaccard(*map(grams, pair))
    for near, wanted in ((value - 0.01, 1), (value + 0.01, 0)):
        assert len(found(TEXT | {"duplicates": {"near": near}}, pair)[0]) == wanted
    assert found({"fields": {"t": {"role": "text"}}}, pair)[1].verdict == "not_applicable"


def test_what_is_too_small_to_compare_is_not_judged():
    _, verdict = found(TEXT, ["short", "", "also short", "x" * 35])
    assert verdict.verdict == "skip"
    _, verdict = found(TEXT, ["short", "x" * 36])
    assert (verdict.verdict, verdict.checked) == ("pass", 1)
    assert "too little to compare" in verdict.unseen[0]
    assert (
        found(CLOUD, [np.zeros((1100, 3)), np.zeros((0, 3)), np.ones((9, 3))])[1].verdict == "skip"
    )
    assert (
        found(EPISODE, [np.zeros((90, 7)), np.ones((15, 7)), np.zeros((0, 7))])[1].verdict == "skip"
    )


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int64, np.uint8])
def test_any_dtype_is_compared(dtype):
    rng = np.random.default_rng(0)
    clouds = [(100 + 90 * made.surface(rng, made.shape(i), 1100)).astype(dtype) for i in range(3)]
    assert [f.rows.tolist() for f in found(CLOUD, [*clouds, clouds[0][50:]])[0]] == [[3]]
    episodes = [(100 + 20 * made.course(rng, 80)).astype(dtype) for _ in range(3)]
    other = episodes[1].copy()
    other[40, np.argmax(np.ptp(other.astype(float), axis=0))] += 1  # of a range of more than twenty
    assert [f.rows.tolist() for f in found(EPISODE, [*episodes, other])[0]] == [[3]]


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e300])
def test_numbers_that_are_none_or_huge_are_no_crash(value):
    clouds = [
        made.surface(np.random.default_rng(i), made.shape(i), 1100).astype(np.float64)
        for i in range(3)
    ]
    clouds[1][0] = value
    assert alike(CLOUD, clouds[0], clouds[1]) < 0.8
    assert alike(CLOUD, clouds[1], np.full((1100, 3), value)) == 0.0
    episodes = [np.random.default_rng(i).normal(size=(40, 7)) for i in range(3)]
    episodes[1][3, 2] = value
    block = Block(["a", "b", "c"], {"a": Column.of(episodes)}, [Origin("")] * 3)
    with np.errstate(all="ignore"):
        assert courses(block, ["a"])[2].tolist() == [True, False, True]


# -------------------------------------------------------------------------------------------- files

LINES = """
datacheck: 1
name: near
samples: {files: "*.jsonl", each: line}
fields: {text: {role: text}}
duplicates: {near: 0.8}
"""
FILES = """
datacheck: 1
name: near
samples: {files: "{split}/*.npy"}
fields: {xyz: {role: points, shape: [P, 3]}}
splits: {key: file, disjoint: [train, val]}
duplicates: {near: 0.8}
"""


def told(schema, data, output, **more):
    """Return the findings of a scan by its own children, and its verdict."""
    report = run_scan(
        parse_schema(schema), Request(data, output=output, level="deep", **more)
    ).report
    assert report.crashes == []
    findings = [(f.message, f.measured) for f in report.findings if f.code == "DC804"]
    return findings, next(v for v in report.verdicts if v.code == "DC804")


def test_lines_of_files_that_are_read_in_parts_are_compared(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(1)
    texts = [made._joined(made._words(rng, i)) for i in range(60)]
    texts += [made._again(texts[i], 0.05, rng) for i in (7, 8)]
    (tmp_path / "data").mkdir()
    for name, some in (("a", texts), ("b", [made._again(texts[i], 0.05, rng) for i in (9, 10)])):
        said = [json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in some]
        (tmp_path / "data" / f"{name}.jsonl").write_text("".join(said), encoding="utf-8")
    whole, _ = told(LINES, tmp_path / "data", tmp_path / "whole")
    ((_, measured_),) = whole
    assert (measured_["copies"], measured_["clusters"]) == (4, 4)
    assert measured_["largest"][0]["pairs"][0][:2] == [
        "a.jsonl:000000000007",
        "a.jsonl:000000000060",
    ]
    monkeypatch.setattr(lines, "_CUT_BYTES", 1000)
    monkeypatch.setattr(jsonl, "_PART_BYTES", 9000)
    monkeypatch.setattr(jsonl, "_COUNTED_BYTES", 512)
    assert told(LINES, tmp_path / "data", tmp_path / "cut", workers=2)[0] == whole


def test_clouds_in_files_are_compared_at_deep_only(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(2)
    for split, shapes in (("train", range(8)), ("val", (3, 50))):
        (tmp_path / "data" / split).mkdir(parents=True)
        for i in shapes:
            np.save(
                tmp_path / "data" / split / f"{i:02d}.npy", made.surface(rng, made.shape(i), 9000)
            )
    for workers in (1, 2):
        findings, verdict = told(
            FILES, tmp_path / "data", tmp_path / f"out{workers}", workers=workers
        )
        assert [m["largest"][0]["pairs"][0][:2] for _, m in findings] == [
            ["train/03.npy", "val/03.npy"]
        ]
        assert verdict.verdict == "fail"
    shallow = run_scan(
        parse_schema(FILES),
        Request(tmp_path / "data", output=tmp_path / "shallow", level="numeric"),
    ).report
    assert next(v.why for v in shallow.verdicts if v.code == "DC804") == "needs --level deep"
