"""The built-in pipelines: they load, name a schema that exists, fit it, and are documented."""

import re

import pytest

from datacheck.model.sample import ArraySpec
from datacheck.pipeline import load_pipeline
from datacheck.schema.load import builtin, builtin_folder
from datacheck.transforms import bind, transforms


def specs(schema):
    """What the sources give if every field of the schema is there: unnamed widths are 1, floats where it is silent."""
    made = {}
    for name, field in schema.stored.items():
        if field.absent:
            continue
        shape = field.shape or ()
        item = tuple(
            size if isinstance(size, int) else 1 for size in (shape[1:] if field.ragged else shape)
        )
        kind = "text" if field.role == "text" else "json" if field.is_text else "array"
        dtype = field.dtype if kind == "array" and field.dtype else "float64"
        attrs = {key: value for key in ("unit", "frame", "role") if (value := getattr(field, key))}
        made[name] = ArraySpec(dtype, item, field.ragged, kind, attrs=attrs)
    return made


@pytest.mark.parametrize("name", builtin("pipelines"))
def test_a_built_in_pipeline_fits_every_split_of_its_schema(name):
    pipeline = load_pipeline(name)
    assert pipeline.name == name
    splits = {"", *(condition.removeprefix("split=") for condition in pipeline.schema.when)}
    for split in sorted(splits):
        schema = pipeline.schema.for_split(split)
        bound, after = bind(
            pipeline.steps, specs(schema), {n for n, s in schema.stored.items() if s.absent}
        )
        assert len(bound) == len(pipeline.steps)
        assert after


def test_every_supported_system_has_a_pipeline():
    systems = {"sceneleap", "ho3d", "scannet", "scannetpp", "libero", "robomimic", "aloha"}
    assert set(builtin("pipelines")) == systems | {
        f"minimind_{stage}" for stage in ("pretrain", "sft", "dpo")
    }
    assert set(builtin("pipelines")) <= set(builtin("schemas"))


def test_ho3d_ends_up_in_the_opencv_frame_in_metres():
    pipeline = load_pipeline("ho3d")
    for split in ("train", "evaluation"):
        _, after = bind(pipeline.steps, specs(pipeline.schema.for_split(split)))
        joints = after["handJoints3D"]
        assert (joints.dtype, joints.attrs["frame"], joints.attrs["unit"]) == (
            "float32",
            "camera_opencv",
            "m",
        )
        assert joints.item == ((21, 3) if split == "train" else (3,))


@pytest.mark.parametrize("name", ["scannet", "scannetpp"])
def test_labels_are_whole_numbers_in_every_split_that_has_them(name):
    pipeline = load_pipeline(name)
    for split, labels in (("train", {"segment", "semantic", "instance"}), ("test", {"segment"})):
        schema = pipeline.schema.for_split(split)
        _, after = bind(
            pipeline.steps, specs(schema), {n for n, s in schema.stored.items() if s.absent}
        )
        assert {n for n, s in after.items() if s.dtype == "int32"} == labels


# --------------------------------------------------------------------------------------- the README


def _text():
    return (builtin_folder("pipelines") / "README.md").read_text(encoding="utf-8")


def test_every_example_of_the_readme_loads_or_is_the_file_it_names(tmp_path):
    blocks = re.findall(r"```yaml\n(.*?)```", _text(), flags=re.DOTALL)
    assert len(blocks) >= 2
    for block in blocks:
        first, _, rest = block.partition("\n")
        if first.startswith("# from "):
            assert (
                (builtin_folder("pipelines") / first.removeprefix("# from "))
                .read_text(encoding="utf-8")
                .endswith(rest)
            )
        path = tmp_path / "mine.yaml"
        path.write_text(block, encoding="utf-8")
        pipeline = load_pipeline(path)
        bind(pipeline.steps, specs(pipeline.schema))


def test_every_transform_and_option_is_in_the_readme():
    rows = dict(re.findall(r"^\| `([\w:]+)` \| (.*) \|$", _text(), flags=re.MULTILINE))
    for name, kind in transforms().items():
        options = [info.alias or option for option, info in kind.model_fields.items()]
        assert [option for option in options if f"`{option}" not in rows[name]] == [], name
