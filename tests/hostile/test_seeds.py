"""Mutants: some of every document, and each that once failed; many more make `scripts/bench/faults/fuzz.py`."""

from __future__ import annotations

import subprocess
import sys

import pytest

from datacheck.formats.base import formats
from tests.hostile import places
from tests.hostile.ground import REPOSITORY, Ground
from tests.hostile.mutating import DOCUMENTS, SEEDS, corpus

KEPT = sorted(SEEDS.glob("*/*")) if SEEDS.is_dir() else []
AGAIN = """
import sys
from pathlib import Path
from tests.hostile.fuzzed import again
target, mutant, folder, honest = sys.argv[1], *map(Path, sys.argv[2:4]), Path(sys.argv[4]) if sys.argv[4:] else None
print(again(target, mutant, folder, honest))
"""
SOME = """
import random, sys
from pathlib import Path
from tests.hostile.fuzzed import limited, of_a_document
limited()
rng = random.Random(sys.argv[1])
for _ in range(2):
    print(of_a_document(sys.argv[1], rng, Path(sys.argv[2]), Path(sys.argv[3])))
"""


@pytest.fixture(scope="module")
def documents(tmp_path_factory):
    return places.documents(Ground(tmp_path_factory.mktemp("documents")))


def ended(program, *words, folder):
    ground = Ground(folder / "ground")
    command = [sys.executable, "-W", "ignore", "-c", program, *map(str, words)]
    done = subprocess.run(
        command,
        cwd=REPOSITORY,
        env=ground.environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=800,
    )
    return done.returncode, done.stderr[-2000:] if done.returncode else ""


@pytest.mark.parametrize("target", sorted(DOCUMENTS))
def test_a_mutated_document_ends_a_command_with_a_message(target, documents, tmp_path):
    assert ended(SOME, target, tmp_path, documents, folder=tmp_path) == (0, "")


@pytest.mark.parametrize("mutant", KEPT, ids=lambda path: path.relative_to(SEEDS).as_posix())
def test_a_mutant_that_once_failed_is_read_or_refused(mutant, documents, tmp_path):
    target = mutant.parent.name
    if target in DOCUMENTS:
        words = [target, mutant, tmp_path, documents]
    else:
        (file,) = mutant.iterdir()
        words = [target, file, tmp_path]
    assert ended(AGAIN, *words, folder=tmp_path) == (0, "")


def test_every_format_and_every_document_has_files_to_mutate(documents):
    assert not set(formats()) & set(DOCUMENTS)
    assert [
        name for name in formats() if not any(path.name[0] == "y" for path in corpus(name))
    ] == []
    assert [
        name for name, (pattern, _) in DOCUMENTS.items() if not any(documents.glob(pattern))
    ] == []
