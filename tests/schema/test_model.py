"""The schema model: written and read back without loss, per split, in parts, with folders in place."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from pydantic import ValidationError

from datacheck.errors import UsageError
from datacheck.rules import skeletons
from datacheck.schema.grammar import SKELETONS
from datacheck.schema.load import dump_schema, parse_schema
from datacheck.schema.model import FieldSpec, Range, Schema
from datacheck.schema.validate import check

_finite = st.floats(allow_nan=False, allow_infinity=False)
_words = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
_paths = _words.filter(lambda word: "\0" not in word)
_axes = st.sampled_from(["T", "P", "N", "no", "on", 0, 3, 7])


@st.composite
def _ranges(draw):
    low, high = sorted((draw(_finite), draw(_finite)))
    return Range(low=draw(st.sampled_from([low, None])), high=high)


_share = st.floats(0, 1) | st.integers(0, 1)
_common = {
    "optional": st.booleans(),
    "absent": st.booleans(),
    "at": _words,
    "finite": st.booleans(),
}
_numeric = _common | {
    "dtype": st.sampled_from(["float32", "uint8", "bool"]),
    "shape": st.lists(_axes, max_size=3).map(lambda a: ["T", *a]),
    "range": _ranges(),
    "sentinels": st.lists(_finite, max_size=3),
    "unit": st.sampled_from(["1", "px"]),
}
_fields = st.one_of(
    st.fixed_dictionaries({}, optional=_numeric),
    st.fixed_dictionaries(
        {"role": st.sampled_from(["points", "joints", "position"])},
        optional=_numeric
        | {"size": _ranges(), "distance": _ranges(), "centered": st.sampled_from(["no", "xy"])},
    ),
    st.fixed_dictionaries(
        {"role": st.just("class")},
        optional=_numeric
        | {
            "ignore": st.lists(st.integers(-300, 300), max_size=3),
            "classes": st.integers(1, 50)
            | _ranges()
            | st.lists(st.integers(-5, 50), min_size=1, max_size=3),
        },
    ),
    st.fixed_dictionaries(
        {"role": st.just("chat")},
        optional=_common
        | {
            "speakers": st.lists(_words, max_size=3),
            "train_on": _words,
            "min_trained_tokens": st.integers(1, 9),
        },
    ),
    st.fixed_dictionaries(
        {"role": st.just("flag")}, optional={"must_be": st.booleans() | st.integers(-3, 3)}
    ),
    st.just({"role": "instance", "min_instances": 1}),
)
_steps = st.permutations(
    [("clip", 100), ("voxel", 0.02), ("drop_classes", [0, 3]), ("min_points", 10)]
)
_rules = st.dictionaries(
    st.from_regex(r"DC\d{3}", fullmatch=True),
    st.fixed_dictionaries(
        {},
        optional={
            "severity": st.sampled_from(["error", "warning", "info", "off"]),
            "allow": _share,
            "least": _finite,
            "name": _words,
        },
    ),
    max_size=3,
)
_schemas = st.fixed_dictionaries(
    {
        "datacheck": st.just(1),
        "name": st.from_regex(r"[A-Za-z0-9][\w.-]{0,20}", fullmatch=True),
        "samples": st.fixed_dictionaries(
            {"files": st.just(["{split}/{id}.npy"])},
            optional={
                "group": st.just("{id}"),
                "each": st.sampled_from(["line", "row", "/a/b_*", "ends:meta/ends"]),
            },
        ),
        "fields": st.dictionaries(
            st.from_regex(r"[A-Za-z_0-9][A-Za-z_0-9/ ]{0,9}", fullmatch=True), _fields, max_size=4
        ).map(
            lambda fields: (
                fields
                | {
                    "label": {"role": "class"},
                    "xyz": {"role": "points", "shape": ["T", 3]},
                    "ids": {"role": "instance"},
                }
            )
        ),
    },
    optional={
        "attrs": st.dictionaries(_words, st.sampled_from(["T", 4]), max_size=2),
        "episode": st.fixed_dictionaries(
            {}, optional={"fps": st.floats(0.1, 1e3), "length": _ranges(), "max_idle": _share}
        ),
        "windows": st.fixed_dictionaries(
            {"length": st.integers(1, 99)}, optional={"pad": st.sampled_from(["none", "edge"])}
        ),
        "loader": _steps.map(dict),
        "tokenizer": st.fixed_dictionaries(
            {}, optional={"path": _paths, "vocab": st.integers(1, 9), "start": _words}
        ),
        "duplicates": st.fixed_dictionaries(
            {}, optional={"exact": st.sampled_from(["error", "off", "info"])}
        ),
        "splits": st.fixed_dictionaries(
            {"key": st.just("id")},
            optional={"match": st.just(r"^\d+"), "disjoint": st.just(["no", "on"])},
        ),
        "when": st.just({"split=test": {"label": "absent", "xyz": {"shape": [3]}}}),
        "rules": _rules,
        "roots": st.just({"meshes": "meshes"}),
    },
)


@given(_schemas)
def test_a_schema_written_as_yaml_is_read_back_equal(data):
    schema = Schema.model_validate(data)
    assume(not check(schema))
    again = parse_schema(dump_schema(schema))
    assert again == schema
    assert again.digest == schema.digest
    assert list(again.fields) == list(schema.fields)
    assert (again.loader and again.loader.steps) == (schema.loader and schema.loader.steps)


@pytest.mark.parametrize(
    "text",
    [
        "\x85",
        "a\u2028b",
        "\ufeff",
        " ",
        "\n",
        "no",
        "1e3",
        "0777",
        "2024-01-01",
        "手",
        "=",
        "<<",
        "'",
    ],
)
def test_text_that_yaml_treats_specially_is_read_back_equal(text):
    schema = _schema(fields={"a": {"at": text}}, tokenizer={"start": text})
    assert parse_schema(dump_schema(schema)).fields["a"].at == text
    assert parse_schema(dump_schema(schema)).tokenizer.start == text


def _schema(**keys):
    return Schema.model_validate(
        {"datacheck": 1, "name": "x", "samples": {"files": "{split}/{id}.npy"}} | keys
    )


def test_defaults_are_no_part_of_the_digest_and_the_order_of_loader_steps_is():
    assert _schema(fields={"a": {"optional": False}}).digest == _schema(fields={"a": {}}).digest
    steps = {"clip": 10, "voxel": 0.02}
    turned = dict(reversed(steps.items()))
    assert _schema(loader=steps).digest != _schema(loader=turned).digest


def test_a_split_changes_only_the_fields_that_it_names():
    schema = _schema(
        fields={
            "joints": {"role": "joints", "shape": [21, 3], "unit": "m"},
            "pose": {},
            "beta": {},
        },
        when={
            "split=evaluation": {"joints": {"shape": [3]}, "pose": "absent", "box": {"shape": [4]}}
        },
    )
    held = schema.for_split("evaluation")
    assert schema.for_split("train") is schema
    assert (held.fields["joints"].shape, held.fields["joints"].unit) == ((3,), "m")
    assert held.fields["pose"].absent
    assert not held.fields["beta"].absent
    assert held.fields["box"].shape == (4,)
    assert held.for_split("evaluation") == held


def test_a_split_may_set_a_key_back_to_its_default():
    schema = _schema(
        fields={"label": {"role": "class", "ignore": [255], "optional": True}},
        when={"split=test": {"label": {"ignore": [], "optional": False}}},
    )
    again = parse_schema(dump_schema(schema))
    assert (
        again.digest
        == schema.digest
        != _schema(fields={"label": {"role": "class", "ignore": [255]}}).digest
    )
    for one in (schema, again):
        held = one.for_split("test").fields["label"]
        assert (held.ignore, held.optional) == ((), False)


def test_parts_of_a_field_are_not_stored_and_have_their_own_description():
    schema = _schema(
        fields={
            "grasp": {"shape": ["G", 23], "columns": "pos:3 quat:4 joints:16"},
            "grasp.quat": {"role": "quaternion"},
            "a.b": {},
            "*": {"finite": False},
        }
    )
    assert schema.parts("grasp") == {"pos": (0, 3), "quat": (3, 7), "joints": (7, 23)}
    assert schema.part_of("grasp.quat") == ("grasp", (3, 7))
    assert schema.part_of("a.b") is None
    assert list(schema.stored) == ["grasp", "a.b"]
    assert schema.spec("grasp.quat").role == "quaternion"
    assert schema.spec("unlisted").finite is False
    assert _schema().spec("unlisted") == FieldSpec()


def test_an_extra_folder_that_was_not_given_is_looked_for_below_the_data():
    schema = _schema(
        roots={"objects": "assets/objects", "other": ""},
        fields={
            "mesh": {"file": "{objects}/{id}.obj"},
            "far": {"file": "{other}/{id}.txt"},
            "near": {"file": "near/{id}.txt"},
        },
        when={"split=test": {"mesh": {"file": "{objects}/{id}.ply"}, "far": "absent"}},
    )
    here = schema.placed([])
    assert {n: s.file for n, s in here.fields.items()} == {
        "mesh": "assets/objects/{id}.obj",
        "far": "{other}/{id}.txt",
        "near": "near/{id}.txt",
    }
    assert here.for_split("test").fields["mesh"].file == "assets/objects/{id}.ply"
    assert schema.placed(["objects", "other"]) is schema
    with pytest.raises(
        UsageError, match=r"no extra folder called 'object'. Did you mean 'objects'\?"
    ):
        schema.placed(["object"])


def test_the_skeletons_of_the_language_are_those_that_the_rules_know():
    assert set(skeletons.SKELETONS) == SKELETONS
    with pytest.raises(
        ValidationError, match=r"'mano21_ho3' is not a known skeleton. Did you mean 'mano21_ho3d'\?"
    ):
        FieldSpec(skeleton="mano21_ho3")


def test_a_tokenizer_is_looked_for_in_the_data_folder(tmp_path):
    schema = _schema(tokenizer={"path": "../model", "vocab": 6400})
    assert schema.placed([]).tokenizer.path == "../model"
    assert schema.placed([], tmp_path / "dataset").tokenizer.path == str(tmp_path / "model")
    assert schema.placed([], tmp_path / "dataset").tokenizer.vocab == 6400
    absolute = _schema(tokenizer={"path": str(tmp_path)})
    assert absolute.placed([], tmp_path / "dataset").tokenizer.path == str(tmp_path)
    assert _schema().placed([], tmp_path) == _schema()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("name", ".."),
        ("name", "a/b"),
        ("name", ""),
        ("loader", {"voxel": True}),
        ("loader", {"voxel": 0}),
        ("loader", {"clip": 1.5}),
        ("loader", {"drop_classes": ["wall"]}),
        ("loader", {"shuffle": 1}),
        ("splits", {"key": "id", "match": "("}),
        ("when", {"split=a": {"x": "gone"}}),
        ("episode", {"max_idle": "120%"}),
        ("samples", {"files": "a\0"}),
        ("samples", {"files": "{a}.npy", "list": {"x": "a\0"}}),
        ("roots", {"r": "a\0"}),
        ("tokenizer", {"path": "a\0"}),
        ("fields", {"x": {"stats": {"file": "a\0"}}}),
        ("episode", {"fps": 0}),
        ("episode", {"fps": 9e-7}),
        ("episode", {"fps": 1.1e9}),
        ("rules", {"DC221": {"ignore": ["k"]}}),
        ("columns", ""),
        ("datacheck", 2),
    ],
)
def test_what_means_nothing_is_refused(key, value):
    with pytest.raises(ValidationError):
        _schema(**{key: value})


@pytest.mark.parametrize("number", [float("inf"), float("-inf"), float("nan")])
@pytest.mark.parametrize(
    ("key", "within"),
    [
        ("episode", lambda n: {"fps": n}),
        ("loader", lambda n: {"voxel": n}),
        ("fields", lambda n: {"x": {"scale": n}}),
        ("fields", lambda n: {"x": {"max_speed": n}}),
        ("fields", lambda n: {"x": {"sentinels": [n]}}),
        ("fields", lambda n: {"x": {"values": [0, n]}}),
        ("fields", lambda n: {"x": {"channels": [n]}}),
        ("fields", lambda n: {"x": {"stats": {"std": [n]}}}),
        ("duplicates", lambda n: {"near": n}),
        ("rules", lambda n: {"DC221": {"allow": n}}),
    ],
)
def test_numbers_that_are_not_finite_are_refused_as_they_are_in_a_file(key, within, number):
    _schema(**{key: within(0.5)})
    with pytest.raises(ValidationError):
        _schema(**{key: within(number)})
    with pytest.raises(ValidationError):
        Range(low=0, high=number)


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [
        ("0.02..0.4", 0.02, 0.4),
        ("10..", 10.0, None),
        ("..5", None, 5.0),
        ("-1..1", -1.0, 1.0),
        ("1e-3 .. 2", 0.001, 2.0),
    ],
)
def test_a_range_is_closed_and_either_end_may_be_open(text, low, high):
    found = FieldSpec(range=text).range
    assert (found.low, found.high) == (low, high)


def test_a_wide_number_keeps_its_digits_in_a_range():
    assert str(Range(low=0.1 + 0.2, high=1e300)) == "0.30000000000000004..1e+300"
    assert str(Range(low=-3.0, high=None)) == "-3.."
