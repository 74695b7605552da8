"""What the parts of a schema must be to one another: each contradiction is refused at its line."""

# ruff: noqa: E501  messages are compared whole, one line each

import textwrap

import pytest

from datacheck.errors import SchemaError
from datacheck.schema.load import dump_schema, parse_schema
from datacheck.schema.model import Schema
from datacheck.schema.validate import check

HEAD = "datacheck: 1\nname: x\nsamples: {files: '{split}/{seq}/{id}.npz'}\n"
FIELDS = (
    HEAD
    + "fields:\n  xyz: {role: points, shape: [P, 3], unit: m}\n  cam: {role: intrinsics, shape: "
    "[3, 3]}\n"
)


def said(text):
    with pytest.raises(SchemaError) as caught:
        parse_schema(textwrap.dedent(text), "s.yaml")
    return str(caught.value)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("a: {role: text, range: 0..1}", "a.range: a field of text cannot have range"),
        (
            "a: {role: text, size: 0..1}",
            "a.size: a field with role text cannot have size; it is for joints, points, pose, "
            "position",
        ),
        (
            "a: {size: 0..1}",
            "a.size: a field with no role cannot have size; it is for joints, points, pose, "
            "position",
        ),
        (
            "a: {role: points, speakers: [user]}",
            "a.speakers: a field with role points cannot have speakers; it is for chat",
        ),
        (
            "a: {role: points, skeleton: mano21_ho3d}",
            "a.skeleton: a field with role points cannot have skeleton; it is for joints",
        ),
        (
            "a: {role: class, min_instances: 1}",
            "a.min_instances: a field with role class cannot have min_instances; it is for instance",
        ),
        ("a: {role: text, dtype: float32}", "a.dtype: role text needs text or json; found float32"),
        ("a: {role: points, dtype: json}", "a.dtype: role points needs numbers; found json"),
        (
            "a: {role: points, unit: rad}",
            "a.unit: rad is not a length, as role points needs; allowed are m, cm, mm, in, ft",
        ),
        (
            "a: {role: rotvec, unit: m}",
            "a.unit: m is not an angle, as role rotvec needs; allowed are rad, deg",
        ),
        (
            "a: {role: timestamp, unit: m}",
            "a.unit: m is not a time, as role timestamp needs; allowed are s, ms, us, ns",
        ),
        (
            "a: {role: quaternion, shape: [T, 3]}",
            "a.shape: the last axis of a quaternion has size 4; found 3",
        ),
        (
            "a: {shape: [G, 23], columns: 'pos:3 quat:4'}",
            "a.columns: 7 columns are named, but the last axis of the shape has size 23",
        ),
        (
            "a: {role: points, near: xzy}",
            "a.near: no other field is called 'xzy'. Did you mean 'xyz'?",
        ),
        ("a: {role: points, near: a}", "a.near: no other field is called 'a'; there are xyz, cam"),
        (
            "a: {role: points, near: cam}",
            "a.near: near needs a field of role joints, points, pose, position; cam has role "
            "intrinsics",
        ),
        (
            "a: {role: points, intrinsics: xyz}",
            "a.intrinsics: intrinsics needs a field of role intrinsics; xyz has role points",
        ),
        (
            "a: {file: 'x/{seqq}.txt'}",
            "a.file: unknown placeholder {seqq} in 'x/{seqq}.txt'. Did you mean 'seq'?",
        ),
        (
            "a: {file: '/etc/passwd'}",
            "a.file: cannot read '/etc/passwd': paths are relative to the data folder, without "
            "'.', '..' or empty parts. Patterns look like '{split}/{id}.npy'.",
        ),
        (
            "a: {file: '../{id}.txt'}",
            "a.file: cannot read '../{id}.txt': paths are relative to the data folder, without "
            "'.', '..' or empty parts. Patterns look like '{split}/{id}.npy'.",
        ),
        (
            "a: {file: 'b.json', at: '{sceen}'}",
            "a.at: unknown placeholder {sceen} in '{sceen}'; known are split, seq, id",
        ),
        ("xyz.x: {}", None),
        ("'*': {at: a}", "*.at: * stands for fields that are not listed and cannot have at"),
    ],
)
def test_a_field_that_contradicts_itself_or_others_is_refused(line, message):
    text = FIELDS + f"  {line}\n"
    if message is None:
        assert parse_schema(text).part_of("xyz.x") is None  # a field may have a dot in its name
    else:
        assert said(text) == f"s.yaml:7, fields.{message}"


def test_parts_must_be_columns_of_their_field_and_say_nothing_of_where_they_are():
    text = HEAD + "fields:\n  g: {shape: [G, 7], columns: 'pos:3 quat:4'}\n"
    assert (
        said(text + "  g.quad: {}\n")
        == "s.yaml:6, fields.g.quad: g has no column 'quad'. Did you mean 'quat'?"
    )
    assert (
        said(text + "  g.pos: {at: p}\n")
        == "s.yaml:6, fields.g.pos.at: g.pos is part of g and cannot have at"
    )


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (
            "samples: {files: []}",
            "3, samples.files: no pattern; name the files, for example '*.npy'",
        ),
        (
            "samples: {files: ''}",
            "3, samples.files: cannot read '': it is empty. Patterns look like '{split}/{id}.npy'.",
        ),
        (
            "samples: {files: 'a/../*.npy'}",
            "3, samples.files: cannot read 'a/../*.npy': paths are relative to the data folder, "
            "without '.', '..' or empty parts. Patterns look like '{split}/{id}.npy'.",
        ),
        (
            "samples: {files: '{a}.npy', group: '{b}'}",
            "3, samples.group: unknown placeholder {b} in '{b}'; known are a, file",
        ),
        (
            "samples: {files: '{a.npy'}",
            "3, samples.files: cannot read '{a.npy': a '{' is never closed. Patterns look like "
            "'{split}/{id}.npy'.",
        ),
        (
            "samples: {files: '{1a}.npy'}",
            "3, samples.files: cannot read '{1a}.npy': {1a} is not a name; write {name} or "
            "{name:regular expression}. Patterns look like '{split}/{id}.npy'.",
        ),
        (
            "samples: {files: '{a:(}.npy'}",
            "3, samples.files: cannot read '{a:(}.npy': its regular expression is malformed: "
            "missing ), unterminated subpattern at position 0. Patterns look like "
            "'{split}/{id}.npy'.",
        ),
        (
            "samples: {files: '{f:04d}.npy'}",
            r"3, samples.files: cannot read '{f:04d}.npy': {f:04d} is a print format; write {f:\d+} or {f:\d{4}}. Patterns look like '{split}/{id}.npy'.",
        ),
        (
            "samples: {files: '{a}{b}.npy'}",
            "3, samples.files: cannot read '{a}{b}.npy': the end of {a} is not clear; constrain the "
            "name: {a:train|val}. Patterns look like '{split}/{id}.npy'.",
        ),
        (
            "samples: {files: '{split}.npy', list: '{split}.txt'}",
            "3, samples.list: the lines of a list name what placeholders of files stand for, but the "
            "name of the list already uses all of them",
        ),
        (
            "samples: {files: '{a}.npy', list: '{spilt}.txt'}",
            "3, samples.list: unknown placeholder {spilt} in '{spilt}.txt'. Did you mean 'split'?",
        ),
        (
            "samples: {files: '{split}/{a}.npy', list: {val: '{split}.txt'}}",
            "3, samples.list.val: unknown placeholder {split} in '{split}.txt'; known are none",
        ),
        (
            "samples: {files: '{split}.npy', list: {val: val.txt}}",
            "3, samples.list: the lines of a list name what placeholders of files stand for, but the "
            "name of the list already uses all of them",
        ),
        (
            "samples: {files: '{split:train|validation}/{a}.npy', list: {val: val.txt}}",
            "3, samples.list.val: no pattern of files allows a split called 'val'",
        ),
        (
            "samples: {files: '{a}.npy', list: {val: 3}}",
            "3, samples.list: cannot read lists {'val': 3}; write a pattern ('{split}.txt') or a file "
            "for each split ({val: val_list.txt})",
        ),
        (
            "samples: {files: '{a}.npy', list: {}}",
            "3, samples.list: cannot read lists {}; write a pattern ('{split}.txt') or a file for "
            "each split ({val: val_list.txt})",
        ),
        (
            "samples: {files: '{split}/{a}.npy', list: '{split}.txt', counts: {n: P}}\nfields: {x: "
            "{shape: [P]}}",
            "3, samples.counts: only a YAML or JSON list has numbers to compare (.yaml, .yml, .json)",
        ),
        (
            "samples: {files: '{split}/{a}.npy', list: '{split}.yaml', counts: {n: Q}}\nfields: "
            "{x: {shape: [P]}}",
            "3, samples.counts.n: no field has an axis Q; there are P",
        ),
        (
            "samples: {files: '*.npz'}\nfields: {d: {role: depth, distance: 0..1}}",
            "4, fields.d.distance: a depth map needs both near and distance",
        ),
        (
            "samples: {files: '*.npz'}\nfields: {d: {role: image, channels: [1, 256]}}",
            "4, fields.d.channels: a field with role image cannot have channels; it is for depth",
        ),
        (
            "samples: {files: '*.npy', each: lines}",
            "3, samples.each: cannot read 'lines'; allowed are line, row, key, episode, "
            "/group/pattern_* and ends:path. Did you mean 'line'?",
        ),
        (
            "samples: {files: '*.npy', each: 'ends:'}",
            "3, samples.each: cannot read 'ends:'; allowed are line, row, key, episode, "
            "/group/pattern_* and ends:path",
        ),
        (
            "samples: {files: '{id}.npy'}\nroots: {id: ids}",
            "4, roots.id: found 'id'; the name of a root has letters, digits and _ only, and is no placeholder of files",
        ),
        (
            "samples: {files: '*.npy'}\nroots: {a: /data}",
            "4, roots.a: cannot read '/data': paths are relative to the data folder, without '.', "
            "'..' or empty parts. Patterns look like '{split}/{id}.npy'.",
        ),
        (
            "samples: {files: '{a}.npy'}\nsplits: {key: b}",
            "4, splits.key: 'b' is neither a placeholder of files, nor file, group or a field; "
            "known are a, file",
        ),
        (
            "samples: {files: '{a}.npy'}\nsplits: {key: group}",
            "4, splits.key: 'group' is neither a placeholder of files, nor file, group or a field; "
            "known are a, file",
        ),
        (
            "samples: {files: '{a}.npy'}\nsplits: {key: a, disjoint: [t, v]}",
            "4, splits.disjoint: there are no splits to compare: neither samples.files nor "
            "samples.list has a {split} placeholder",
        ),
        (
            "samples: {files: '*.npy'}\nwindows: {length: 4}",
            "4, windows: windows needs a field whose first axis is time: shape: [T, ...]",
        ),
        (
            "samples: {files: '*.npy'}\nepisode: {fps: 4}",
            "4, episode: episode needs a field whose first axis is time: shape: [T, ...]",
        ),
        (
            "samples: {files: '*.npy'}\nattrs: {count: T}",
            "4, attrs.count: no field has an axis T; there are none",
        ),
        (
            "samples: {files: '*.npy'}\nloader: {voxel: 0.1}",
            "4, loader: its steps count instances; declare the field that holds them with role: "
            "instance\ns.yaml:4, loader.voxel: this step needs a field of role points",
        ),
        (
            "samples: {files: '*.npy'}\nfields: {i: {role: instance}}\nloader: {captions: caps}",
            "5, loader.captions: 'caps' is not a field of role captions; there are none",
        ),
        (
            "samples: {files: '*.npy'}\nloader: {voxels: 0.1}",
            "4, loader: unknown step 'voxels'. Did you mean 'voxel'?",
        ),
        (
            "samples: {files: '*.npy'}\ncolumns: xyz:3 label\nfields: {xyz: {shape: [P, 4]}, "
            "label: {shape: [P]}}",
            "5, fields.xyz.shape: 4 columns in the shape, 3 in columns: write xyz:4 there or "
            "another shape here",
        ),
        (
            "samples: {files: '*.npy'}\nwhen: {split=test: {}}",
            "4, when.split=test: no sample has a split: neither samples.files nor samples.list has "
            "a {split} placeholder",
        ),
        (
            "samples: {files: '{split}.npy'}\nwhen: {test: {}}",
            "4, when.test: cannot read 'test'; a condition is written split=name, for example "
            "split=evaluation",
        ),
        (
            "samples: {files: '{split}.npy'}\nfields: {joints: {}}\nwhen: {split=test: {joint: "
            "absent}}",
            "5, when.split=test.joint: no field is called 'joint'. Did you mean 'joints'?",
        ),
        (
            "samples: {files: '{split}.npy'}\nfields: {a: {role: text}}\nwhen: {split=test: {a: "
            "{unit: m}}}",
            "5, when.split=test.a.unit: a field of text cannot have unit",
        ),
        (
            "samples: {files: '{split}.npy'}\nfields: {a: {}}\nwhen: {split=test: {a: {rol: text}}}",
            "5, when.split=test.a.rol: unknown key 'rol'. Did you mean 'role'?",
        ),
        (
            "samples: {files: '{split}.npy'}\nfields: {a: {}}\nwhen:\n  split=test:\n    a: {size: "
            "2..1}",
            "7, when.split=test.a.size: low end 2 is above high end 1. Did you mean 1..2?",
        ),
        (
            "samples: {files: '*.npy'}\nrules: {non-finite: off}",
            "4, rules.non-finite: cannot read 'non-finite'; a rule is named by its code, for "
            "example DC221",
        ),
    ],
)
def test_sections_that_do_not_fit_together_are_refused(lines, message):
    assert said(f"datacheck: 1\nname: x\n{lines}\n") == f"s.yaml:{message}"


def test_a_new_field_of_one_split_needs_a_description_of_its_own():
    text = HEAD + "when: {split=test: {box: {shape: [4]}}}\n"
    assert parse_schema(text).for_split("test").fields["box"].shape == (4,)


def test_splits_may_come_from_the_lists_alone():
    schema = parse_schema(
        "datacheck: 1\nname: x\nsamples: {files: 'all/{id}.npy', list: '{split}.txt'}\n"
        "fields: {a: {shape: [3]}}\nsplits: {key: id, disjoint: [train, val]}\nwhen: {split=val: "
        "{a: {shape: [4]}}}\n"
    )
    assert schema.for_split("val").fields["a"].shape == (4,)


def test_groups_inside_a_file_have_placeholders_too():
    text = (
        "datacheck: 1\nname: x\nsamples: {files: '*.h5', each: '/{id:\\d+}'}\nsplits: {key: id}\n"
    )
    assert parse_schema(text).splits.key == "id"


@pytest.mark.parametrize(
    ("samples", "field", "wrong"),
    [
        ({"files": "*.hdf5", "each": "/data/*"}, {"role": "text", "at": "@info.words"}, ""),
        ({"files": "*.hdf5"}, {"role": "text", "at": "@info"}, ""),
        (
            {"files": "*.jsonl", "each": "line"},
            {"role": "text", "at": "@info"},
            "each: line have none",
        ),
        (
            {"files": "*.hdf5"},
            {"role": "text", "at": "@info", "file": "x.json"},
            "a field with file has none",
        ),
    ],
)
def test_attributes_are_fields_of_files_and_groups_only(samples, field, wrong):
    schema = Schema.model_validate(
        {"datacheck": 1, "name": "mine", "samples": samples, "fields": {"words": field}}
    )
    said = [text for _, text in check(schema)]
    assert [wrong in text for text in said] == ([True] if wrong else [])


@pytest.mark.parametrize(
    ("count", "wrong"), [("samples", ""), ("sum T", ""), ("T", ""), (3, ""), ("sum P", "no axis")]
)
def test_what_an_attribute_counts_must_be_there(count, wrong):
    schema = Schema.model_validate(
        {
            "datacheck": 1,
            "name": "mine",
            "samples": {"files": "*"},
            "fields": {"a": {"shape": ["T"]}},
            "attrs": {"n": count},
        }
    )
    assert bool(wrong) == any("no field has an axis P" in text for _, text in check(schema))


@pytest.mark.parametrize(
    ("patterns", "wrong"),
    [
        (["{split}/{id}.jpg", "{split}/{id}.png"], []),
        ("{images}/{id}.jpg", []),
        ([], ["no pattern; name its files"]),
        ("*/{id}.jpg", ["may match many files"]),
        ("rgb/{frame}.jpg", ["unknown placeholder {frame}"]),
    ],
)
def test_a_companion_is_one_file_of_the_sample(patterns, wrong):
    samples = {"files": "{split}/{id}.npy", "companions": {"rgb": patterns}}
    schema = Schema.model_validate(
        {"datacheck": 1, "name": "mine", "roots": {"images": ""}, "samples": samples}
    )
    said = [(where, text) for where, text in check(schema) if where[:1] == ("samples",)]
    assert [where for where, _ in said] == [("samples", "companions", "rgb")] * len(wrong)
    assert all(part in text for part, (_, text) in zip(wrong, said, strict=True))
    if not wrong:
        assert parse_schema(dump_schema(schema)) == schema
