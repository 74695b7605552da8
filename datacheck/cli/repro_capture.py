"""``datacheck repro capture``: record what a training process consists of."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from datacheck.cli.output import echo, say
from datacheck.cli.repro_process import (
    SCRIPT_SETTINGS,
    check_ended,
    run_script,
    script_argument,
    script_options,
)
from datacheck.errors import UsageError

_COMMAND = "datacheck repro capture"
_HEAD = b'{\n "process": {'  # every capture begins so; another file is not replaced


@click.command(context_settings=SCRIPT_SETTINGS)
@script_options
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    show_default="standard output",
    help="Write the capture to FILE.",
)
@script_argument
def capture(
    data: tuple[str, ...], steps: int, seconds: float, output: Path | None, script: tuple[str, ...]
) -> None:
    """Record the packages, libraries, code, hardware and settings of a training process as JSON.

    Write a training script and its arguments after --. It runs unchanged up to its first optimizer
    step. Without a script, a new Python process of this environment is captured. Secrets are left
    out.

    The exit code is 2 if the script failed; the capture then shows its state at that moment.
    """
    from datacheck.runtime import outputs

    if output is not None:
        _check_output(output)
    result = run_script(
        script, data=data, steps=steps, seconds=seconds, probe=False, quiet=output is None
    )
    text = json.dumps(result["capture"], indent=1) + "\n"
    if output is None:
        from datacheck.report.words import escaped_json

        echo(escaped_json(text.encode()), nl=False)
    else:
        outputs.write_output(
            output, text.encode(), _COMMAND, outputs.begins_with(_HEAD), mode=0o644
        )
        say(*_summary_lines(output, result))
    check_ended(result["seen"])


def _check_output(path: Path) -> None:
    """Refuse to replace a file that is not a capture: it is easy to type the script after -o."""
    from datacheck.runtime import outputs

    if not path.absolute().parent.is_dir():
        msg = f"{path}: its folder does not exist"
        raise UsageError(msg)
    outputs.check_output(path, _COMMAND, outputs.begins_with(_HEAD))


def _summary_lines(output: Path, result: dict[str, Any]) -> Iterator[str]:
    from datacheck.repro.hardware import unowned

    captured = result["capture"]
    nouns = {
        "packages": ("package", "packages"),
        "native": ("compiled library", "compiled libraries"),
        "code": ("file of code", "files of code"),
    }
    counts = [
        f"{len(captured[section]):,} {nouns[section][len(captured[section]) != 1]}"
        for section in nouns
        if "missing" not in captured[section]
    ]
    seconds = sum(captured["process"]["volatile"]["seconds"].values())
    yield (
        f"{output}: {', '.join(counts)}, as it was {result['seen']['stopped']}; "
        f"it took {seconds:.1f} s"
    )
    if "missing" not in captured["native"]:
        own_libraries = list(unowned(captured["native"]))
        if own_libraries:
            yield f"compiled libraries of no package: {', '.join(own_libraries)}"
    for section, content in captured.items():
        if "missing" in content:
            yield f"not captured: {section}: {content['missing']}"
