"""Every command of the command line, and how each is asked to read a hostile folder, run or cache.

A command that has no row here fails `test_rows.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

import click

from datacheck.cli.main import datacheck

RUN, CACHE = ".datacheck/latest", "caches"
BUILD = ("plain.yaml", "--data", "DATA", "--out", CACHE)

NO_ROW = {
    "demo": "makes its own data in a folder of its own and reads no other",
    "repro bisect": "runs the script that the user names, which may do anything",
}

# what each command reads: DATA is the hostile folder, SCHEMA the schema that fits it, KEY the name
# of a sample
DATA = {
    "scan": (
        ("scan", "DATA", "--schema", "SCHEMA", "--output", "made/scan"),
        ("scan", "DATA", "--schema", "SCHEMA", "--level", "deep", "--previews", "20", "--rehash"),
    ),
    "view": (
        (
            "view",
            "KEY",
            "--data",
            "DATA",
            "--schema",
            "SCHEMA",
            "--no-open",
            "--out",
            "made/view.html",
        ),
    ),
    "init": (("init", "DATA", "-o", "made/init.yaml"),),
    "fix": (
        ("fix", "DC105", "DATA", "--to", "made/fix", "--schema", "SCHEMA"),
        ("fix", "DC228", "DATA", "--to", "made/stats", "--schema", "SCHEMA"),
    ),
    "export": (
        ("export", "DATA", "--as", "lerobot", "--to", "made/lerobot", "--schema", "SCHEMA"),
    ),
    "split": (
        (
            "split",
            "DATA",
            "--by",
            "key",
            "--train",
            "1",
            "--to",
            "made/lists",
            "--schema",
            "SCHEMA",
            "--invalid",
        ),
    ),
    "manifest": (("manifest", "DATA", "--deep", "--schema", "SCHEMA", "-o", "made/manifest.json"),),
    "diff": (("diff", "DATA", "clean", "--deep", "--schema", "SCHEMA"), ("diff", "clean", "DATA")),
    "cache build": (("cache", "build", "SCHEMA", "--data", "DATA", "--out", "made/caches"),),
    "cache explain-key": (
        ("cache", "explain-key", "SCHEMA", "--data", "DATA", "--out", "made/caches"),
    ),
    "repro capture": (("repro", "capture", "--data", "DATA", "--output", "made/capture.json"),),
    "repro check": (("repro", "check", "--data", "DATA"),),
}

# these read data as the rows above do: a few canaries show that they are no exception
LIKE_SCAN = ("fix", "export", "split", "diff", "cache explain-key")

# what reads a finished run, which somebody may have shared
OF_RUN = {
    "report": tuple(
        ("report", "RUN", "--format", form) for form in ("text", "json", "junit", "sarif", "github")
    ),
    "rescore": (
        ("rescore", "RUN", "--output", "made/rescored"),
        ("rescore", "RUN", "--schema", "plain.yaml", "--output", "made/again"),
    ),
    "baseline": (("baseline", "RUN", "-o", "made/baseline.json"),),
    "view": (("view", "s0.npy", "--run", "RUN", "--no-open", "--out", "made/view.html"),),
    "card": (("card", "RUN", "-o", "made/card.json"),),
    "split": (("split", "RUN", "--by", "key", "--train", "1", "--to", "made/lists"),),
    "scan": (
        (
            "scan",
            "clean",
            "--schema",
            "plain.yaml",
            "--reference",
            "RUN",
            "--output",
            "made/referred",
        ),
        (
            "scan",
            "clean",
            "--schema",
            "plain.yaml",
            "--baseline",
            "RUN/valid.json",
            "--output",
            "made/known",
        ),
        ("scan", "clean", "--schema", "plain.yaml"),
    ),
    "manifest": (
        ("manifest", "clean", "--deep", "--schema", "plain.yaml", "-o", "made/manifest.json"),
    ),
    "diff": (("diff", "RUN", "clean"), ("diff", "RUN", "RUN/manifest.json")),
}

# what reads finished caches
OF_CACHE = {
    "cache info": (("cache", "info", "CACHE"),),
    "cache report": (
        ("cache", "report", "CACHE", "-o", "made/cache.html"),
        ("cache", "report", "CACHE", "--full", "-o", "made/full.html"),
    ),
    "cache verify": (
        ("cache", "verify", "CACHE", "--quick"),
        ("cache", "verify", "CACHE", "--values"),
    ),
    "cache diff": (("cache", "diff", "CACHE", "caches"),),
    "cache export": tuple(
        ("cache", "export", "CACHE", "--to", f"made/{form}", "--as", form)
        for form in ("npz", "webdataset", "robomimic")
    ),
    "cache gc": (
        ("cache", "gc", "CACHE"),
        ("cache", "gc", "CACHE", "--keep", "0", "--unlocked", "--delete"),
    ),
    "cache ls": (("cache", "ls", "CACHE"),),
    "cache repair": (("cache", "repair", "plain.yaml", "--data", "clean", "--out", "CACHE"),),
    "cache build": (
        ("cache", "build", "plain.yaml", "--data", "clean", "--out", "CACHE", "--compress", "zstd"),
    ),
    "cache explain-key": (
        ("cache", "explain-key", "plain.yaml", "--data", "clean", "--out", "CACHE"),
    ),
    "diff": (("diff", "CACHE", "caches"),),
    "manifest": (("manifest", "CACHE", "-o", "made/cache.json"),),
    "repro capture": (("repro", "capture", "--data", "CACHE", "--output", "made/capture.json"),),
}

# what reads runs of training
OF_TRAINING = {
    "repro diff": (
        ("repro", "diff", "TRAINED", "runs/b"),
        ("repro", "diff", "TRAINED", "runs/b", "--format", "json"),
    ),
    "diff": (("diff", "TRAINED", "runs/b"),),
}

# what reads a document that it is given by name
OF_DOCUMENT = {
    "schema check": (("schema", "check", "DOCUMENT"),),
    "rules": (("rules", "--schema", "DOCUMENT"),),
    "explain": (("explain", "DC101"),),
    "scan": (
        ("scan", "clean", "--schema", "DOCUMENT"),
        ("scan", "clean", "--schema", "plain.yaml", "--baseline", "DOCUMENT"),
    ),
    "cache build": (("cache", "build", "DOCUMENT", "--data", "clean", "--out", "made/caches"),),
    "diff": (("diff", "DOCUMENT", "clean"), ("diff", "clean", "DOCUMENT")),
    "rescore": (("rescore", RUN, "--schema", "DOCUMENT"),),
}

TABLES = (DATA, OF_RUN, OF_CACHE, OF_TRAINING, OF_DOCUMENT)

TRAIN = """
import sys
from datacheck import CachedDataset
from datacheck.errors import DatacheckError
for path in sys.argv[1:]:
    try:
        dataset = CachedDataset(path)
        print(len(dataset), [dataset[i] for i in range(len(dataset))])
    except (DatacheckError, OSError) as error:
        print(type(error).__name__, error)
"""

SEVERAL = """
import json, sys
from datacheck.cli.main import run
for words in json.load(open(sys.argv[1])):
    sys.argv = ["datacheck", *words]
    code = run()
    print("ended with", code, words, flush=True)
"""


def without_sandbox() -> list[str]:
    """Return the words that turn the sandbox off; the promises hold without it."""
    return (
        ["--no-sandbox"]
        if any("--no-sandbox" in option.opts for option in datacheck.params)
        else []
    )


def commands() -> list[str]:
    """Return the words of every command that does something, from the command line itself."""
    return sorted(_below(datacheck, click.Context(datacheck)))


def _below(command: click.Command, context: click.Context) -> Iterator[str]:
    if not isinstance(command, click.Group):
        yield " ".join(context.command_path.split()[-_depth(context) :])
        return
    for name in command.list_commands(context):
        below = command.get_command(context, name)
        assert below is not None
        yield from _below(below, click.Context(below, parent=context, info_name=name))


def _depth(context: click.Context) -> int:
    return 0 if context.parent is None else 1 + _depth(context.parent)


def filled(words: tuple[str, ...], **values: str) -> list[str]:
    """Return the words of a command with its placeholders filled in."""
    return ["/".join(values.get(part, part) for part in word.split("/")) for word in words]
