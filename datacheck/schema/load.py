"""Loads schemas: built-in ones by name, others by path, each with the schemas that it extends.

`choose_schema` finds the built-in schema for a folder; `dump_schema` writes a schema as YAML.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from datacheck.errors import SchemaError, StorageError, UsageError
from datacheck.schema.complaints import (
    Complaint,
    FileLine,
    Lines,
    Where,
    complain,
    raise_complaints,
    to_model,
)
from datacheck.schema.grammar import ROBOTS, shipped_folder, suggestion
from datacheck.schema.model import Schema
from datacheck.schema.robots import is_path, load_robot
from datacheck.schema.validate import check
from datacheck.schema.yaml_text import dump_yaml, read_text, read_yaml

__all__ = ["builtin", "builtin_folder", "choose_schema", "load_schema", "parse_schema", "read_text"]

Kind = Literal["schemas", "pipelines"]
ExtraChecks = Callable[[Schema], Iterable[Complaint]]

# Schemas that extend one another: the built-in ones need two.
MAX_EXTENDS = 8

# The schema for any folder; never chosen automatically.
FILES = "files"
# Schemas for folders that several schemas match at once. Such a schema is chosen if at least two of
# its parts match, or if one matches and some of its files are held out: only the whole schema has
# splits.
WHOLE = {"minimind": frozenset({"minimind_dpo", "minimind_pretrain", "minimind_sft"})}


def builtin_folder(kind: Kind) -> Path:
    """Return the folder of the built-in schemas or pipelines, in the package or the checkout.

    Raises:
        StorageError: neither exists: the installation is incomplete.
    """
    package = Path(__file__).resolve().parent.parent
    folder = shipped_folder(kind, package)
    if folder is not None:
        return folder
    msg = f"{package / kind}: the built-in {kind} are missing. Install datacheck again"
    raise StorageError(msg)


def builtin(kind: Kind = "schemas") -> list[str]:
    """Return the sorted names of the built-in schemas or pipelines."""
    return sorted(path.stem for path in builtin_folder(kind).glob("*.yaml"))


def load_schema(name_or_path: str | Path, also: ExtraChecks = lambda schema: ()) -> Schema:
    """Return a built-in schema by name, or the schema in a file by path.

    Args:
        name_or_path: name or path of the schema.
        also: further checks, for callers that know more than the language, such as the existing
            rules.

    Raises:
        SchemaError: no such name or file, or the file is wrong: lists every fault with line, key
            and what is allowed.
    """
    return _load(find(str(name_or_path), "schemas"), also)


def _load(path: Path, also: ExtraChecks = lambda schema: ()) -> Schema:
    text = read_text(path)
    if path.parent != builtin_folder("schemas"):
        return parse_schema(text, str(path), also)
    schema, lines = _load_builtin(text, str(path))
    raise_complaints([*also(schema)], lines)
    return schema


@lru_cache(128)
def _load_builtin(text: str, origin: str) -> tuple[Schema, Lines]:
    """Return a built-in schema, once for all callers: it is frozen."""
    return _to_schema(*_read_builtin(text, origin), origin)


def parse_schema(
    text: str,
    origin: str = "<schema>",
    also: ExtraChecks = lambda schema: (),
    *,
    files: bool = True,
) -> Schema:
    """Return the schema written in `text`.

    Args:
        text: YAML.
        origin: the file's path, for messages; the paths after ``extends:`` and ``robot:`` are
            relative to its folder.
        also: as for `load_schema`.
        files: whether ``extends:`` and ``robot:`` may name files; otherwise only what is built in.

    Raises:
        SchemaError: as for `load_schema`.
    """
    schema, _ = _to_schema(*read_yaml(text, origin), origin, also, files=files)
    return schema


def _to_schema(
    data: dict[str, Any],
    lines: Lines,
    origin: str,
    also: ExtraChecks = lambda schema: (),
    *,
    files: bool = True,
) -> tuple[Schema, Lines]:
    data, lines = _extended(data, lines, origin, (), files=files)
    schema = to_model(Schema, data, lines, also=("extends",))
    raise_complaints([*check(schema), *also(schema)], lines)
    return schema, lines


def chosen_by_files() -> dict[str, Schema]:
    """Return by name the built-in schemas that the files of a folder can choose.

    Notes:
        Presets such as ``lerobot_act`` are left out: they read the files of the schema that they
        extend, and add what one kind of training needs.
    """
    folder = builtin_folder("schemas")
    schemas = {
        name: _load(folder / f"{name}.yaml") for name in builtin() if name not in {FILES, *WHOLE}
    }
    presets = {
        name
        for name, schema in schemas.items()
        for base, other in schemas.items()
        if name.startswith(f"{base}_") and schema.samples == other.samples
    }
    return {name: schema for name, schema in schemas.items() if name not in presets}


def choose_schema(matches: Callable[[Schema], int]) -> Schema | None:
    """Return the built-in schema whose file patterns match a folder; None if no schema does.

    Args:
        matches: returns how many files of the folder a schema's patterns match.

    Raises:
        UsageError: several schemas match; the message lists them and the option to use.
    """
    schemas = chosen_by_files()
    counts = {name: matches(schema) for name, schema in schemas.items()}
    fitting = [name for name, count in counts.items() if count]
    whole = _choose_whole(set(fitting), matches)
    if whole is not None or not fitting:
        return whole
    fitting = without_narrower(fitting, schemas, counts)
    if len(fitting) == 1:
        return schemas[fitting[0]]
    listed = ", ".join(
        f"{name} ({counts[name]} file{'s' if counts[name] > 1 else ''})" for name in fitting
    )
    # Do not suggest the schema with most files: adding small files would then decide.
    msg = (
        f"several built-in schemas fit the files found here: {listed}. Say what the data are: "
        f"--schema NAME|FILE"
    )
    raise UsageError(msg)


def without_narrower(
    names: Iterable[str], schemas: Mapping[str, Schema], counts: Mapping[str, int]
) -> list[str]:
    """Return the schemas without those for some of the layouts of another one, or without that one.

    The narrower one stays if all files are in its layouts.

    Args:
        names: of the schemas that match files.
        schemas: by name.
        counts: how many files each of them matches.
    """
    names = list(names)
    dropped = {
        other if counts[other] == counts[name] else name
        for name in names
        for other in names
        if set(schemas[name].samples.files) < set(schemas[other].samples.files)
    }
    return [name for name in names if name not in dropped]


def _choose_whole(names: set[str], matches: Callable[[Schema], int]) -> Schema | None:
    """Return the schema of `WHOLE` whose parts fit, if the folder is more than one part."""
    for name, parts in WHOLE.items():
        if names and names <= parts:
            schema = load_schema(name)
            if len(names) > 1 or matches(_held_out(schema)):
                return schema
    return None


def _held_out(schema: Schema) -> Schema:
    """Return the schema restricted to the files of its evaluation splits."""
    patterns: list[str] = []
    for split, split_patterns in schema.samples.split.items():
        if split.endswith("_eval"):
            patterns += split_patterns
    samples = schema.samples.model_copy(update={"files": tuple(patterns)})
    return schema.model_copy(update={"samples": samples})


def find(name: str, kind: Kind) -> Path:
    """Return the file of a built-in schema or pipeline, or the path itself if it names a file.

    Raises:
        SchemaError: there is neither.
    """
    builtin_names = builtin(kind)
    if name in builtin_names:
        return builtin_folder(kind) / f"{name}.yaml"
    path = Path(name)
    if path.is_file():
        return path
    noun = kind.removesuffix("s")
    if "/" in name or "\\" in name or path.suffix in {".yaml", ".yml"}:
        state = "is a folder" if path.is_dir() else "no such file"
        msg = f"{name}: {state}; a {noun} is a YAML file or one of {', '.join(builtin_names)}"
        raise SchemaError(msg)
    near = suggestion(name, builtin_names)
    known = ", ".join(builtin_names)
    msg = (
        f"no {noun} is called {name!r}; built in are {known}, and a file is given by its path{near}"
    )
    raise SchemaError(msg)


def _read(path: Path) -> tuple[dict[str, Any], Lines]:
    """Return the keys of a schema file, and their lines."""
    text = read_text(path)
    if path.parent == builtin_folder("schemas"):
        return _read_builtin(text, str(path))
    return read_yaml(text, str(path))


def _read_builtin(text: str, origin: str) -> tuple[dict[str, Any], Lines]:
    return read_yaml(text, origin, libyaml=True)


def _extended(
    data: dict[str, Any], lines: Lines, origin: str, chain: tuple[str, ...], *, files: bool = True
) -> tuple[dict[str, Any], Lines]:
    """Merge a schema's keys over those of its base.

    Args:
        data, lines: of the schema.
        origin: its path.
        chain: paths of the schemas that extend it.
        files: whether its base and its robots may be files that are not built in.
    """
    _read_robots(data, lines, origin, files=files)
    base = data.pop("extends", None)
    if base is None:
        return data, lines
    chain = (*chain, str(Path(origin).resolve()))
    path = _find_base(base, origin, lines, files=files)
    where: Where = ("extends",)
    if str(path.resolve()) in chain:
        cycle = " -> ".join([*chain, str(path)])
        complain(where, f"{base!r} extends itself: {cycle}", lines)
    if len(chain) >= MAX_EXTENDS:
        complain(where, f"more than {MAX_EXTENDS} schemas extend one another", lines)
    base_data, base_lines = _extended(*_read(path), str(path), chain)
    for key in ("datacheck", "name"):
        base_data.pop(key, None)
    kept_lines = dict(base_lines)
    return _merge(base_data, data, kept_lines), kept_lines | dict(lines)


def _find_base(base: Any, origin: str, lines: Lines, *, files: bool) -> Path:
    """Return the file that the value of ``extends`` names."""
    where: Where = ("extends",)
    if not isinstance(base, str):
        complain(where, "one name or path is allowed, as text", lines)
    if base in builtin():
        return find(base, "schemas")
    if not files:
        msg = f"{base!r} is not built in; the schema of a run may extend built-in schemas only"
        complain(where, msg, lines)
    try:
        return find(str(Path(origin).parent / base), "schemas")
    except SchemaError:
        near = suggestion(base, builtin())
        msg = f"no schema {base!r}: it is neither built in nor a file relative to this one{near}"
        complain(where, msg, lines)


def _read_robots(data: dict[str, Any], lines: Lines, origin: str, *, files: bool) -> None:
    """Replace each path after ``robot`` by the robot in that file, relative to this schema."""
    when = data.get("when")
    blocks: dict[Where, Any] = {("fields",): data.get("fields")}
    if isinstance(when, dict):
        blocks |= {("when", condition): fields for condition, fields in when.items()}
    for block, fields in blocks.items():
        for name, spec in fields.items() if isinstance(fields, dict) else ():
            path = spec.get("robot") if isinstance(spec, dict) else None
            if not isinstance(path, str) or not is_path(path):
                continue
            where = (*block, name, "robot")
            if not files:
                msg = f"{path!r} is not built in; the schema of a run may name built-in robots only"
                complain(where, msg, lines)
            file = Path(origin).parent / path
            if not file.is_file():
                known = ", ".join(sorted(ROBOTS))
                msg = (
                    f"no robot {path!r}: it is not a file relative to this schema; built in are "
                    f"{known}"
                )
                complain(where, msg, lines)
            spec["robot"] = load_robot(file)


def _is_unit(where: Where) -> bool:
    """Return whether the mapping at a place is replaced as a whole: a loader, or a robot."""
    places = {("fields", 3), ("when", 4)}
    is_robot = where[-1] == "robot" and (where[0], len(where)) in places
    return where == ("loader",) or is_robot


def _merge(
    below: dict[str, Any],
    above: dict[str, Any],
    kept_lines: dict[Where, FileLine],
    where: Where = (),
) -> dict[str, Any]:
    """Merge `above` over `below`: mappings by key, other values replaced; an empty value removes.

    The steps of a loader are an ordered unit and are replaced together, as is a robot. Lines of replaced values
    are removed from `kept_lines`.
    """
    merged = dict(below)
    for key, value in above.items():
        key_path = (*where, key)
        are_mappings = isinstance(value, dict) and isinstance(below.get(key), dict)
        if are_mappings and not _is_unit(key_path):
            merged[key] = _merge(below[key], value, kept_lines, key_path)
            continue
        for place in [place for place in kept_lines if place[: len(key_path)] == key_path]:
            del kept_lines[place]
        replaced = merged.pop(key, None)
        # An empty value removes the one below. Without one below it stays, to be reported.
        if replaced is None or value is not None:
            merged[key] = value
    return merged


def dump_schema(schema: Schema) -> str:
    """Return a schema as YAML without defaults; keys and loader steps keep their order.

    The keys of base schemas are included.

    Notes:
        Lossless: ``parse_schema(dump_schema(schema)) == schema``.
    """
    return dump_yaml(schema.as_dict())
