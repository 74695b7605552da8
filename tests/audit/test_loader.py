"""What a loader does to its process, to its samples and to an index, and what is said of it."""

import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest

from datacheck.errors import UsageError
from datacheck.scan.loader_audit.determinism import _attributed, _differing
from datacheck.scan.loader_audit.file_comparison import _clearly_larger
from datacheck.scan.loader_audit.first_pass import spread
from datacheck.scan.loader_audit.loader_process import Loader, read_all
from datacheck.scan.rescore import Rescore, rescore
from datacheck.workers import child
from datacheck.workers.child import Limits
from tests.audit.conftest import finding, told

LIMITS = Limits(item_s=2.0, memory_b=4 << 30)
X = {"x": {"role": "value", "shape": [6, 3]}, "number": {}}


def reasons(run):
    return {
        key: reason for key, reason in zip(run.table.keys, run.table.reasons, strict=True) if reason
    }


# -------------------------------------------------------------------------------------- the process


@pytest.mark.parametrize(
    ("factory", "said"),
    [
        ("raising", "DC101 ValueError: no such frame (odd.py:48 in _raise)"),
        ("exiting", "SystemExit: bye"),
        ("interrupted", "KeyboardInterrupt (odd.py"),
        ("recursing", "RecursionError: maximum recursion depth exceeded"),
        ("wordless", "_SilentError (odd.py:"),
        ("surrogates", "ValueError: \\udc80 (odd.py:"),
    ],
)
def test_an_index_that_raises_is_named_and_the_others_are_done(audit, factory, said):
    check_that_one_is_named(audit(f"odd:{factory}", X, limits=LIMITS), said)


@pytest.mark.parametrize(
    ("factory", "said"),
    [
        ("leaving", "the loader ended with status 9"),
        ("killed", "the loader was killed by SIGSEGV"),
        ("hanging", "still busy after 2 s"),
        ("greedy", "needs more memory than a sample may take"),
    ],
)
def test_an_index_that_hangs_or_kills_is_named_and_the_others_are_done(audit_anew, factory, said):
    check_that_one_is_named(audit_anew(f"odd:{factory}", X, limits=LIMITS), said)


def check_that_one_is_named(run, said):
    assert told(run) == [("DC101", "")]
    assert list(reasons(run)) == ["000000000003"]
    assert said in reasons(run)["000000000003"]
    assert run.report.dataset["samples"] == {
        "listed": 10,
        "checked": 9,
        "unreadable": 1,
        "skipped": 0,
    }
    assert (run.report.exit_code, int(run.valid.sum())) == (1, 9)
    assert "loader" in finding_of(run, "DC101").fix


def finding_of(run, code):
    return next(f for f in run.report.findings if f.code == code)


def test_what_a_loader_prints_or_reads_disturbs_nothing(audit_anew):
    run = audit_anew("odd:Noisy", X)
    assert (told(run), len(run.table)) == ([], 10)


def test_what_a_loader_starts_ends_with_the_scan(audit_anew):
    run = audit_anew("odd:Forking", X)
    assert (told(run), len(run.table)) == ([], 10)
    assert not [path for path in Path("/proc").glob("[0-9]*/cmdline") if _is_audit(path)]


def _is_audit(path):
    try:
        return (
            b"datacheck.workers.child" in path.read_bytes()
            and Path.cwd() == path.with_name("cwd").readlink()
        )
    except OSError:  # it has ended
        return False


def test_the_module_of_the_user_runs_in_the_child_only(audit, place):
    (place / "own_loader.py").write_text(
        "import os\nfrom tests.audit.loaders.odd import Plain\n"
        "open('imported.txt', 'a').write(f'{os.getpid()}\\n')\nclass Own(Plain): pass\n"
    )
    from datacheck.scan import scan_loader

    run = scan_loader("own_loader:Own")
    assert told(run) == []
    pids = (place / "imported.txt").read_text().split()
    assert len(set(pids)) >= 2  # a process for every pass
    assert str(os.getpid()) not in pids
    assert "own_loader" not in sys.modules


@pytest.mark.parametrize(
    ("factory", "said"),
    [
        ("nowhere:make", "No module named 'tests.audit.loaders.nowhere'"),
        ("odd:nowhere", "has no attribute 'nowhere'"),
        (
            "odd:number",
            "odd:number: is an object of type int, not a function that returns a dataset",
        ),
        ("odd:failing", "raises FileNotFoundError: data/list.txt (odd.py:"),
        ("odd:gone", "cannot be built: the loader ended with status 5"),
        ("odd:nothing", "returns an object of type NoneType without __getitem__"),
        ("odd:NoLength", "returns an object of type NoLength without __len__"),
        ("odd:TooLong", "says that it has 4,611,686,018,427,387,904 samples"),
        ("odd:Empty", "its dataset is empty (len 0)"),
        ("odd:BadLength", "len() of what it returns raises TypeError: unsized"),
    ],
)
def test_what_is_no_dataset_is_said(audit, factory, said):
    with pytest.raises(UsageError) as error:
        audit(factory)
    assert said in str(error.value)
    assert str(error.value).startswith("--loader tests.audit.loaders.")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def make(:\n", "the module cannot be imported: SyntaxError: "),
        (
            "import numpy\n1 / 0\n",
            "the module cannot be imported: ZeroDivisionError: division by zero (broken.py:2 in",
        ),
        ("import no_such_library\n", "No module named 'no_such_library'"),
    ],
)
def test_a_module_that_cannot_be_imported_is_said_with_its_line(place, text, said):
    (place / "broken.py").write_text(text)
    from datacheck.scan import scan_loader

    with pytest.raises(UsageError) as error:
        scan_loader("broken:make")
    assert said in str(error.value)
    assert "(broken.py:" in str(error.value)


# ------------------------------------------------------------------------------------------ values


@pytest.fixture
def torch_imported(forked_python, monkeypatch):
    """Fork loaders and their workers from a Python that has imported PyTorch, which takes 3 s."""

    def start(words, *, env, **options):
        shared, memory, _, *rest = words[4:]  # of the pid, the parent of a fork has another one
        boot = f"import multiprocessing as m; m.set_executable({forked_python!r}); {words[3]}"
        # A hash seed would take a new interpreter
        env = {name: value for name, value in env.items() if name != "PYTHONHASHSEED"}
        return started([forked_python, "-c", boot, shared, memory, "0", *rest], env=env, **options)

    started = child._Started
    monkeypatch.setattr(child, "_Started", start)


def answers(place, factory, whole=()):
    loader = Loader(f"tests.audit.loaders.{factory}", whole, Limits())
    try:
        loader.build()
        return list(read_all(loader))
    finally:
        loader.close()


def test_values_come_back_as_arrays_text_and_json(place, torch_imported):
    first, second = answers(place, "odd:Values", ["chat"])
    values = first["values"]
    assert set(values) == {
        "tensor",
        "half",
        "image",
        "nested/deep/flag",
        "nested/7",
        "pair/left",
        "pair/right",
        "list",
        "ragged",
        "words",
        "text",
        "bytes",
        "big",
        "chat",
        "tensors/0",
        "tensors/1",
    }
    np.testing.assert_array_equal(values["tensor"], np.full((2, 3), 0.5, np.float32))
    assert values["half"].dtype == np.float32
    assert values["half"].tolist() == [1.5, 1.5]
    assert values["image"].shape == (2, 4, 3)
    assert values["image"][0, 0].tolist() == [255, 0, 7]
    assert values["nested/deep/flag"].dtype == bool
    assert values["nested/7"].shape == ()
    assert values["list"].tolist() == [1, 2, 3]
    assert values["ragged"] == [[1, 2], [3]]
    assert (values["words"], values["text"], values["bytes"]) == (["a", "b"], "word", "word")
    assert (values["big"].dtype.str, values["big"].tolist()) == ("<i4", [2, 1, 0])
    assert values["chat"] == [{"role": "user", "content": "hi"}]
    assert first["digests"] == second["digests"]


def test_other_values_are_refused_by_the_name_of_their_type(place, torch_imported):
    said = [answer["error"] for answer in answers(place, "odd:Refused")]
    wanted = [
        "a: object;",
        "a: set;",
        "numpy.ndarray of object",
        "of complex128",
        "a key of type tuple",
        "no UTF-8",
        "datetime64",
        "a sparse or quantized tensor",
        "a/b: two values have this name",
        "int of object",
        "t\\udc80: text that is no UTF-8",
        "a: text that is no UTF-8",
        "a: text that is no UTF-8",
    ]
    assert [word in text for word, text in zip(wanted, said, strict=True)] == [True] * 13


def test_a_single_array_is_cut_into_the_columns_of_the_schema(audit):
    from datacheck.scan import scan_loader
    from datacheck.schema.model import Schema

    schema = Schema.model_validate(
        {
            "datacheck": 1,
            "name": "rows",
            "samples": {"files": "*"},
            "columns": "a:3 b:3",
            "fields": {"a": {"role": "value", "range": "-9..9"}, "b": {"role": "value"}},
        }
    )
    run = scan_loader("tests.audit.loaders.odd:Rows", schema)
    assert told(run) == []
    assert {"a:min", "b:min"} <= set(run.table.columns)


def test_samples_of_one_name_keep_keys_of_their_own(audit):
    run = audit(
        "odd:Twins",
        {"name": {"role": "id", "dtype": "text"}, "x": {"role": "value", "shape": [6, 3]}},
    )
    assert run.table.keys[:3] == ["scene0", "scene0#000000000001", "scene1"]


# -------------------------------------------------------------------------------------- determinism


@pytest.mark.parametrize(
    ("factory", "kind", "severity", "fields"),
    [
        ("Unseeded", "repeat", "warning", ("noise",)),
        ("OwnGenerator", "order", "warning", ("noise",)),
        ("BuiltAtRandom", "build", "warning", ("x",)),
        ("SetOrder", "hash", "error", ("label",)),
        ("OfProcess", "workers", "error", ("main",)),
        ("Augmented", "seed", "warning", ("x",)),
    ],
)
def test_what_decides_besides_the_index_is_named(audit, factory, kind, severity, fields):
    run = audit(f"odd:{factory}")
    assert told(run) == [("DC904", kind)]
    found = finding(run, "DC904")
    assert (found.severity, found.fields, found.failed) == (severity, fields, 0)
    assert found.measured["samples"] == 10
    assert found.measured["difference"] > 0 or kind == "workers"
    assert run.valid.all()


def test_a_second_pass_that_dies_is_said(audit):
    run = audit("odd:FailsInWorkers", limits=Limits(item_s=10.0))
    assert told(run) == [("DC904", "died")]
    assert "a worker process ended at index 4" in finding(run, "DC904").cause.text


@pytest.mark.slow
def test_datasets_of_torch_are_asked_by_a_data_loader(audit_anew, torch_imported):
    assert told(audit_anew("odd:torch_dataset")) == []
    run = audit_anew("odd:torch_random")
    assert told(run) == [("DC904", "seed")]
    assert finding(run, "DC904").measured["drew"] == ["torch"]
    assert finding(run, "DC904").fields == ("0",)


def test_two_scans_of_one_loader_say_the_same(audit):
    first, second = (audit("odd:LastGood", X) for _ in range(2))
    assert first.report.dataset == second.report.dataset
    assert [(f.id, f.message, f.examples) for f in first.report.findings] == [
        (f.id, f.message, f.examples) for f in second.report.findings
    ]


# ---------------------------------------------------------------------------------------- the index


@pytest.mark.parametrize(
    ("factory", "kinds"),
    [
        ("Plain", []),
        ("Slices", []),
        ("Constant", ["index-ignored"]),
        ("Next", ["index-ignored"]),
        ("Drawn", ["index-ignored"]),
        ("Wrapped", ["beyond"]),
        ("Endless", ["beyond"]),
        ("LastGood", ["substituted"]),
    ],
)
def test_an_index_that_is_not_served_is_named(audit, factory, kinds):
    run = audit(f"odd:{factory}", X)
    assert [kind for code, kind in told(run) if code == "DC905"] == kinds
    assert {code for code, _ in told(run)} <= {"DC905", "DC803"}


def test_the_sample_that_stands_in_is_named(audit):
    found = finding(audit("odd:LastGood", X), "DC905")
    assert found.measured["instead"] == {
        "000000000004": "000000000003",
        "000000000005": "000000000004",
    }
    assert found.examples == ("000000000004", "000000000005")


def test_a_dataset_inside_that_passes_another_sample_on_is_named(audit):
    found = finding(audit("odd:wrapped_last_good", X), "DC905")
    assert found.measured["instead"] == {
        "000000000002": "item 4 of the dataset inside",
        "000000000003": "item 3 of the dataset inside",
    }


def test_a_share_is_clearly_larger_by_three_times_and_three_standard_errors():
    assert _clearly_larger(1, 1000, 0, 5)  # the files have none
    assert not _clearly_larger(0, 1000, 0, 5)
    assert _clearly_larger(50, 100, 5, 100)  # 0.45 apart, standard error 0.063
    assert not _clearly_larger(14, 100, 5, 100)  # less than three times
    assert not _clearly_larger(3, 10, 1, 10)  # 0.2 apart, standard error 0.18


def test_what_follows_from_another_factor_is_no_cause():
    a, b = (0, "x"), (1, "x")
    kinds = "repeat order again seed build directory hash fork spawn"
    none = {kind: set() for kind in kinds.split()}
    assert _attributed(none) == {}
    assert _attributed(none | {"repeat": {a}, "order": {a}, "directory": {a, b}}) == {
        "repeat": {a},
        "directory": {b},
    }
    assert _attributed(none | {"order": {a}, "again": {a}, "fork": {a}, "spawn": {a}}) == {
        "order": {a}
    }
    assert _attributed(none | {"again": {a}}) == {"again": {a}}
    assert _attributed(none | {"fork": {a, b}, "spawn": {b}}) == {"workers": {b}, "fork": {a}}


def test_a_value_that_only_one_pass_has_differs():
    assert _differing(
        {0: {"x": 1}, 1: {"x": 2}}, {0: {"x": 1}, 1: {"x": 2, "y": 3}, 9: {"x": 1}}
    ) == {(1, "y")}


@pytest.mark.parametrize(
    ("count", "most", "chosen"),
    [(5, 10, [0, 1, 2, 3, 4]), (100, 3, [0, 50, 99]), (3, 0, []), (9, 1, [0])],
)
def test_indices_are_spread_evenly(count, most, chosen):
    assert spread(range(count), most) == chosen


def test_only_so_many_samples_are_read_again_and_the_rest_is_said(audit):
    run = audit("odd:Plain", X, compare=4)
    assert any("6 of 10 samples were read once" in said for said in run.report.unchecked)


# --------------------------------------------------------------------------------------- the report


def test_rules_that_judge_files_do_not_count_as_passed(audit):
    verdicts = {v.code: v.verdict for v in audit("odd:Plain", X).report.verdicts}
    assert (verdicts["DC105"], verdicts["DC108"], verdicts["DC701"]) == ("not_applicable",) * 3
    assert (verdicts["DC904"], verdicts["DC905"], verdicts["DC101"]) == ("pass",) * 3


def test_a_scan_of_files_judges_no_loader(data):
    from datacheck.scan import scan

    verdicts = {v.code: v.verdict for v in scan(data("aloha"), "aloha").report.verdicts}
    assert (verdicts["DC904"], verdicts["DC905"]) == ("not_applicable", "not_applicable")


def test_the_command_line_scans_a_loader(place, capfd):
    from datacheck.cli.main import run

    code = run(["scan", "--loader", "tests.audit.loaders.odd:LastGood", "--format", "json"])
    out, err = capfd.readouterr()
    said = json.loads(out)
    assert (code, err) == (1, "")
    assert said["dataset"]["root"] == "tests.audit.loaders.odd:LastGood"
    assert [f["rule"] for f in said["findings"]] == ["DC905"]
    assert (place / ".datacheck/latest/samples.parquet").is_file()


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["scan"], "name the data to scan"),
        (["scan", ".", "--split", "train"], "--split goes with --loader"),
        (["scan", ".", "--compare", "3"], "--compare goes with --loader"),
        (
            ["scan", "--loader", "nowhere:make"],
            "datacheck: --loader nowhere:make: No module named 'nowhere'",
        ),
    ],
)
def test_a_wrong_request_is_exit_2(place, capfd, args, said):
    from datacheck.cli.main import run

    assert run(args) == 2
    assert said in capfd.readouterr().err


def test_statistics_in_a_file_are_held_against_what_a_loader_returns(audit, place):
    (place / "data").mkdir()
    np.save(place / "data/0.npy", np.zeros((4, 3)))
    (place / "data/stats.json").write_text(json.dumps({"mean": [50.0, 50.0, 50.0]}))
    fields = {"x": {"role": "action", "shape": [6, 3], "stats": {"file": "stats.json"}}}
    assert ("DC228", "") in told(audit("odd:Plain", fields, place / "data", files_schema="files"))


def test_a_run_of_a_loader_is_not_judged_again(audit):
    run = audit("odd:Plain", X)
    with pytest.raises(
        UsageError,
        match=r"is of a loader.*Scan it again: --loader [\w.]*odd:Plain; datacheck report ",
    ):
        rescore(Rescore(Path(run.report.folder)))
