"""`scripts/new` in a copy of the repository: skeletons are formatted, found by the package, and pass their tests."""

import os
import shutil
import subprocess
import sys

import pytest

KINDS = {  # kind: words of the request, files that it creates, files that it changes
    "rule": (
        ("huge-value", "--family", "columns", "--code", "DC139"),
        ["datacheck/rules/zh/DC139.md", "tests/rules/test_huge_value.py"],
        [
            "datacheck/rules/families/columns.py",
            "datacheck/rules/measures.py",
            "tests/pins/public.txt",
        ],
    ),
    "format": (
        ("numtab",),
        [
            "datacheck/formats/numtab.py",
            "tests/formats/test_numtab.py",
            "tests/corpus/numtab/y_small.numtab",
            "tests/corpus/numtab/n_first.numtab",
            "tests/corpus/numtab/n_width.numtab",
            "tests/corpus/numtab/n_empty.numtab",
        ],
        [],
    ),
    "transform": (
        ("add-offset",),
        ["datacheck/transforms/add_offset.py", "tests/transforms/test_add_offset.py"],
        ["pipelines/README.md"],
    ),
    "schema": (
        ("my_rooms",),
        ["schemas/my_rooms.yaml"],
        ["tests/schema/test_builtin.py", "schemas/README.md"],
    ),
    "command": (
        ("count-files",),
        ["datacheck/cli/count_files.py", "tests/cli/test_count_files.py", "docs/count-files.md"],
        [
            "datacheck/cli/commands.py",
            "tests/hostile/commands.py",
            "mkdocs.yml",
            "tests/pins/public.txt",
        ],
    ),
}
LEFT_OUT = shutil.ignore_patterns("__pycache__", ".*", "site", "dist", "demo", "node_modules")
ASK = """
from datacheck.formats.base import format_of, open_container
from datacheck.schema.load import choose_schema, load_schema
from datacheck.transforms import step
with open_container(__import__("pathlib").Path("tests/corpus/numtab/y_small.numtab")) as container:
    print(format_of("a.numtab").name, container.read("table").shape)
print(step({"add_offset": {"fields": ["x"], "offset": 1.0}}).identity())
print(load_schema("my_rooms").name)
from tests.hostile.commands import TABLES, commands
print("count-files" in commands(), any("count-files" in table for table in TABLES))
from tests.pins.pins import PUBLIC, public
print(public() == PUBLIC.read_text(encoding="utf-8").splitlines())
"""


def run(place, *words):
    env = os.environ | {"PYTHONPATH": str(place), "PYTHONSAFEPATH": "1"}
    return subprocess.run(
        list(map(str, words)), cwd=place, env=env, capture_output=True, text=True, check=False
    )


def files(place):
    return {
        path.relative_to(place).as_posix(): path.stat().st_mtime_ns
        for path in place.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


@pytest.fixture(scope="module")
def copy(repository, tmp_path_factory):
    place = tmp_path_factory.mktemp("new") / "copy"
    shutil.copytree(repository, place, ignore=LEFT_OUT)
    return place


@pytest.fixture(scope="module")
def written(copy):
    """What `scripts/new` prints for each kind, by kind; and which files there were before and are now."""
    before, said = files(copy), {}
    for kind, (words, _, _) in KINDS.items():
        made = run(copy, sys.executable, "scripts/new", kind, *words)
        assert (made.returncode, made.stderr) == (0, ""), kind
        said[kind] = made.stdout
    return said, before, files(copy)


@pytest.mark.parametrize("kind", KINDS)
def test_it_says_what_it_wrote_and_what_to_do_next(kind, written):
    _, created, changed = KINDS[kind]
    lines = written[0][kind].splitlines()
    end = lines.index("")
    assert lines[:end] == [f"wrote    {p}" for p in created] + [f"changed  {p}" for p in changed]
    assert lines[end + 1] == "Next:"
    assert [line.partition(".")[0] for line in lines[end + 2 :]] == [
        str(number) for number in range(1, len(lines) - end - 1)
    ]
    assert any("pytest -q" in line for line in lines[end + 2 :])


def test_nothing_but_what_it_names_is_written(written):
    _, before, after = written
    created = {path for _, made, _ in KINDS.values() for path in made}
    changed = {path for _, _, touched in KINDS.values() for path in touched}
    assert after.keys() - before.keys() == created | {"docs/rules/DC139.md"}
    touched = {path for path in before if before[path] != after[path]}
    assert {path for path in touched if not path.startswith("docs/rules/")} == changed


def test_what_is_written_is_linted_and_formatted(written, copy):
    names = [path for _, made, touched in KINDS.values() for path in [*made, *touched]]
    modules = sorted({name for name in names if name.endswith(".py")})
    for words in (("check",), ("format", "--check")):
        done = run(copy, "ruff", *words, "--no-cache", *modules, "scripts/new")
        assert done.returncode == 0, done.stdout


def test_the_package_finds_the_skeletons(written, copy):
    done = run(copy, sys.executable, "-c", f"import sys; sys.path.insert(0, '.')\n{ASK}")
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "numtab (2, 3)",
        "{'use': 'add_offset', 'version': 1, 'options': {'fields': ['x'], 'offset': 1.0}}",
        "my_rooms",
        "True True",
        "True",
    ]


def test_the_command_line_knows_them(written, copy):
    datacheck = (sys.executable, "-m", "datacheck")
    rules = [line.split() for line in run(copy, *datacheck, "rules").stdout.splitlines()]
    assert ["DC139", "warning", "huge-value"] in [line[:3] for line in rules]
    page = run(copy, *datacheck, "explain", "DC139").stdout
    assert page.startswith("DC139 huge-value")
    assert (
        "role 为 `value` 的字段" in run(copy, *datacheck, "explain", "DC139", "--lang", "zh").stdout
    )
    counted = run(copy, *datacheck, "count-files", "schemas").stdout
    assert counted.startswith("schemas: ")
    assert " files, " in counted
    checked = run(copy, *datacheck, "schema", "check", "schemas/my_rooms.yaml")
    assert "schema my_rooms is well formed" in checked.stdout


def test_the_tests_of_the_skeletons_pass(written, copy):
    own = [path for _, made, _ in KINDS.values() for path in made if path.startswith("tests/")]
    done = run(
        copy,
        *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"),
        *(path for path in own if path.endswith(".py")),
        *("tests/rules/test_examples.py", "tests/report/test_chinese.py"),
        *("tests/schema/test_builtin.py", "tests/hostile/test_rows.py"),
        *("-k", "DC139 or huge or numtab or add_offset or my_rooms or count_files or row"),
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("rule", "huge-value", "--family", "columns"), "huge_value already"),
        (("rule", "other-value", "--family", "nowhere"), "--family nowhere: one of annotations, "),
        (("rule", "other-value", "--family", "columns", "--code", "DC130"), "DC130: is taken"),
        (("rule", "other-value", "--family", "columns", "--code", "DC901"), "--code DC901: "),
        (("format", "numtab"), "knows .numtab already"),
        (("format", "npy"), "knows .npy already"),
        (("transform", "scale"), "datacheck/transforms/scale.py: exists"),
        (("schema", "ho3d"), "schemas/ho3d.yaml: exists"),
        (("command", "scan"), "datacheck/cli/scan.py: exists"),
        (("command", "Scan"), "lower-case letters"),
        (("transform", "import"), "no keyword of Python"),
        (("schema", "../outside"), "lower-case letters"),
    ],
)
def test_nothing_is_overwritten(words, why, written, copy):
    before = files(copy)
    done = run(copy, sys.executable, "scripts/new", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert why in done.stderr
    assert done.stderr.endswith("Nothing was written.\n")
    assert files(copy) == before


@pytest.mark.parametrize("name", ["q", "q" * 20, "qq-" * 6 + "qq"])
def test_a_short_and_a_long_name_are_formatted_too(name, written, copy):
    names = ["scripts/new"]
    for kind in KINDS:
        word = name.replace("-", "") if kind == "format" else name
        more = ["--family", "labels"] if kind == "rule" else []
        done = run(copy, sys.executable, "scripts/new", kind, word, *more)
        assert (done.returncode, done.stderr) == (0, ""), kind
        lines = [line.split() for line in done.stdout.splitlines()]
        names += [line[1] for line in lines if line and line[0] in {"wrote", "changed"}]
    modules = sorted({name for name in names if name.endswith(".py")})
    for words in (("check",), ("format", "--check")):
        done = run(copy, "ruff", *words, "--no-cache", *modules)
        assert done.returncode == 0, done.stdout
