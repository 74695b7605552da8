"""Statistics of a normaliser are read from the file that a schema names, or the request is refused with a reason."""

import json

import pytest

from datacheck.errors import UsageError
from datacheck.sources import with_stats
from tests.sources.schemas import schema

HELD = {
    "observation.state": {"mean": [0.5, 1.0], "std": [2.0, 3.0], "count": [100]},
    "libero": {"state_mean": [1, 2], "state_std": [3, 4]},
    "mean": 0.25,
    "words": {"mean": ["a"]},
    "bad": {"mean": [1.0, None]},
}


def stats(folder, said, text=None, name="stats.json"):
    (folder / name).write_text(json.dumps(HELD) if text is None else text)
    spec = schema("*.npy", {"a": {"shape": ["T", 2], "stats": {"file": name} | said}})
    return with_stats(spec, folder, {})[0].fields["a"].stats


@pytest.mark.parametrize(
    ("at", "mean", "std"),
    [
        ("observation.state", (0.5, 1.0), (2.0, 3.0)),
        ("libero/state", (1.0, 2.0), (3.0, 4.0)),
        (None, (0.25,), ()),
    ],
)
def test_where_the_statistics_may_stand(tmp_path, at, mean, std):
    found = stats(tmp_path, {"at": at} if at else {})
    assert (found.mean, found.std) == (mean, std)


def test_what_the_schema_says_counts_before_the_file(tmp_path):
    found = stats(tmp_path, {"at": "observation.state", "std": [1.0, 1.0]})
    assert (found.mean, found.std) == ((0.5, 1.0), (1.0, 1.0))


def test_yaml_and_an_extra_folder(tmp_path):
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "color.yaml").write_text("mean: [0.1, 0.2]\nstd: [1, 2]\n")
    spec = schema(
        "*.npy",
        {"a": {"shape": ["T", 2], "stats": {"file": "{extra}/color.yaml"}}},
        roots={"extra": ""},
    )
    found = with_stats(spec, tmp_path, {"extra": tmp_path / "more"})[0].fields["a"].stats
    assert (found.mean, found.std) == ((0.1, 0.2), (1.0, 2.0))


@pytest.mark.parametrize(
    ("said", "text", "message"),
    [
        ({}, "{broken", "stats.json: not JSON"),
        (
            {"at": "nothing"},
            None,
            "holds no mean, std, min, max at 'nothing'; it holds bad, libero, mean",
        ),
        ({"at": "words"}, None, "is no list of numbers"),
        ({"at": "bad"}, None, "holds NaN or infinity"),
        ({}, '{"mean": []}', "is empty"),
    ],
)
def test_a_file_that_does_not_hold_them_is_refused(tmp_path, said, text, message):
    with pytest.raises(UsageError, match=r"mine, fields\.a\.stats: stats\.json") as caught:
        stats(tmp_path, said, text)
    assert message in str(caught.value)


def test_a_file_that_is_not_there_is_refused(tmp_path):
    spec = schema("*.npy", {"a": {"stats": {"file": "none.json"}}})
    with pytest.raises(UsageError, match=r"fields.a.stats: none.json: .*Name a JSON or YAML file"):
        with_stats(spec, tmp_path, {})


def optional(folder):
    return with_stats(
        schema(
            "*.npy", {"a": {"shape": ["T", 2], "stats": {"file": "stats.json", "optional": True}}}
        ),
        folder,
        {},
    )


def test_an_optional_file_that_is_not_there_leaves_the_field_without_statistics(tmp_path):
    found, notes = optional(tmp_path)
    assert (found.fields["a"].stats, notes) == (None, [])


def test_an_optional_file_counts_where_it_is_there(tmp_path):
    (tmp_path / "stats.json").write_text('{"mean": [3, 4]}')
    found, notes = optional(tmp_path)
    assert (found.fields["a"].stats.mean, notes) == ((3.0, 4.0), [])


def test_an_optional_file_that_is_damaged_is_a_finding_and_ends_nothing(tmp_path):
    (tmp_path / "stats.json").write_text('{"mean": "a"}')
    found, (note,) = optional(tmp_path)
    assert (found.fields["a"].stats.mean, note.code, note.about) == ((), "DC228", {"field": "a"})
    assert "is no list of numbers" in note.reason


def test_a_schema_without_files_is_left_as_it_is(tmp_path):
    spec = schema("*.npy", {"a": {"stats": {"mean": [1.0]}}})
    assert with_stats(spec, tmp_path, {})[0] is spec
