"""What a user relies on and no change of the code may change: public names, commands, rules, results of the demos.

    python -m tests.pins.pins

writes public.txt and demos.json anew, for a change that is meant. What is in them is read by
`test_pins.py` and `tests/demo`.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import numpy as np
import orjson

import datacheck
from datacheck import cache, errors, fix, repro, scan, schema, torch
from datacheck.cli.main import datacheck as command
from datacheck.rules import catalogue
from datacheck.scan.samples import read_table

HERE = Path(__file__).parent
PUBLIC, DEMOS = HERE / "public.txt", HERE / "demos.json"
MODULES = (datacheck, cache, errors, fix, repro, scan, schema, torch)
SEED = 1
_DIGITS, _PLACES = 5, 6  # of a number: libraries and processors differ in the last ones


def public() -> list[str]:
    """Return a line for each public name, command, option and rule."""
    lines = [line for module in MODULES for line in _names(module)]
    lines += _commands(command, "datacheck")
    lines += [
        f"rule {rule.code} {rule.name} {rule.severity.name} "
        f"{json.dumps(_plain(rule.defaults), sort_keys=True)}"
        for _, rule in sorted(catalogue().items())
    ]
    return lines


def _names(home: ModuleType) -> Iterator[str]:
    module = home.__name__
    own = [
        n
        for n, v in vars(home).items()
        if inspect.isclass(v) and v.__module__ == module and n[0] != "_"
    ]
    for name in sorted(getattr(home, "__all__", own)):
        value = getattr(home, name)
        if inspect.isclass(value):
            code = f" exit {value.exit_code}" if hasattr(value, "exit_code") else ""
            yield f"{module}.{name}{_signature(value)}{code}"
            yield from (f"{module}.{name}.{line}" for line in _members(value))
        elif callable(value):
            yield f"{module}.{name}{_signature(value)}"
        else:
            yield f"{module}.{name}"


def _members(value: type) -> Iterator[str]:
    for name in sorted(dir(value)):
        member = inspect.getattr_static(value, name)
        inherited = all(
            name not in vars(kind)
            for kind in value.__mro__
            if kind.__module__.startswith("datacheck")
        )
        if name.startswith("_") or inherited:
            continue
        function = getattr(member, "__func__", member)
        yield f"{name}{_signature(function)}" if inspect.isfunction(function) else name


def _signature(value: Any) -> str:
    """Return names, kinds and defaults of the arguments, without types: they may move."""
    try:
        found = inspect.signature(value)
    except (TypeError, ValueError):
        return "(...)"
    plain = [
        p.replace(annotation=p.empty, default=_shown(p.default)) for p in found.parameters.values()
    ]
    return str(found.replace(parameters=plain, return_annotation=found.empty))


class _Shown:
    """A default as text that holds no address of memory."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def _shown(default: Any) -> Any:
    plain = default is inspect.Parameter.empty or type(default) in {
        bool,
        int,
        float,
        str,
        type(None),
        tuple,
    }
    return default if plain else _Shown(f"<{type(default).__name__}>")


def _commands(group: click.Command, path: str) -> Iterator[str]:
    # Click keeps the names that are met first
    context = click.Context(group, help_option_names=["-h", "--help"])
    for option in group.get_params(context):
        if "--help" in option.opts:
            continue
        names = " ".join([*option.opts, *option.secondary_opts]) or str(option.name)
        default = (
            option.default if type(option.default) in {bool, int, float, str, type(None)} else "..."
        )
        yield f"command {path}: {names} {option.type.name} default {default!r}"
    if isinstance(group, click.Group):
        for name in sorted(group.list_commands(context)):
            below = group.get_command(context, name)
            assert below is not None
            yield from _commands(below, f"{path} {name}")


def _plain(value: Any) -> Any:
    """Return JSON values with numbers of a few digits."""
    if isinstance(value, dict):
        return {str(name): _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return float(f"{value:.{_DIGITS}g}") if isinstance(value, float) else value


def results(folder: Path) -> dict[str, Any]:
    """Return what a scan's folder (or one for each schema) says, without times, places and versions."""
    runs = {path.parent.name: path.parent for path in sorted(folder.rglob("result.json"))}
    return {name: _result(run) for name, run in runs.items()}


def _result(run: Path) -> dict[str, Any]:
    said = orjson.loads((run / "result.json").read_bytes())
    dataset = {
        name: value for name, value in said["dataset"].items() if name in {"samples", "splits"}
    }
    table = read_table(run / "samples.parquet")
    return {
        "verdict": _plain(said["verdict"]),
        "dataset": dataset,
        "unchecked": len(said["unchecked"]),
        "rules": {
            code: f"{rule['status']} {rule.get('checked', '')}".strip()
            for code, rule in said["rules"].items()
        },
        "findings": [_plain(finding) for finding in said["findings"]],
        "excluded": _digest(sorted(orjson.loads((run / "valid.json").read_bytes())["excluded"])),
        "keys": _digest(list(table.keys)),
        "columns": {name: _column(*table.columns[name]) for name in sorted(table.columns)},
    }


def _column(values: Any, present: Any) -> str:
    """Return type, shape and the sum of the sizes of a column; of texts a digest."""
    rows = values[present]
    if rows.dtype.hasobject:
        return f"text [{len(rows)}] {_digest(rows.tolist())}"
    # What should be 0 is another number on each processor
    sizes = np.abs(rows.astype(np.float64)).round(_PLACES)
    return f"{rows.dtype} {list(rows.shape)} {sizes[np.isfinite(sizes)].sum():.{_DIGITS}g}"


def _digest(texts: list[str]) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]


def demo_results(system: str) -> dict[str, Any]:
    """Return what a demo's scans say."""
    from datacheck.demo import course

    course.STEPS = 1
    with tempfile.TemporaryDirectory() as folder:
        course.run(system, Path(folder) / system, seed=SEED)
        return results(Path(folder) / system / "scan")


if __name__ == "__main__":
    from datacheck.testing import synth

    PUBLIC.write_text("\n".join(public()) + "\n")
    made = {system: demo_results(system) for system in synth.SYSTEMS}
    DEMOS.write_text(json.dumps(made, sort_keys=True, indent=1, ensure_ascii=False) + "\n")
