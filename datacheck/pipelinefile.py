"""The pipeline file: data, schema, transforms, and where the caches go.

``pipelines/README.md`` describes the language for users. A schema alone is a pipeline without
transforms.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from datacheck import transforms
from datacheck.cache.codec import PLAIN, Codec
from datacheck.cache.store import is_url
from datacheck.errors import SchemaError, UsageError
from datacheck.schema.complaints import Lines, raise_complaints, to_model
from datacheck.schema.grammar import Strings, suggestion
from datacheck.schema.load import builtin, find, load_schema, parse_schema, read_text
from datacheck.schema.model import Schema
from datacheck.schema.yaml_text import read_yaml
from datacheck.transforms.base import Transform


class _SourceSection(BaseModel):
    """Where the data are."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
    data: str | None = None
    roots: dict[str, str] = Field(default_factory=dict)


def _codec(text: Any) -> Codec:
    try:
        return Codec.parse(str(text))
    except UsageError as error:
        raise ValueError(str(error)) from error


class _CacheSection(BaseModel):
    """What is built, and where."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
    out: str | None = None
    splits: Strings = ()
    compress: Annotated[Codec, BeforeValidator(_codec)] = PLAIN


class _PipelineFile(BaseModel):
    """A pipeline file."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, populate_by_name=True)
    datacheck: Literal[1]
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$")]
    source: _SourceSection = _SourceSection()
    dataset: str = Field(alias="schema")
    transforms: list[Any] = Field(default_factory=list)
    cache: _CacheSection = _CacheSection()


@dataclass(frozen=True, eq=False)
class Pipeline:
    """A pipeline, read and checked.

    Args:
        name: names the folder of its caches.
        schema: what the data promise.
        steps: the transforms in order.
        data, out: default folders (`out` may also be a URL), or None.
        roots: default places of extra folders.
        splits: the splits to build; empty: all.
        paths: the folders with the modules of ``module:function`` steps and checks; () without
            such steps or checks.
        codec: how the caches are compressed.
    """

    name: str
    schema: Schema
    steps: Sequence[Transform] = ()
    data: Path | None = None
    out: Path | str | None = None
    roots: Mapping[str, Path] = field(default_factory=dict)
    splits: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    codec: Codec = PLAIN


def load_pipeline(name_or_path: str | Path) -> Pipeline:
    """Return a built-in pipeline or schema by its name, or one from a file by its path.

    Args:
        name_or_path: a pipeline's name wins over a schema's; a file with ``samples`` or ``extends``
            is a schema.

    Raises:
        SchemaError: there is no such file, or it has faults: the message gives file, line and key
            of each.
    """
    name = str(name_or_path)
    names = sorted({*builtin("pipelines"), *builtin("schemas")})
    if (
        name not in names
        and not Path(name).exists()
        and Path(name).name == name
        and not Path(name).suffix
    ):
        msg = (
            f"no pipeline or schema is called {name!r}; built in are "
            f"{', '.join(names)}{suggestion(name, names)}"
        )
        raise SchemaError(msg)
    path = find(
        name,
        "schemas"
        if name in builtin("schemas") and name not in builtin("pipelines")
        else "pipelines",
    )
    text = read_text(path)
    data, lines = read_yaml(text, str(path))
    if "samples" in data or "extends" in data:
        return of_schema(parse_schema(text, str(path)))
    return _checked(data, lines, path)


def resolve_pipeline(pipeline: Pipeline | Schema | str | Path, compress: str | None) -> Pipeline:
    """Return a pipeline from what a caller may name it by, with another codec if one is given."""
    if isinstance(pipeline, Schema):
        pipeline = of_schema(pipeline)
    elif not isinstance(pipeline, Pipeline):
        pipeline = load_pipeline(pipeline)
    return pipeline if compress is None else replace(pipeline, codec=Codec.parse(compress))


def of_schema(schema: Schema) -> Pipeline:
    """Return the pipeline of a schema: no transforms, no defaults."""
    return Pipeline(schema.name, schema)


def _checked(data: dict[str, Any], lines: Lines, path: Path) -> Pipeline:
    file = to_model(_PipelineFile, data, lines)
    base = path.parent
    schema_file = base / file.dataset
    schema = load_schema(
        schema_file if file.dataset not in builtin() and schema_file.is_file() else file.dataset
    )
    steps = [
        _step(entry, number, lines).placed(base) for number, entry in enumerate(file.transforms)
    ]
    return Pipeline(
        name=file.name,
        schema=schema,
        steps=steps,
        data=None if file.source.data is None else base / file.source.data,
        out=file.cache.out
        if is_url(file.cache.out or "") or file.cache.out is None
        else base / file.cache.out,
        roots={name: base / folder for name, folder in sorted(file.source.roots.items())},
        splits=file.cache.splits,
        paths=_paths(schema, steps, base, schema_file),
        codec=file.cache.compress,
    )


def _paths(
    schema: Schema, steps: Sequence[Transform], base: Path, schema_file: Path
) -> tuple[str, ...]:
    """Return the folders of the modules that the steps and the schema's own checks name.

    Empty where neither names any.
    """
    folders = [base] if any(step.own_code for step in steps) else []
    folders += [schema_file.parent] if schema.checks and schema_file.is_file() else []
    return tuple(dict.fromkeys(str(folder.resolve()) for folder in folders))


def _step(entry: object, number: int, lines: Lines) -> Transform:
    location = ("transforms", number)
    try:
        kind, options = transforms.parse_step(entry)
    except UsageError as error:
        raise_complaints([(location, str(error))], lines)
        raise
    depth = len(location) + 1  # below the transform's name
    inside = {
        key[depth:]: place
        for key, place in lines.items()
        if key[:2] == location and len(key) >= depth
    }
    return to_model(kind, options, inside | {(): lines[location]})
