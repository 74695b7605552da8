"""Reading YAML: every fault is refused at its line, in words; what is accepted comes back unchanged."""

import json
import re
import textwrap

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from datacheck.errors import SchemaError, StorageError, UsageError
from datacheck.schema import load
from datacheck.schema.load import builtin_folder, choose_schema, load_schema, parse_schema
from datacheck.schema.yaml_text import read_yaml

FOUR_LINES = """\
datacheck: 1
name: clouds
samples: {files: "*.npy"}
fields: {points: {role: points, shape: [P, 3]}}
"""


def refused(text: str) -> list[str]:
    with pytest.raises(SchemaError) as caught:
        parse_schema(textwrap.dedent(text), "s.yaml")
    assert caught.value.exit_code == 2
    return str(caught.value).split("\n")


def test_a_folder_of_arrays_needs_four_lines():
    schema = parse_schema(FOUR_LINES)
    assert schema.samples.files == ("*.npy",)
    assert schema.fields["points"].shape == ("P", 3)
    assert schema.fields["points"].ragged == "P"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "{role: transform, shape: [G, 4x4]}",
            "shape: cannot read axis '4x4' in [G, 4x4]; axes are names or integers of 0 or more. "
            "Did you mean [G, 4, 4]?",
        ),
        (
            "{shape: [-1, 3]}",
            "shape: cannot read axis -1 in [-1, 3]; axes are names or integers of 0 or more",
        ),
        (
            "{shape: [1.5]}",
            "shape: cannot read axis 1.5 in [1.5]; axes are names or integers of 0 or more",
        ),
        ("{shape: T}", "shape: found the text 'T'; a list is allowed. Did you mean [T]?"),
        ("{role: point}", "role: 'point' is not a known role. Did you mean 'points'?"),
        ("{role: points, unit: mmm}", "unit: 'mmm' is not a known unit. Did you mean 'mm'?"),
        ("{dtype: float}", "dtype: 'float' is not a known dtype. Did you mean 'float64'?"),
        ("{role: points, centred: xy}", "centred: unknown key 'centred'. Did you mean 'centered'?"),
        (
            "{role: points, size: 0.8..0.2}",
            "size: low end 0.8 is above high end 0.2. Did you mean 0.2..0.8?",
        ),
        ("{range: 5}", "range: 5 is not a range; write low..high, for example 0.02..0.4"),
        ("{range: a..b}", "range: 'a..b' is not a range; write low..high, for example 0.02..0.4"),
        (
            "{range: 0..nan}",
            "range: '0..nan' is not a range; write low..high, for example 0.02..0.4",
        ),
        (
            "{range: ..}",
            "range: '..' is open on both sides; write at least one end, for example 10..",
        ),
        ("{optional: maybe}", "optional: found the text 'maybe'; true or false is allowed"),
        (
            '{optional: "yes"}',
            "optional: found the text 'yes'; true or false is allowed. Did you mean true?",
        ),
        (
            "{role: points, min_points: 1e400}",
            "min_points: found the text '1e400'; a whole number is allowed",
        ),
        (
            "{role: points, min_points: 1e3}",
            "min_points: found the text '1e3'; a whole number is allowed. Did you mean 1000?",
        ),
        (
            "{role: points, min_points: 0}",
            "min_points: found the number 0; a number above 0 is allowed",
        ),
        (
            "{role: class, ignore: -1}",
            "ignore: found the number -1; a list is allowed. Did you mean [-1]?",
        ),
        ("{role: class, ignore: [a]}", "ignore[0]: found the text 'a'; a whole number is allowed"),
        (
            "{role: class, classes: many}",
            "classes: cannot read classes 'many'; write a count (20), a range (0..40) or a list ([1, "
            "3, 7])",
        ),
        (
            "{role: quaternion, order: wxzy}",
            "order: found the text 'wxzy'; allowed: wxyz, xyzw. Did you mean 'wxyz'?",
        ),
        (
            "{role: flag, must_be: 'on'}",
            "must_be: cannot require 'on'; allowed are true, false or an integer",
        ),
        (
            '{columns: "pos:3 pos:4"}',
            "columns: 'pos' is given twice in 'pos:3 pos:4'; each column needs a name of its own",
        ),
        (
            '{columns: "pos:0"}',
            "columns: cannot read 'pos:0' in 'pos:0'; columns are written name or name:count, for "
            "example pos:3 quat:4",
        ),
        (
            '{file: "x\\0.npy"}',
            "file: 'x\\x00.npy' has a NUL character, which no file name can have; leave it out",
        ),
        ("{at: 3}", "at: found the number 3; text is allowed: put it in quotes"),
        (
            "{at: no}",
            "at: found false (a bare false, no or off); text is allowed: put it in quotes",
        ),
        ("{file: {id}.npy}", None),
        (
            "{file: {id: x}}",
            "file: found a mapping; text is allowed. Put text with braces in quotes",
        ),
        ("points", "found the text 'points'; a mapping of keys is allowed"),
        ("", "found nothing; a mapping of keys is allowed; write {} for one without keys"),
    ],
)
def test_a_wrong_field_is_refused_at_its_line_with_what_is_allowed(line, expected):
    said = refused(
        f"datacheck: 1\nname: x\nsamples: {{files: '*.npy'}}\nfields:\n  other: {{}}\n  grasps: "
        f"{line}\n"
    )
    if expected is None:
        assert said[0].startswith("s.yaml:6: not valid YAML: ")
        return
    dot = "." if re.match(r"[a-z_]+(\[\d+\])?: ", expected) else ": "
    assert said == [f"s.yaml:6, fields.grasps{dot}{expected}"]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("samples: {files: '*.npz'}", "samples: this key is given twice, first on line 3"),
        (
            "a: 0777",
            "a: YAML reads 0777 as an octal, binary or hexadecimal number; write a decimal number, "
            "or quotes for text",
        ),
        (
            "a: 0x1F",
            "a: YAML reads 0x1F as an octal, binary or hexadecimal number; write a decimal number, "
            "or quotes for text",
        ),
        (
            "a: 1:30",
            "a: YAML reads 1:30 as a number to the base 60; write a decimal number, or quotes for "
            "text",
        ),
        (
            "a: 2024-01-01",
            "a: YAML reads 2024-01-01 as a date; write a decimal number, or quotes for text",
        ),
        (
            "a: 1_000",
            "a: YAML reads 1_000 as a number without the _; write a decimal number, or quotes for "
            "text",
        ),
        (
            "a: .inf",
            "a: YAML reads .inf as a number that is not finite; write a decimal number, or quotes "
            "for text",
        ),
        (
            "a: .nan",
            "a: YAML reads .nan as a number that is not finite; write a decimal number, or quotes "
            "for text",
        ),
        (
            "a: 1.0e+999",
            "a: YAML reads 1.0e+999 as a number that is not finite; write a decimal number, or "
            "quotes for text",
        ),
        ("a: 1" + "0" * 5000, None),
        ("on: 3", "on: YAML does not read the key on as text; put it in quotes: 'on'"),
        ("3: x", "3: YAML does not read the key 3 as text; put it in quotes: '3'"),
        (
            "a: !!python/object/apply:os.system [ls]",
            "a: the tag tag:yaml.org,2002:python/object/apply:os.system is not allowed; write "
            "plain values",
        ),
        (
            "a: !!binary aGk=",
            "a: the tag tag:yaml.org,2002:binary is not allowed; write plain values",
        ),
        ("a: *b", "a: the alias *b has no anchor &b that ends above it"),
        ("a: &a [*a]", "a[0]: the alias *a has no anchor &a that ends above it"),
        (
            "{a: 1}: x",
            "a key is text; found a list, a mapping or an alias as key. Put text with braces in "
            "quotes",
        ),
        ("<<: {a: 1}", "merge keys (<<) are not supported; repeat the keys, or use extends"),
        ("a: " + "[" * 20 + "]" * 20, None),
    ],
)
def test_what_yaml_would_quietly_change_is_refused_at_its_line(text, line):
    said = refused(f"datacheck: 1\nname: x\nsamples: {{files: '*.npy'}}\n{text}\n")
    if line is None:
        assert re.match(
            r"s.yaml:4, a.*: (YAML reads 10+ as a number of more than 18 digits|more than 12 levels)",
            said[0],
        )
        return
    dot = ": " if " " in line.split(":")[0] else ", "
    assert said[0] == f"s.yaml:4{dot}{line}"


def test_a_second_document_is_refused():
    assert refused("datacheck: 1\n---\nname: x\n") == [
        "s.yaml:2: a second document (---) begins here; one file holds one"
    ]


@pytest.mark.parametrize("text", ["", "# nothing\n", "- a\n- b\n", "text"])
def test_a_file_without_keys_is_refused(text):
    assert refused(text) == ["s.yaml:1: found no keys; a file starts with datacheck: 1"]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("datacheck: 1\nname: [x\n", 3),
        ("datacheck: 1\n\tname: x\n", 2),
        ("datacheck: 1\nname: 'x\n", 3),
        ("datacheck: 1\nname: a: b\n", 2),
        ("datacheck: 1\nname: \x01\n", 2),
        ('datacheck: 1\nname: "\\UFFFFFFFF"\n', 2),
        ('datacheck: 1\nname: "\\uD83D"\n', 2),
    ],
)
def test_a_syntax_error_names_its_line(text, line):
    assert refused(text)[0].startswith(f"s.yaml:{line}: not valid YAML: ")


def test_aliases_are_counted_as_often_as_they_are_used():
    bomb = "a0: &a0 [1, 2, 3, 4, 5, 6, 7, 8, 9]\n"
    bomb += "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 9))
    # values up to a3: 1 + 10 + (1 + 9 * 11) + (1 + 9 * 101) + (1 + 9 * 911) = 9,221; the next use
    # of a3 adds 8,201
    assert refused(bomb) == ["s.yaml:5, a4[0]: more than 10000 values; each use of an alias counts"]


def test_an_alias_is_a_copy():
    data, lines = read_yaml("a: &x {b: [1]}\nc: *x\n", "f")
    assert data == {"a": {"b": [1]}, "c": {"b": [1]}}
    data["a"]["b"].append(2)
    assert data["c"] == {"b": [1]}
    assert str(lines["a", "b", 0]) == "f:1"
    assert str(lines["c",]) == "f:2"


@pytest.mark.parametrize(
    ("fps", "allowed"),
    [("1.0e-309", "a number of at least 1e-06"), ("1.0e+12", "a number of at most 1000000000.0")],
)
def test_a_rate_is_one_of_which_a_step_of_time_can_be_told(fps, allowed):
    said = refused(f"datacheck: 1\nname: x\nsamples: {{files: '*.npy'}}\nepisode: {{fps: {fps}}}\n")
    assert said == [f"s.yaml:4, episode.fps: found the number {float(fps)}; {allowed} is allowed"]


def test_several_faults_are_all_listed_in_line_order():
    said = refused("""\
        datacheck: 2
        nme: x
        extend: scannet
        samples: {files: "{a}.npy", each: line}
        windows: {length: 0, pad: edges}
        rules: {DC222: warnig, DC999: {ignore: [a]}}
        """)
    assert said == [
        "s.yaml:1: name is missing; it is required",
        "s.yaml:1, datacheck: found the number 2; allowed: 1",
        "s.yaml:2, nme: unknown key 'nme'. Did you mean 'name'?",
        "s.yaml:3, extend: unknown key 'extend'. Did you mean 'extends'?",
        "s.yaml:5, windows.length: found the number 0; a number above 0 is allowed",
        "s.yaml:5, windows.pad: found the text 'edges'; allowed: none, edge, zero. Did you mean "
        "'edge'?",
        "s.yaml:6, rules.DC222: found the text 'warnig'; allowed: error, warning, info, off. Did "
        "you mean 'warning'?",
        "s.yaml:6, rules.DC999: ignore needs a reason: reason: giant object, checked by lin "
        "2026-11-20",
    ]


def test_a_bare_off_and_no_are_accepted_where_they_are_words_of_the_language():
    schema = parse_schema(
        "datacheck: 1\nname: x\nsamples: {files: '*.npy'}\nduplicates: {exact: off}\n"
        "fields: {p: {role: points, centered: no}}\nrules: {DC227: off, DC221: warning, DC201: "
        "{allow: 0.5%}}\n"
    )
    assert schema.rules["DC227"].severity == "off"
    assert schema.rules["DC221"].severity == "warning"
    assert schema.rules["DC201"].allow == 0.005
    assert schema.duplicates.exact == "off"
    assert schema.fields["p"].centered == "no"


def test_a_check_that_names_no_function_is_refused():
    assert refused(FOUR_LINES + "checks: [mine.check]\n") == [
        "s.yaml:5, checks: cannot read 'mine.check'; a check is written package.module:function"
    ]


def test_what_else_is_wrong_with_a_schema_is_said_at_its_line():
    with pytest.raises(SchemaError) as caught:
        parse_schema(
            FOUR_LINES + "rules:\n  DC999: off\n",
            "s.yaml",
            lambda schema: [(("rules", "DC999"), "no such rule")],
        )
    assert str(caught.value) == "s.yaml:6, rules.DC999: no such rule"


@given(st.text(max_size=60))
def test_any_text_is_either_read_or_refused_in_words(text):
    try:
        data, lines = read_yaml(text, "f")
    except SchemaError as error:
        said = str(error)
    else:
        said = "f:1"
        assert isinstance(data, dict)
        assert {(key,) for key in data} <= set(lines)
    assert re.match(r"f:\d+", said)


_plain = st.recursive(
    st.booleans()
    | st.integers(-(10**17), 10**17)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=8), _plain, min_size=1, max_size=4))
def test_what_pyyaml_writes_is_read_back_as_it_was(data):
    text = yaml.safe_dump(data, sort_keys=False, allow_unicode=True)
    if yaml.safe_load(text) != data:  # PyYAML itself loses some characters
        return
    assert read_yaml(text, "f")[0] == data


# ---------------------------------------------------------------------------------- files and names


def test_a_file_is_read_by_its_path(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("\ufeff" + FOUR_LINES, encoding="utf-8")
    assert load_schema(path).name == "clouds"
    assert load_schema(str(path)) == parse_schema(FOUR_LINES)


def test_an_unknown_name_lists_the_built_in_ones_with_a_suggestion():
    with pytest.raises(
        SchemaError,
        match=r"no schema is called 'scanet'; built in are aloha, .*Did you mean 'scannet'\?",
    ):
        load_schema("scanet")


@pytest.mark.parametrize("name", ["missing.yaml", "folder/missing"])
def test_a_missing_file_is_said_to_be_missing(name, tmp_path):
    with pytest.raises(SchemaError, match="no such file; a schema is a YAML file or one of aloha"):
        load_schema(str(tmp_path / name))


def test_a_folder_is_no_schema(tmp_path):
    with pytest.raises(SchemaError, match="is a folder; a schema is a YAML file"):
        load_schema(tmp_path)


def test_bytes_that_are_not_utf_8_are_refused_at_their_line(tmp_path):
    path = tmp_path / "s.yaml"
    path.write_bytes(b"datacheck: 1\nname: caf\xe9\n")
    with pytest.raises(SchemaError) as caught:
        load_schema(path)
    assert str(caught.value) == f"{path}:2: byte 22 is not UTF-8; save the file as UTF-8"


def test_a_file_of_data_is_refused_by_its_size(tmp_path):
    path = tmp_path / "s.yaml"
    path.write_bytes(b"#" * ((1 << 20) + 1))
    with pytest.raises(SchemaError, match="that is data, not a schema"):
        load_schema(path)


def test_an_installation_without_schemas_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(load, "__file__", str(tmp_path / "datacheck" / "schema" / "load.py"))
    with pytest.raises(
        StorageError, match=r"the built-in schemas are missing\. Install datacheck again"
    ):
        builtin_folder("schemas")


def test_the_wheel_s_schemas_come_before_the_checkout_s(tmp_path, monkeypatch):
    package = tmp_path / "datacheck"
    (package / "schema").mkdir(parents=True)
    (tmp_path / "schemas").mkdir()
    (tmp_path / "schemas" / "a.yaml").write_text("")
    monkeypatch.setattr(load, "__file__", str(package / "schema" / "load.py"))
    assert builtin_folder("schemas") == tmp_path / "schemas"
    (package / "schemas").mkdir()
    assert builtin_folder("schemas") == tmp_path / "schemas"  # an empty folder is no installation
    (package / "schemas" / "b.yaml").write_text("")
    assert builtin_folder("schemas") == package / "schemas"


# ------------------------------------------------------------------------------------------ extends


def test_a_base_s_keys_are_kept_replaced_and_removed(tmp_path):
    (tmp_path / "base.yaml").write_text(
        "datacheck: 1\nname: base\nsamples: {files: ['*.npy', '*.npz'], each: row}\n"
        "fields: {a: {role: points, shape: [P, 3], unit: m}, b: {role: class, shape: [P], ignore: "
        "[1, 2]}}\n"
        "rules: {DC221: off, DC222: {severity: error, allow: 0.1}}\n"
    )
    schema = load_schema(
        _written(
            tmp_path / "mine.yaml",
            """\
        datacheck: 1
        name: mine
        extends: base.yaml
        samples: {files: "*.bin", each: }
        fields: {a: {unit: mm}, b: {ignore: [3]}, c: {}}
        rules: {DC222: {allow: 0.2}}
        """,
        )
    )
    assert schema.name == "mine"
    assert schema.samples.files == ("*.bin",)
    assert schema.samples.each is None
    assert schema.fields["a"].unit == "mm"
    assert schema.fields["a"].shape == ("P", 3)
    assert schema.fields["b"].ignore == (3,)
    assert list(schema.fields) == ["a", "b", "c"]
    assert schema.rules["DC221"].severity == "off"
    assert (schema.rules["DC222"].severity, schema.rules["DC222"].allow) == ("error", 0.2)


def test_the_steps_of_a_loader_are_replaced_together_and_keep_their_order():
    text = (
        "datacheck: 1\nname: x\nextends: scannet\nloader: {min_points: 5, voxel: 0.1, clip: 10}\n"
    )
    assert parse_schema(text).loader.steps == (("min_points", 5), ("voxel", 0.1), ("clip", 10))


def test_a_fault_of_the_base_is_placed_in_the_base(tmp_path):
    base = _written(
        tmp_path / "base.yaml",
        "datacheck: 1\nname: b\nsamples: {files: '*'}\nfields:\n  a: {role: pts}\n",
    )
    with pytest.raises(SchemaError) as caught:
        parse_schema("datacheck: 1\nname: x\nextends: base.yaml\n", str(tmp_path / "mine.yaml"))
    assert str(caught.value).startswith(f"{base}:5, fields.a.role: 'pts' is not a known role")


def test_an_own_name_is_required_beside_a_base():
    assert refused("datacheck: 1\nextends: scannet\n") == [
        "s.yaml:1: name is missing; it is required"
    ]


def test_an_unknown_base_is_refused_with_a_suggestion():
    assert refused("datacheck: 1\nname: x\nextends: scanet\n") == [
        "s.yaml:3, extends: no schema 'scanet': it is neither built in nor a file relative to this one. Did "
        "you mean 'scannet'?"
    ]


def test_a_circle_of_bases_is_refused(tmp_path):
    for name, other in (("a", "b"), ("b", "a")):
        _written(tmp_path / f"{name}.yaml", f"datacheck: 1\nname: {name}\nextends: {other}.yaml\n")
    with pytest.raises(
        SchemaError,
        match=r"b.yaml:3, extends: 'a.yaml' extends itself: .*a.yaml -> .*b.yaml -> .*a.yaml",
    ):
        load_schema(tmp_path / "a.yaml")


def test_a_tower_of_bases_is_refused(tmp_path):
    for level in range(12):
        _written(
            tmp_path / f"s{level}.yaml",
            f"datacheck: 1\nname: s{level}\nextends: s{level + 1}.yaml\n",
        )
    with pytest.raises(
        SchemaError, match=r"s7.yaml:3, extends: more than 8 schemas extend one another"
    ):
        load_schema(tmp_path / "s0.yaml")


def _written(path, text):
    path.write_text(textwrap.dedent(text), encoding="utf-8")
    return path


# ----------------------------------------------------------------------------------------- choosing


def test_one_fitting_schema_is_chosen():
    assert choose_schema(lambda schema: 3 if schema.name == "ho3d" else 0).name == "ho3d"


def test_the_schema_for_any_folder_is_never_chosen():
    assert choose_schema(lambda schema: schema.name == "files") is None


def test_several_fitting_schemas_are_listed_with_their_files():
    counts = {"minimind_sft": 2, "libero": 1}
    with pytest.raises(UsageError) as caught:
        choose_schema(lambda schema: counts.get(schema.name, 0))
    assert "libero (1 file), minimind_sft (2 files)" in str(caught.value)
    # None by the number of its files
    assert str(caught.value).endswith(". Say what the data are: --schema NAME|FILE")


def test_fields_for_each_split_of_when_have_a_limit():
    def text(fields, splits):
        when = {f"split=s{n}": {"f0": {"optional": True}} for n in range(splits)}
        head = {"datacheck": 1, "name": "x", "samples": {"files": "{split}.npz"}, "when": when}
        return json.dumps(head | {"fields": {f"f{n}": {} for n in range(fields)}})

    assert len(parse_schema(text(100, 199)).when) == 199
    with pytest.raises(
        SchemaError,
        match=r"100 fields for 200 splits of when are 20,100 declarations; at most 20,000",
    ):
        parse_schema(text(100, 200))


def test_patterns_of_waivers_have_a_limit_and_keys_in_full_have_none():
    def text(*counts):
        rules = {
            code: {"ignore": [f"a/{n}*" for n in range(count)] + ["b/1", "c/2"], "reason": "x"}
            for code, count in zip(("DC101", "DC107"), counts, strict=True)
        }
        return json.dumps(
            {"datacheck": 1, "name": "x", "samples": {"files": "*.npz"}, "rules": rules}
        )

    assert len(parse_schema(text(1_000, 1_000)).rules["DC107"].ignore) == 1_002
    with pytest.raises(
        SchemaError,
        match=r"2,001 entries of ignore are patterns .*; at most 2,000 are allowed\. Write full keys",
    ):
        parse_schema(text(1_000, 1_001))


@pytest.mark.parametrize(
    ("fields", "whens", "letters", "said"),
    [
        (1_000, 0, 4, ""),
        (1_001, 0, 4, "1,001 fields; a schema declares at most 1,000, counting those of when"),
        (500, 501, 4, "1,001 fields; a schema declares at most 1,000"),
        (100, 0, 1_000, ""),
        (101, 0, 1_000, "101 fields with names of 101,000 bytes in all; .* at most 100,000,"),
    ],
)
def test_a_schema_declares_no_more_fields_than_a_table_of_a_scan_has_columns_for(
    fields, whens, letters, said
):
    names = [f"{n:0{letters}}" for n in range(fields + whens)]
    head = {"datacheck": 1, "name": "x", "samples": {"files": "*.npz"}}
    parts = [names[fields:][::2], names[fields:][1::2]]
    text = head | {
        "fields": {key: {} for key in names[:fields]},
        "when": {f"split={i}": {key: {} for key in p} for i, p in enumerate(parts) if p},
    }
    if not said:
        assert len(parse_schema(json.dumps(text)).fields) == fields
        return
    with pytest.raises(SchemaError, match=said):
        parse_schema(json.dumps(text))
