"""Which code a user's function is made of, found without running it."""

from __future__ import annotations

import importlib.metadata
import json
import os
import shutil
import subprocess
import sys

import pytest
import xxhash

from datacheck.errors import UsageError
from datacheck.transforms.custom import code_digests
from tests.conftest import REPOSITORY


def digest(path):
    return xxhash.xxh3_128_hexdigest(path.read_bytes())


@pytest.fixture
def code(tmp_path, monkeypatch):
    """Write modules and find them; their names are of this test alone."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(**files):
        for name, text in files.items():
            path = tmp_path / f"{name.replace('__', '/')}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return tmp_path

    return write


def test_modules_beside_it_count_over_any_number_of_steps(code):
    place = code(
        ct_a="import ct_b\nimport os, json\ndef f(s): pass\n",
        ct_b="def g():\n    from ct_c import h\n    return h\n",
        ct_c="h = 1\n",
        ct_unused="",
    )
    assert code_digests("ct_a") == {
        name: digest(place / f"{name}.py") for name in ("ct_a", "ct_b", "ct_c")
    }


def test_an_edit_anywhere_below_changes_it_and_the_place_does_not(code, tmp_path, monkeypatch):
    place = code(ct_d="import ct_e\n", ct_e="x = 1\n")
    before = code_digests("ct_d")
    (place / "ct_e.py").write_text("x = 2\n")
    after = code_digests("ct_d")
    assert (before["ct_d"], before["ct_e"] != after["ct_e"]) == (after["ct_d"], True)
    assert str(tmp_path) not in str(after)


def test_packages_are_followed_by_absolute_and_relative_imports(code, tmp_path):
    place = tmp_path / "ctp"
    (place / "inner").mkdir(parents=True)
    (place / "__init__.py").write_text("from . import first\n")
    (place / "first.py").write_text("from .inner.second import x\n")
    (place / "inner/__init__.py").write_text("")
    (place / "inner/second.py").write_text("from .. import third\nx = 1\n")
    (place / "third.py").write_text("import ctp.missing_here\n")
    found = code_digests("ctp.first")
    assert set(found) == {"ctp", "ctp.first", "ctp.inner", "ctp.inner.second", "ctp.third"}
    assert found["ctp.third"] == digest(place / "third.py")


def test_other_distributions_count_by_their_version(code):
    code(
        ct_g="import numpy.linalg\nfrom scipy_that_is_not_there import x\nimport pytest as "
        "p\nimport datacheck\n"
    )
    found = code_digests("ct_g")
    assert found["numpy"] == f"numpy {importlib.metadata.version('numpy')}"
    assert found["pytest"] == f"pytest {importlib.metadata.version('pytest')}"
    assert found["scipy_that_is_not_there"] == "absent"
    assert "datacheck" not in found


PLANTED = {  # module: (file of its distribution's folder, text)
    "ct_declared": ("ct_a-1.dist-info/top_level.txt", "ct_declared"),
    "ct_package": (
        "ct_b-2.dist-info/RECORD",
        "ct_package/__init__.py,,\nct_b-2.dist-info/RECORD,,\n",
    ),
    "ct_single": ("ct_c-3.dist-info/RECORD", "other/ct_within.py,,\nct_single.py,,\n"),
    "ct_quoted": ("ct_d-4.dist-info/RECORD", '"ct_quoted/a,b.py",,\n'),
    "ct_egg": ("ct_e-5.egg-info/SOURCES.txt", "setup.py\nct_egg/__init__.py\n"),
    "ct_unlisted": ("ct_f-6.dist-info/INSTALLER", "pip"),
    "ct_data": ("ct_g-7.dist-info/RECORD", "ct_data/x.json,,\n"),
}


_BOTH = """
import importlib.metadata, json, sys
from datacheck.transforms.custom import code_digests
names, found = json.loads(sys.argv[1]), code_digests("ct_t")
known = importlib.metadata.packages_distributions()
def versions(name):
    return ", ".join(f"{one} {importlib.metadata.version(one)}" for one in sorted(known.get(name, ())))
print(json.dumps([{n: found[n] for n in names}, {n: versions(n) or "absent" for n in names}]))
"""


def test_a_module_has_the_distributions_that_the_standard_library_finds(code, tmp_path):
    for file, text in PLANTED.values():
        place = tmp_path / file
        place.parent.mkdir()
        place.write_text(text)
        name, version = place.parent.name.rsplit(".", 1)[0].split("-")
        for metadata in ("METADATA", "PKG-INFO"):
            (place.parent / metadata).write_text(f"Name: {name}\nVersion: {version}\n")
    names = [*PLANTED, "ct_within", "numpy", "pytest", "yaml", "_pytest"]
    code(ct_t="".join(f"import {name}\n" for name in names))
    # In a process of its own: other tests leave search paths and finders in this one.
    run = subprocess.run(
        [sys.executable, "-c", _BOTH, json.dumps(names)],
        env=os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{REPOSITORY}"},
        capture_output=True,
        text=True,
        check=True,
    )
    found, known = json.loads(run.stdout)
    assert found == known
    assert found["ct_package"] == "ct_b 2"
    assert found["ct_unlisted"] == found["ct_within"] == "absent"


def test_modules_that_import_one_another_end(code):
    place = code(ct_h="import ct_i\n", ct_i="import ct_h\n")
    assert set(code_digests("ct_h")) == {"ct_h", "ct_i"}
    shutil.rmtree(place / "__pycache__", ignore_errors=True)


def test_a_compiled_module_beside_it_counts_by_its_file(code, tmp_path):
    """Any extension module will do: it is copied under its own name and never run."""
    (original,) = [
        p for p in importlib.metadata.files("xxhash") if "_xxhash" in p.name and p.suffix == ".so"
    ]
    place = tmp_path / "ctx"
    place.mkdir()
    (place / "__init__.py").write_text("from . import _xxhash\n")
    shutil.copy(original.locate(), place / original.name)
    assert code_digests("ctx")["ctx._xxhash"] == digest(place / original.name)


def test_a_module_of_an_installed_package_does_not_take_its_neighbours_along():
    found = code_digests("xxhash")
    assert "numpy" not in found
    assert {name.partition(".")[0] for name in found} == {"xxhash"}


def test_a_module_without_a_file_is_refused():
    with pytest.raises(UsageError, match="source file is not found"):
        code_digests("ct_nowhere")
    with pytest.raises(UsageError, match="source file is not found"):
        code_digests("sys")


def test_a_neighbour_that_is_no_python_is_refused(code):
    code(ct_k="import ct_l\n", ct_l="def (:\n")
    with pytest.raises(UsageError, match=r"ct_l\.py: is no Python"):
        code_digests("ct_k")
