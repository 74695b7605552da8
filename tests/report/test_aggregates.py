import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from datacheck.model.table import Measured, Texts
from datacheck.report.field_figures import BINS, ReferenceValues, fields, histogram
from datacheck.report.sample_table import order_of_rows
from datacheck.report.shown_measures import ShownMeasure, band, common_schema, shown_measures
from datacheck.rules.families.tokens import UNKNOWN_LENGTH
from datacheck.schema.load import load_schema, parse_schema
from datacheck.schema.model import EpisodeSpec
from tests.report.conftest import SCHEMA_TEXT, table


@given(
    arrays(
        np.float64, st.integers(1, 60), elements=st.floats(allow_nan=False, allow_infinity=False)
    ),
    st.booleans(),
)
def test_every_value_is_in_a_bin_or_beside_them(values, positive):
    values = np.abs(values) if positive else values
    groups = np.arange(len(values)) % 4
    said = histogram(values, groups, 4)
    assert (said["low"], said["high"]) == (values.min(), values.max())
    if said["edges"]:
        assert len(said["edges"]) - 1 <= BINS
        assert np.sum(said["counts"]) + said["below"] + said["above"] == len(values)


def test_a_histogram_is_that_of_numpy():
    values = np.random.default_rng(1).normal(5, 2, 4000)
    said = histogram(values, np.zeros(4000, np.int64), 1)
    assert said["p"] == [np.sort(values)[40], np.median(values), np.sort(values)[3960]]
    counts, _ = np.histogram(values, np.linspace(values.min(), values.max(), 49))
    assert said["counts"] == [counts.tolist()]


def test_whole_numbers_get_a_bin_each():
    values = np.array([3.0, 3, 4, 6])
    said = histogram(values, np.array([0, 1, 0, 0]), 2, whole=True)
    assert said["edges"] == [2.5, 3.5, 4.5, 5.5, 6.5]
    assert said["counts"] == [[1, 1, 0, 1], [1, 0, 0, 0]]


def test_a_mixture_of_units_is_drawn_on_a_log_axis_and_zeros_are_counted_beside_it():
    said = histogram(np.array([0.0, 0.1, 0.2, 0.3, 100.0]), np.zeros(5, np.int64), 1)
    assert said["log"]
    assert (said["below"], said["above"]) == (1, 0)
    assert (said["edges"][0], said["edges"][-1]) == (0.1, 100)


def test_far_values_do_not_squeeze_the_others():
    values = np.concatenate([np.linspace(-1, 1, 999), [1e9]])
    said = histogram(values, np.zeros(1000, np.int64), 1)
    assert (said["above"], said["high"]) == (1, 1e9)
    assert said["edges"][-1] < 20


def test_a_field_says_what_is_declared_measured_and_allowed(tmp_path):
    (tmp_path / "s.yaml").write_text(SCHEMA_TEXT)
    rows, failing = table(100, 10)
    (xyz,) = fields(rows, load_schema(tmp_path / "s.yaml"), failing.rows == 1)
    assert (xyz["role"], xyz["unit"], xyz["shape"], xyz["present"]) == (
        "points",
        "m",
        "[P, 3]",
        100,
    )
    size, low, length = xyz["measures"]
    assert (size["stat"], size["band"], size["unit"], size["groups"]) == (
        "box",
        [0.02, 0.4],
        "m",
        ["train", "val"],
    )
    assert [sum(counts) for counts in size["counts"]] == [72, 8, 18, 2]
    assert (low["stat"], low["low"]) == ("min", -size["high"])
    assert (length["low"], length["high"], len(length["edges"])) == (3, 9, 8)


def test_what_a_check_of_the_users_measures_is_left_alone():
    assert shown_measures(["xyz:mine", ":other", "xyz:bad_row"]) == {}


@pytest.mark.parametrize(
    ("most", "wanted"), [(9, [1, 4, 5, 2, 6, 0, 3, 7]), (4, [1, 4, 5, 2]), (6, [1, 4, 5, 2, 6, 0])]
)
def test_failing_rows_come_first_and_errors_before_warnings(most, wanted):
    failing = Texts(["", "DC1", "DC2"], np.array([0, 1, 2, 0, 1, 1, 2, 0], np.int32))
    assert order_of_rows(failing, np.array([3, 0, 1, 3, 0, 0, 1, 3]), most).tolist() == wanted


def test_of_too_many_failures_each_kind_is_shown():
    failing = Texts(["DC1", "DC2", "DC3"], np.array([0] * 50 + [1] * 2 + [2] * 48, np.int32))
    chosen = order_of_rows(failing, np.zeros(100, np.int64), 8)
    assert np.bincount(failing.rows[chosen]).tolist() == [3, 2, 3]


def test_a_reference_is_counted_in_bins_that_hold_both():
    rng = np.random.default_rng(3)
    values, then = rng.normal(5, 1, 2000), rng.normal(9, 1, 3000)
    splits = np.arange(3000) % 2
    said = histogram(values, np.zeros(2000, np.int64), 1, then=ReferenceValues(then, splits, 2))
    edges = np.array(said["edges"])
    both = np.concatenate([values, then])
    assert (edges[0], edges[-1]) == (both.min(), both.max())
    assert (said["low"], said["high"], said["p"][1]) == (
        values.min(),
        values.max(),
        np.median(values),
    )
    assert said["counts"] == [np.histogram(values, edges)[0].tolist()]
    assert said["then"] == {
        "counts": [np.histogram(then[splits == n], edges)[0].tolist() for n in (0, 1)],
        "below": 0,
        "above": 0,
        "median": np.median(then),
    }


def test_what_is_the_same_here_and_otherwise_in_the_reference_is_drawn():
    same = np.full(10, 3.0)
    groups = np.zeros(10, np.int64)
    assert histogram(same, groups, 1, then=ReferenceValues(same, groups, 1))["edges"] == []
    said = histogram(same, groups, 1, then=ReferenceValues(same + 1, groups, 1))
    assert (np.sum(said["counts"]), np.sum(said["then"]["counts"])) == (10, 10)
    assert np.multiply(said["counts"][0], said["then"]["counts"][0]).tolist() == [0] * len(
        said["counts"][0]
    )


def test_the_splits_of_a_reference_are_those_of_the_run():
    schema = parse_schema(SCHEMA_TEXT)
    (now, _), (then, _) = table(100, 10), table(50, 0, splits=("train", "other"))
    (xyz,) = (f for f in fields(now, schema, np.zeros(100, bool), then) if f["name"] == "xyz")
    for measure in xyz["measures"]:
        assert measure["groups"] == ["train", "val"]
        train, val = measure["then"]["counts"]
        assert (sum(train) + measure["then"]["below"] + measure["then"]["above"], sum(val)) == (
            40,
            0,
        )
    (alone,) = (f for f in fields(now, schema, np.zeros(100, bool)) if f["name"] == "xyz")
    assert all("then" not in measure for measure in alone["measures"])


@pytest.mark.parametrize("splits", [1, 7])
def test_of_splits_that_are_not_told_apart_only_those_here_are_counted_in_the_reference(splits):
    schema = parse_schema(SCHEMA_TEXT)
    here = [f"s{n}" for n in range(splits)]
    (now, _), (then, _) = table(70, 0), table(80, 0)
    now.splits = Texts(here, np.arange(70, dtype=np.int32) % splits)
    then.splits = Texts([*here, "gone"], np.arange(80, dtype=np.int32) % (splits + 1))
    (xyz,) = (f for f in fields(now, schema, np.zeros(70, bool), then) if f["name"] == "xyz")
    sizes = then.columns["xyz:box"].values[np.arange(80) % (splits + 1) != splits]
    (box,) = (measure for measure in xyz["measures"] if measure["stat"] == "box")
    assert box["groups"] == [""]
    assert box["then"]["median"] == pytest.approx(np.median(sizes))
    assert np.sum(box["then"]["counts"]) + box["then"]["below"] + box["then"]["above"] == len(sizes)


def measures_of(columns, text):
    """The measures of the first field, by what they are called."""
    rows, _ = table(10, 0)
    rows.columns.clear()
    whole = np.ones(10, bool)
    rows.columns.update(
        {name: Measured(np.asarray(values), whole) for name, values in columns.items()}
    )
    schema = parse_schema(f"datacheck: 1\nname: made\nsamples: {{files: '*.npy'}}\n{text}\n")
    found = next(one for one in fields(rows, schema, np.arange(10) >= 8) if one["measures"])
    return {measure["label"]: measure for measure in found["measures"]}


def test_the_share_of_what_is_ignored_is_over_all_labels_of_a_sample():
    ignored, count = np.arange(10) * 10, np.full(10, 100)
    count[9] = 0  # of a sample without labels there is no share
    said = measures_of(
        {"c:ignored": ignored, "c:count": count}, "fields: {c: {role: class, shape: [P]}}"
    )
    assert said["share ignored"]["p"] == [0, 0.4, 0.8]
    assert (said["share ignored"]["n"], said["share ignored"]["high"]) == (9, 0.8)
    assert "share ignored" not in measures_of(
        {"c:ignored": ignored, "c:min": ignored}, "fields: {c: {role: class, shape: [P]}}"
    )


def test_tokens_have_the_longest_length_as_their_limit_and_the_supervised_ones_are_a_share_of_them():
    tokens = np.arange(1, 11) * 100
    text = "fields: {c: {role: chat, min_trained_tokens: 8}}\ntokenizer: {max_length: 512}"
    said = measures_of(
        {
            ":c:tokens": tokens,
            ":c:trained": tokens // 4,
            ":c:prompt_bytes": [*range(9), UNKNOWN_LENGTH],
        },
        text,
    )
    assert said["tokens"]["band"] == [None, 512]
    assert said["supervised tokens"]["band"] == [8, None]
    assert said["share of supervised tokens"]["band"] is None
    assert (
        said["share of supervised tokens"]["low"],
        said["share of supervised tokens"]["high"],
    ) == (0.25, 0.25)
    assert (
        said["bytes before the first answer"]["n"],
        said["bytes before the first answer"]["high"],
        said["bytes before the first answer"]["nonfinite"],
    ) == (9, 8, 0)


@pytest.mark.parametrize(("rules", "off"), [("", 0.001), ("\nrules: {DC304: {'off': 0.25}}", 0.25)])
def test_quaternions_are_to_be_as_long_as_the_rule_allows_and_rounding_is_no_distribution(
    rules, off
):
    lengths = 1 + np.arange(10) * 1e-8
    longest = np.where(np.arange(10) == 3, 2.0, lengths)
    columns = {"q:shortest": lengths, "q:longest": longest}
    said = measures_of(
        columns, "fields: {q: {role: quaternion, shape: [G, 4], order: wxyz}}" + rules
    )
    assert said["longest quaternion"]["band"] == [1 - off, 1 + off]
    assert (said["longest quaternion"]["high"], len(said["longest quaternion"]["edges"]) > 2) == (
        2,
        True,
    )
    assert (said["shortest quaternion"]["low"], said["shortest quaternion"]["edges"]) == (1, [])


@pytest.mark.parametrize(
    ("unit", "rules", "band"),
    [
        ("s", "", [0.05 / 1.02, 0.05 / 0.98]),
        ("ms", "", [50 / 1.02, 50 / 0.98]),
        ("s", "\nrules: {DC503: {tolerance: 0.25}}", [0.04, 0.2 / 3]),
        ("s", "\nrules: {DC503: {tolerance: 1}}", [0.025, None]),
        ("s", "\nrules: {DC503: {tolerance: 25%}}", [0.04, 0.2 / 3]),
        ("s", "\nrules: {DC503: {tolerance: -1}}", [None, 0.025]),
    ],
)
def test_steps_of_time_are_those_of_the_declared_rate_as_the_rule_allows_in_the_unit_of_the_field(
    unit, rules, band
):
    text = (
        f"fields: {{t: {{role: timestamp, shape: [T], unit: {unit}}}}}\nepisode: {{fps: 20}}"
        + rules
    )
    ends = np.arange(10.0)[:, None]
    said = measures_of({"t:step": np.arange(10) + 0.1, "t:min": ends, "t:max": ends}, text)
    assert said["time step (median)"]["band"] == [
        None if end is None else pytest.approx(end) for end in band
    ]
    assert next(iter(said)) == "time step (median)"
    assert (
        measures_of({"t:step": np.arange(10.0)}, text.partition("\n")[0])["time step (median)"][
            "band"
        ]
        is None
    )


@pytest.mark.parametrize("fps", [1e-309, 5e-324, 1e308])
def test_a_rate_that_no_step_of_time_has_draws_no_band_that_is_not_finite(fps):
    text = (
        "datacheck: 1\nname: n\nsamples: {files: '*'}\nfields: {t: {role: timestamp, shape: "
        "[T], unit: ms}}\n"
    )
    schema = parse_schema(text)
    schema = schema.model_copy(
        update={"episode": EpisodeSpec.model_construct(fps=fps, length=None)}
    )  # unchecked
    assert np.isfinite(
        [end for end in band(schema, ShownMeasure("t:step", "t", "step")) or [] if end is not None]
    ).all()


def test_clouds_have_the_least_number_of_points_and_instances_that_of_the_loader_as_their_limits():
    dims = np.stack([np.arange(10) + 60, np.full(10, 3)], axis=1)
    said = measures_of(
        {"x:dims": dims}, "fields: {x: {role: points, shape: [P, 3], min_points: 64}}"
    )
    assert (said["points"]["band"], said["points"]["low"]) == ([64, None], 60)
    scene = "fields: {i: {role: instance, shape: [P], min_points: 7}}\nloader: {clip: 100}"
    assert measures_of({":largest": np.arange(10.0)}, scene)["points of the largest instance"][
        "band"
    ] == [7, None]


def test_a_size_says_what_it_would_be_in_other_units():
    sizes = np.arange(1.0, 11)
    said = measures_of(
        {"x:box": sizes}, "fields: {x: {role: points, shape: [P, 3], unit: cm, size: 1..5}}"
    )
    (millimetres,) = said["size (diagonal)"]["units"]
    assert millimetres == {"unit": "mm", "band": [10, 50], "many": [0, 1]}
    none = measures_of({"x:box": sizes}, "fields: {x: {role: points, shape: [P, 3], size: 1..5}}")
    assert none["size (diagonal)"]["units"] == []


def test_samples_that_would_be_allowed_in_another_unit_are_counted_split_by_split_and_not_by_bins():
    rng = np.random.default_rng(3)
    sizes = np.concatenate(
        [rng.uniform(0.3, 0.5, 900), rng.uniform(240, 560, 100), [39.37 * 0.3, 1e7]]
    )
    rows, _ = table(len(sizes), 0)
    rows.columns["x:box"] = Measured(sizes, np.ones(len(sizes), bool))
    rows.splits = Texts.of(["a", "b", "b"] * 334)
    schema = parse_schema(
        "datacheck: 1\nname: n\nsamples: {files: '*'}\n"
        "fields: {x: {role: points, shape: [P, 3], unit: m, size: 0.25..0.45}}\n"
    )
    (x,) = (one for one in fields(rows, schema, np.zeros(len(sizes), bool)) if one["name"] == "x")
    (measure,) = x["measures"]
    of_a = np.arange(len(sizes)) % 3 == 0
    asked = [(one["unit"], one["many"]) for one in measure["units"]]
    assert asked == [
        (
            unit,
            [
                np.count_nonzero(mask & (sizes >= 0.25 * by) & (sizes <= 0.45 * by))
                for mask in (of_a, ~of_a)
            ],
        )
        for unit, by in (("mm", 1000), ("in", 1 / 0.0254))
    ]


EPISODES = "fields: {a: {role: action, shape: [T, 3]}, p: {role: position, shape: [T, 3]}}\n"
LENGTHS = [50, 63, 64, 65, 90, 100, 120, 64, 63, 200]


@pytest.mark.parametrize(
    ("windows", "below"),
    [
        ("{length: 64}", "without a window"),
        ("{length: 64, pad: edge}", "padded"),
        ("{length: 64, short: pad}", "padded"),
        ("{length: 64, short: raise}", "an error in the loader"),
    ],
)
def test_lengths_of_episodes_have_the_window_as_a_line_and_count_what_is_shorter(windows, below):
    dims = np.stack([LENGTHS, np.full(10, 3)], axis=1)
    many = {
        f"a:{stat}": np.arange(10.0)
        for stat in ("p99", "norm", "near", "angle", "reach", "peak", "leap")
    }
    said = measures_of(
        many | {"a:dims": dims}, f"{EPISODES}windows: {windows}\nepisode: {{length: 60..}}"
    )
    assert next(iter(said)) == "episode length"
    line = {"at": 63.5, "name": "window 64", "less": "shorter", "below": below, "many": 3}
    assert said["episode length"]["marks"] == [line]
    assert (said["episode length"]["band"], said["episode length"]["unit"]) == ([60, None], "steps")
    assert all(one["marks"] == [] for name, one in said.items() if name != "episode length")


def test_without_windows_there_is_no_line_and_what_is_no_episode_has_no_length_of_one():
    dims = np.stack([LENGTHS, np.full(10, 3)], axis=1)
    said = measures_of({"a:dims": dims}, f"{EPISODES}episode: {{length: 60..150}}")[
        "episode length"
    ]
    assert (said["marks"], said["band"]) == ([], [60, 150])
    assert list(measures_of({"a:dims": dims}, EPISODES)) == ["length (first axis)"]
    assert list(measures_of({"p:dims": dims}, f"{EPISODES}windows: {{length: 64}}")) == [
        "length (first axis)"
    ]


SCENES = """\
fields:
  xyz: {role: points, shape: [P, 3], unit: m, size: 1..60, min_points: 9, up: z}
  zzz: {role: points, shape: [P, 3], unit: m}
  id: {role: instance, shape: [P]}
"""


def test_how_far_points_are_apart_has_the_voxel_of_the_loader_as_a_line():
    apart = np.array([0.001, 0.019, 0.02, 0.03, 0.04, 0.05, 0.06, 0.07, 0.08, 0.09])
    stats = (
        "box",
        "near",
        "norm",
        "min",
        "max",
        "front",
        "copies",
        "flatness",
        "lowest",
        "nonfinite",
    )
    many = {f"xyz:{stat}": np.arange(1.0, 11) for stat in stats} | {
        "xyz:dims": np.stack([np.arange(10)] * 2, axis=1)
    }
    said = measures_of(
        many | {"xyz:spacing": apart}, f"{SCENES}loader: {{voxel: 0.02, min_points: 5}}\n"
    )
    found = said["distance to the nearest point (median)"]
    assert (len(said), found["unit"], found["log"]) == (6, "m", True)
    assert found["marks"] == [
        {"at": 0.02, "name": "voxel 0.02", "less": "denser", "below": "thinned", "many": 2}
    ]
    for column, fields_ in (("xyz", SCENES), ("zzz", f"{SCENES}loader: {{voxel: 0.02}}\n")):
        (found,) = measures_of({f"{column}:spacing": apart}, fields_).values()
        assert found["marks"] == []


def test_what_is_declared_otherwise_for_a_split_is_not_said_of_all():
    schema = parse_schema(
        "datacheck: 1\nname: n\nsamples: {files: '{split}/*'}\n"
        "fields:\n  x: {role: points, shape: [P, 3], unit: m, size: 0.5..5, min_points: 9}\n"
        "  y: {role: points, shape: [P, 3], unit: m, size: 0.5..5}\n"
        "when:\n  split=val: {x: {unit: mm, size: 500..5000}}\n"
    )
    rows, _ = table(40, 0)
    rows.splits, whole = Texts.of(["train", "val"] * 20), np.ones(40, bool)
    sizes = np.where(np.arange(40) % 2, 1700.0, 1.7) + np.arange(40) / 100
    dims = np.stack([np.arange(40) + 9, np.full(40, 3)], axis=1)
    rows.columns.update(
        {
            "x:box": Measured(sizes, whole),
            "y:box": Measured(sizes, whole),
            "x:dims": Measured(dims, whole),
        }
    )
    said = {one["name"]: one for one in fields(rows, common_schema(schema), np.zeros(40, bool))}
    of = {(name, m["stat"]): m for name, one in said.items() for m in one["measures"]}
    box = of["x", "box"]
    assert (said["x"]["unit"], box["unit"], box["band"], box["units"]) == ("", "", None, [])
    assert (said["x"]["role"], of["x", "dims"]["band"]) == ("points", [9, None])
    assert (of["y", "box"]["unit"], of["y", "box"]["units"][0]["many"]) == ("m", [0, 20])
    plain = parse_schema(SCHEMA_TEXT)
    assert common_schema(plain) == plain
