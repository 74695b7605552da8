"""Names, companions, sizes and counts: thresholds from both sides, ties, and what must stay silent."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datacheck.model.sample import Origin, Piece
from datacheck.model.table import Note
from datacheck.rules import catalogue
from datacheck.rules.base import collapse_ranges
from tests.rules.harness import codes, judged, measured, schema_of

VALUE = "fields: {x: {role: value, shape: [2]}}"
SEQUENCE = "samples: {files: '{seq}/{frame}.pkl', group: '{seq}'}\n" + VALUE
COUNTED = """
attrs: {num_samples: T, num_demos: samples, total: sum T, version: 3}
fields: {a: {role: value, shape: [T, 2]}, b: {shape: [T]}}
"""


def pieces(keys, group="", file="", fields=None, **facts):
    """One piece for each key; facts are lists with one value each."""
    rng = np.random.default_rng(0)
    return [
        (
            "",
            Piece(
                key,
                fields or {"x": rng.normal(size=2)},
                Origin(file or key),
                group,
                {"id": key} | {name: value[i] for name, value in facts.items()},
            ),
        )
        for i, key in enumerate(keys)
    ]


def found(schema, samples, notes=()):
    schema = schema_of(schema)
    return judged(schema, measured(schema, samples), list(notes))


def one(schema, samples, code, notes=()):
    """The only finding."""
    (finding,) = found(schema, samples, notes).findings
    assert finding.code == code
    return finding


def test_no_two_measurements_have_one_name():
    measures = {m for rule in catalogue().values() for m in rule.measures}
    assert len({m.name for m in measures}) == len(measures)


@pytest.mark.parametrize(
    ("names", "wanted"),
    [
        ([], []),
        (["a/0678.pkl", "a/0679.pkl", "a/0680.pkl"], ["a/0678.pkl … a/0680.pkl (3)"]),
        (["a/0678.pkl", "a/0680.pkl"], ["a/0678.pkl", "a/0680.pkl"]),
        (["d_9", "d_10", "d_2"], ["d_2", "d_9 … d_10 (2)"]),
        (["s1/f1.h5", "s1/f2.h5", "s2/f3.h5"], ["s1/f1.h5 … s1/f2.h5 (2)", "s2/f3.h5"]),
        (["a1_1", "a2_1", "a2_2"], ["a1_1 … a2_1 (2)", "a2_2"]),
        (["x", "y"], ["x", "y"]),
    ],
)
def test_names_that_follow_one_another_are_told_as_one_stretch(names, wanted):
    assert collapse_ranges(names) == wanted


# --------------------------------------------------------------------------------------- companions


def test_a_missing_file_is_named_once_with_its_samples_as_stretches():
    schema = "fields: {x: {role: value, shape: [2]}, d: {file: 'd/{id}.png', shape: [2]}}"
    whole = pieces(["f0001"], fields={"x": np.ones(2), "d": np.ones(2)})
    keys = ["f0003", "f0004", "f0007"]
    lacking = pieces(keys, **{"absent/d": [f"d/{key}.png" for key in keys]})
    finding = one(schema, whole + lacking, "DC104")
    assert finding.rows.tolist() == [1, 2, 3]
    assert finding.fields == ("d",)
    assert finding.measured["samples"] == ["f0003 … f0004 (2)", "f0007"]
    assert "d/f0003.png, d/f0004.png, d/f0007.png not found" in finding.message


def test_a_missing_file_of_an_optional_field_is_no_fault():
    schema = (
        "fields: {x: {role: value, shape: [2]}, d: {file: 'd/{id}.png', shape: [2], optional: "
        "true}}"
    )
    assert codes(found(schema, pieces(["a"], **{"absent/d": ["d/a.png"]}))) == []


# --------------------------------------------------------------------------------- collisions, junk


@pytest.mark.parametrize(
    ("names", "wanted"),
    [
        (["a/Mug.npy", "a/mug.npy"], 2),
        (["a/\u00e9.npy", "a/e\u0301.npy"], 2),
        (["straße.npy", "STRASSE.npy"], 2),
        (["A/x.npy", "a/x.npy", "b/x.npy"], 2),
        (["a/mug.npy", "b/mug.npy", "mug.npz"], 0),
    ],
)
def test_names_that_collide_on_another_disk_are_a_warning(names, wanted):
    said = found(VALUE, pieces(names)).findings
    assert [(f.code, f.severity, f.failed) for f in said] == [("DC106", "warning", wanted)][
        : wanted and 1
    ]


def test_one_name_in_two_splits_is_no_duplicate_but_in_one_split_it_is():
    two = [
        (split, piece)
        for split, (_, piece) in zip(
            ["a", "b"], pieces(["p.npy", "q.npy"], id=["p", "p"]), strict=True
        )
    ]
    assert codes(found(VALUE, two)) == []
    finding = one(VALUE, pieces(["p.npy", "q.npy", "r.npy"], id=["p", "p", "r"]), "DC106")
    assert (finding.severity, finding.rows.tolist()) == ("error", [0, 1])


def test_junk_is_told_by_reason_and_invisible_characters_are_shown():
    notes = [
        Note("DC107", "a/._x.npy", "left behind by another program"),
        Note("DC107", "b\u200b.npy", "has a character"),
        Note("DC107", "中文\x1b.npy", "has a character"),
    ]
    said = found(VALUE, pieces(["a", "c"]), notes).findings
    assert [(f.code, f.severity, f.failed) for f in said] == [("DC107", "warning", 0)] * 2
    assert any(f.message == "1 name (a/._x.npy): left behind by another program." for f in said)
    assert any(
        f.message.startswith("2 names (") and f.message.endswith("): have a character.")
        for f in said
    )
    # What can be shown stays as it is
    assert any("b\\u200b.npy, 中文\\x1b.npy" in f.message for f in said)


# ------------------------------------------------------------------------------------------ sizes


def sizes(values):
    return pieces(
        [f"{i:03d}.npy" for i in range(len(values))], size=[np.asarray(v) for v in values]
    )


def test_a_file_below_a_tenth_of_the_usual_size_stands_out_only_where_sizes_are_alike():
    assert one(VALUE, sizes([1000] * 9 + [99]), "DC103").rows.tolist() == [9]
    assert codes(found(VALUE, sizes([1000] * 9 + [101]))) == []  # above a tenth
    assert codes(found(VALUE, sizes([1000] * 6 + [1]))) == []  # seven files are too few to tell
    # A tenth of the median is nothing special here
    spread = [10.0**k for k in (1, 2, 3, 3, 4, 4, 5, 5, 6, 7)]
    assert codes(found(VALUE, sizes([int(s) for s in spread]))) == []


def cut_sizes(last, others):
    return codes(found(VALUE, sizes([*others, last])))


def test_a_file_that_ends_with_a_block_and_is_far_smaller_than_all_others_was_cut():
    others = [640_016 + 13_328 * i for i in range(20)]  # hardly any is a multiple of 4,096
    said = one(VALUE, sizes([*others, 76 * 4096]), "DC103")
    assert (said.rows.tolist(), said.kind, said.cause.kind) == ([20], "cut", "cut")
    assert cut_sizes(76 * 4096 + 16, others) == []  # ends anywhere: a smaller scene
    assert cut_sizes(150 * 4096, others) == []  # as small as the smallest others
    assert cut_sizes(76 * 4096, [4096 * (size // 4096) for size in others]) == []
    scattered = [90_016 * 2 ** (i % 6) for i in range(20)]
    assert cut_sizes(16 * 4096, scattered) == []


def test_kinds_of_files_are_not_held_against_each_other():
    small = pieces([f"{i}.txt" for i in range(9)], size=[np.asarray(20)] * 9)
    assert codes(found(VALUE, sizes([100_000] * 9) + small)) == []


def test_many_samples_of_one_file_count_as_one_file():
    inside = pieces([f"a.h5:/{i}" for i in range(50)], file="a.h5", size=[np.asarray(10)] * 50)
    others = sizes([1000] * 9)
    assert codes(found(VALUE, others + inside)) == []  # another ending
    assert "2 samples" not in str(found(VALUE, others).findings)


# ------------------------------------------------------------------------------------------ counts


def demos(lengths, **facts):
    keys = [f"f.h5:/{i}" for i in range(len(lengths))]
    made = pieces(
        keys,
        file="f.h5",
        **{f"attrs/{n}": [np.asarray(v) for v in values] for n, values in facts.items()},
    )
    return [
        (s, Piece(p.key, {"a": np.ones((n, 2)), "b": np.ones(n)}, p.origin, "", p.facts))
        for (s, p), n in zip(made, lengths, strict=True)
    ]


def counts(samples):
    return sorted(
        (f.kind, f.rows.tolist()) for f in found(COUNTED, samples).findings if f.code == "DC111"
    )


def told(lengths, **changed):
    right = {
        "num_samples": lengths,
        "num_demos": [len(lengths)] * len(lengths),
        "total": [sum(lengths)] * len(lengths),
    }
    return demos(lengths, **({"version": [3] * len(lengths)} | right | changed))


LISTED = """
samples: {files: "{split}/{id}.npy", list: "{split}.yaml", counts: {file_len: P, rows: P}}
fields: {x: {shape: [P]}}
"""


def listed_lengths(lengths, **stated):
    """Return the findings of DC111 for files of these lengths, of which a list states others by place."""
    samples = [
        ("", Piece(f"f{i}.npy", {"x": np.arange(n) + i}, Origin(f"f{i}.npy")))
        for i, n in enumerate(lengths)
    ]
    notes = [
        Note("DC111", f"f{i}.npy", "", about={name: said})
        for name, by in stated.items()
        for i, said in by.items()
    ]
    schema = schema_of(LISTED)
    findings = judged(schema, measured(schema, samples), notes).findings
    return [
        (f.kind, f.severity.value, f.rows.tolist(), f.measured)
        for f in findings
        if f.code == "DC111"
    ]


def test_numbers_in_a_list_are_held_against_the_files_that_it_names():
    assert listed_lengths([9, 8, 7]) == []  # a list may say nothing
    assert listed_lengths([9, 8, 7], file_len={0: 9, 2: 7, 5: 1}, rows={1: 8}) == []
    short = {"stated": 6, "found": 7}
    assert listed_lengths([9, 8, 7], file_len={0: 9, 2: 6}) == [("file_len", "error", [2], short)]
    assert [k for k, *_ in listed_lengths([9, 8, 7], file_len={2: 6}, rows={2: 0})] == [
        "file_len",
        "rows",
    ]


def test_every_count_is_held_against_what_it_counts():
    assert counts(told([9, 8, 7])) == []
    assert counts(told([9, 8, 7], num_samples=[9, 9, 7])) == [("num_samples", [1])]
    assert counts(told([9, 8, 7], num_demos=[4, 4, 4])) == [("num_demos", [0, 1, 2])]
    assert counts(told([9, 8, 7], total=[25, 25, 25])) == [("total", [0, 1, 2])]
    assert counts(told([9, 8, 7], version=[3, 3, 4])) == [("version", [2])]
    said = found(COUNTED, told([9, 8, 7], num_samples=[9, 9, 7], total=[25, 25, 25])).findings
    levels = {f.kind: f.severity.value for f in said if f.code == "DC111"}
    assert levels == {"num_samples": "error", "total": "warning"}


def test_a_sum_is_not_judged_where_a_sample_could_not_be_read_or_does_not_agree():
    samples = told([9, 8, 7], total=[99, 99, 99])
    whole = Piece(
        samples[2][1].key,
        {"a": np.ones((7, 2)), "b": np.ones(6)},
        Origin("f.h5"),
        "",
        samples[2][1].facts,
    )
    assert counts([*samples[:2], ("", whole)]) == []
    assert counts([*samples[:2], ("", "f.h5\0DC101 cut")]) == []
    assert counts([*samples[:2], ("", "g.h5\0DC101 cut")]) == [
        ("num_demos", [0, 1]),
        ("total", [0, 1]),
    ]


def test_counts_of_a_file_may_be_missing_and_those_of_a_sample_not():
    assert not {"DC111", "DC121"} & set(
        codes(found(COUNTED, demos([9, 8], num_samples=[9, 8], version=[3, 3])))
    )
    said = found(COUNTED, demos([9, 8], version=[3, 3])).findings
    assert [f.message for f in said if f.code in {"DC111", "DC121"}] == [
        "2 samples lack attribute num_samples."
    ]


def test_an_attribute_that_no_sample_has_hides_nothing_and_one_that_some_lack_is_an_error():
    """No loader but robomimic's asks for num_samples: without it steps are still judged."""
    schema = "episode: {length: 9..}\nfields: {a: {shape: [T]}}\nattrs: {n: T}"
    a, b = ({"a": np.arange(float(n))} for n in (9, 8))
    for lacking, severity, codes_of in (
        ([0, 1], "warning", {"DC121", "DC501"}),
        ([1], "error", {"DC121"}),
    ):
        samples = [
            (
                "",
                Piece(
                    str(i), one, Origin("f"), "", {} if i in lacking else {"attrs/n": np.asarray(9)}
                ),
            )
            for i, one in enumerate((a, b))
        ]
        said = found(schema, samples).findings
        assert {f.code for f in said} == codes_of
        assert [f.severity.value for f in said if f.code == "DC121"] == [severity]


# ------------------------------------------------------------------------------------------ holes


def frames(numbers, group="S"):
    return pieces([f"{group}/{n:04d}.pkl" for n in numbers], group=group)


def test_a_hole_is_told_with_what_is_missing():
    finding = one(SEQUENCE, frames([*range(100), *range(151, 200)]), "DC112")
    assert finding.message.startswith("51 frames gone in 1 group: S 100-150;")
    assert finding.examples == ("S/0151.pkl",)
    assert finding.severity == "warning"


@pytest.mark.parametrize(
    "numbers",
    [
        range(100),
        range(7, 500, 5),
        range(19),
        [*range(10), *range(15, 24)],  # 19 frames are too few
        # A random choice
        sorted(np.random.default_rng(0).choice(1000, 80, replace=False).tolist()),
        [],
    ],
)
def test_what_is_no_hole(numbers):
    assert codes(found(SEQUENCE, frames(list(numbers)))) == []


def test_a_hole_in_steps_of_five_counts_frames_of_that_step():
    numbers = [*range(0, 200, 5), *range(220, 300, 5)]
    assert "4 frames gone in 1 group: S 200-215" in one(SEQUENCE, frames(numbers), "DC112").message


def in_folders(*folders):
    """Files of folders without a group: hello/0/000.npy and so on, padded or not."""
    return pieces(
        [f"hello/{name}/{n}.npy" for name, numbers in enumerate(folders) for n in numbers]
    )


FILES = "samples: {files: '{word}/{take}/{frame}.npy'}\n" + VALUE
LACKS = [*range(11), *range(15, 30)]


@pytest.mark.parametrize(("whole", "cut"), [(9, 1), (18, 3)])
def test_without_groups_the_folders_of_many_are_judged(whole, cut):
    finding = one(FILES, in_folders(*[range(30)] * whole, *[LACKS] * cut), "DC112")
    said = ", ".join(f"hello/{whole + n} 11-14" for n in range(cut))
    assert finding.message == (
        f"{4 * cut} files gone in {cut} of {whole + cut} folders: {said}; named are those behind. "
        f"{whole} folders are numbered without a hole."
    )
    assert finding.examples == tuple(f"hello/{whole + n}/15.npy" for n in range(cut))


@pytest.mark.parametrize(
    "folders",
    [
        [range(30)] * 8 + [LACKS],  # few folders
        [range(30)] * 16 + [LACKS] * 3,  # holes are usual
        [range(20 + n) for n in range(20)],  # clips of different lengths
        [range(19)] * 20 + [LACKS],  # short ones are not judged
        [range(30)] * 19 + [[*range(30), 20_230_412]],  # a picture that is named by its date
        [range(30)] * 5
        + [range(0, 300, 7)] * 5
        + [sorted(np.random.default_rng(3).permutation(999)[:30])] * 9,
    ],
)
def test_folders_of_which_some_rightly_lack_numbers(folders):
    assert codes(found(FILES, in_folders(*folders))) == []


def test_files_of_another_ending_are_folders_of_their_own():
    keys = [
        f"{name}/{n}.{end}"
        for name in range(12)
        for n in range(30)
        for end in ("npy", "txt")
        if (n, end) != (9, "txt") or name
    ]
    assert "1 file gone in 1 of 12 folders: 0 9;" in one(FILES, pieces(keys), "DC112").message


def test_listed_frames_that_do_not_exist_are_no_hole():
    gone = [
        ("", f"S/{n:04d}.pkl\0DC105 listed in train.txt, but there is no such file")
        for n in range(40, 50)
    ]
    samples = frames([*range(40), *range(50, 90)]) + gone
    finding = one(SEQUENCE, samples, "DC105")
    assert finding.measured["missing"] == ["S/0040.pkl … S/0049.pkl (10)"]


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.integers(0, 9999), min_size=2, max_size=12, unique=True),
    st.sampled_from([0, 2, 4]),
    st.sampled_from(["S/{}.pkl", "7/{}", "é{}x3", "{}", "S1/{}.{}"]),
)
def test_the_number_of_a_name_is_found_however_it_is_written(numbers, width, form):
    """A hole lies behind exactly those numbers of which the one before is missing, padded with zeros or not."""
    names = {form.format(*[f"{number:0{width}d}"] * form.count("{}")): number for number in numbers}
    schema = f"{SEQUENCE}\nrules: {{DC112: {{least: 2, contiguous: 0.0}}}}"
    said = [
        f for f in found(schema, pieces(sorted(names), group="S")).findings if f.code == "DC112"
    ]
    every = np.unique(numbers)
    step = int(np.median(np.diff(every)))
    behind = (
        every[1:][np.diff(every) > step].tolist()
        if len(every) >= 3 and form.count("{}") == 1
        else []
    )
    told = [names[sorted(names)[row]] for finding in said for row in finding.rows.tolist()]
    assert sorted(told) == behind


def test_the_characters_of_a_vocabulary_are_no_odd_names():
    """nanoGPT's meta.pkl holds a number for each character, the line feed among them."""
    vocabulary = {f"stoi/{c}": np.array(i) for i, c in enumerate("\n\t ab")}
    assert found("fields: {}", pieces(["meta.pkl"], fields=vocabulary)).findings == []
    odd = pieces(["meta.pkl"], fields={"stoi/a\n": np.array(1)})
    assert one("fields: {}", odd, "DC107").failed == 1
