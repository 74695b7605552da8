import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import orjson
import pytest

import datacheck
from datacheck.errors import OutOfSpaceError, UsageError
from datacheck.model.finding import Verdict
from datacheck.model.table import CHECKED, UNREADABLE
from datacheck.scan import Request, judging, measuring, run_scan, scan
from datacheck.scan import run_documents as stored
from datacheck.scan.run_state import read_state, state_bytes
from datacheck.scan.samples import read_table
from datacheck.schema.load import parse_schema
from datacheck.workers.parallel import Limits

PLAIN = """
datacheck: 1
name: plain
samples: {files: "*.npy"}
fields:
  x: {role: points, shape: [P, 3], unit: m, size: 0.5..2, centered: box}
"""


def cloud(seed, scale=1.0):
    """A unit box in which points lie; its diagonal is sqrt(3) * scale to 1 %."""
    points = np.random.default_rng(seed).uniform(size=(200, 3)).astype(np.float32) - 0.5
    points[0], points[1] = -0.5, 0.5
    return points * np.float32(scale)


@pytest.fixture
def data(in_tmp):
    folder = in_tmp / "data"
    folder.mkdir()
    for i in range(20):
        np.save(folder / f"{i:03d}.npy", cloud(i))
    age(folder)
    return folder


def age(folder):
    """Make files look settled: written long before they are seen."""
    for path in folder.rglob("*"):
        os.utime(path, (1_000_000_000, 1_000_000_000))


def plain(**changes):
    return parse_schema(PLAIN).model_copy(update=changes)


def run(data, schema=None, **options):
    return run_scan(schema or plain(), Request(data, **options))


@pytest.mark.parametrize("gone", ["samples.parquet", "listing.npz"])
def test_an_earlier_run_that_another_scan_replaces_at_that_moment_is_not_missed(
    data, monkeypatch, gone
):
    output = data.parent / "out"
    run(data, output=output)
    before = run(data, output=output)  # of the third, both files are those of the second
    write_run = stored.write_run

    def replaced(*given):
        (output / gone).unlink(missing_ok=True)
        write_run(*given)

    monkeypatch.setattr(stored, "write_run", replaced)
    again = run(data, output=output)
    assert read_table(output / "samples.parquet").keys == before.table.keys
    assert read_state(output).listing.digest == again.listing.digest == before.listing.digest


def test_an_earlier_run_that_goes_before_its_rows_are_looked_at_is_not_missed(data, monkeypatch):
    output = data.parent / "out"
    before = run(data, output=output)
    judge = judging.judge

    def judged(*args):
        shutil.rmtree(output)
        return judge(*args)

    monkeypatch.setattr(judging, "judge", judged)
    run(data, output=output)
    assert read_state(output).listing.digest == before.listing.digest


def told(result):
    return {f.code: (f.failed, f.examples) for f in result.report.findings}


def test_a_clean_dataset_is_valid_and_its_counts_add_up(data):
    result = run(data)
    assert result.report.findings == []
    assert result.valid.all()
    assert result.report.exit_code == 0
    samples = result.report.dataset["samples"]
    assert samples == {"listed": 20, "checked": 20, "unreadable": 0, "skipped": 0}
    assert result.table.keys == sorted(p.name for p in data.iterdir())


def test_every_fault_is_found_by_name_and_only_faulty_samples_are_invalid(data):
    bad = cloud(3)
    bad[17, 1] = np.nan
    np.save(data / "003.npy", bad)
    np.save(data / "005.npy", cloud(5, 1000))
    (data / "007.npy").write_bytes((data / "007.npy").read_bytes()[:500])
    result = run(data)
    found = told(result)
    assert found["DC221"] == (1, ("003.npy",))
    assert found["DC201"] == (1, ("005.npy",))
    assert found["DC101"] == (1, ("007.npy",))
    assert [result.table.keys[i] for i in np.flatnonzero(~result.valid)] == [
        "003.npy",
        "005.npy",
        "007.npy",
    ]
    assert result.report.dataset["samples"] == {
        "listed": 20,
        "checked": 19,
        "unreadable": 1,
        "skipped": 0,
    }
    assert result.report.exit_code == 1


def test_the_files_left_behind_say_the_same(data):
    np.save(data / "005.npy", cloud(5, 1000))
    result = run(data)
    folder = Path(result.report.folder)
    assert sorted(p.name for p in folder.iterdir()) == sorted(stored.NAMES)
    said = json.loads((folder / "result.json").read_bytes())
    assert said["format"] == "datacheck.result/1"
    seconds = said["run"]["rule_seconds"]
    assert seconds.keys() <= said["rules"].keys()
    assert all(isinstance(s, float) for s in seconds.values())
    assert said["verdict"] == {
        "status": "fail",
        "exit_code": 1,
        "counts": {"error": 1, "warning": 0, "info": 0},
        "valid": 19,
    }
    assert said["findings"][0]["examples"] == ["005.npy"]
    assert said["rules"]["DC201"]["failed"] == 1
    assert set(said["rules"]) == {v.code for v in result.report.verdicts}
    valid = json.loads((folder / "valid.json").read_bytes())
    assert valid["excluded"] == {"005.npy": ["DC201"]}
    assert (valid["samples"], valid["valid"], valid["listing"]) == (
        20,
        19,
        said["dataset"]["digest"],
    )
    assert read_table(folder / "samples.parquet").keys == result.table.keys
    assert (Path(".datacheck/latest") / "result.json").samefile(folder / "result.json")


def no_run(folder):
    """result.json without what is about the run itself."""
    said = json.loads(Path(folder, "result.json").read_bytes())
    del said["run"]
    return said


def without_run(report):
    said = orjson.loads(stored.dump_json(stored.result(report)))
    del said["run"]
    return said


@pytest.mark.parametrize("workers", [1, 2])
def test_the_same_data_give_the_same_result_whoever_measures(data, monkeypatch, workers):
    np.save(data / "005.npy", cloud(5, 1000))
    (data / "007.npy").write_bytes(b"\x93NUMPY")
    first = run(data)
    rows = Path(first.report.folder, "samples.parquet").read_bytes()
    shutil.rmtree(".datacheck")
    monkeypatch.setattr(measuring, "TASK_ITEMS", 7)
    second = run(data, workers=workers)
    folder = Path(second.report.folder)
    assert (folder / "samples.parquet").read_bytes() == rows
    assert json.loads((folder / "valid.json").read_bytes()) == stored.valid(
        first.report, first.table, first.codes
    )
    assert no_run(folder) == without_run(first.report)


def test_the_workers_of_a_dask_cluster_give_the_same_result(data, monkeypatch):
    import distributed

    np.save(data / "005.npy", cloud(5, 1000))
    first = run(data)
    shutil.rmtree(".datacheck")
    monkeypatch.setattr(measuring, "TASK_ITEMS", 7)
    options = {
        "n_workers": 2,
        "threads_per_worker": 1,
        "processes": True,
        "dashboard_address": "127.0.0.1:0",
    }
    with distributed.LocalCluster(host="127.0.0.1", silence_logs=50, **options) as cluster:
        second = run(data, scheduler=cluster.scheduler_address)
    assert no_run(second.report.folder) == without_run(first.report)


def test_the_results_of_a_scan_are_no_part_of_the_data(data, monkeypatch):
    monkeypatch.chdir(data)
    first, second = run(Path()), run(Path())
    assert first.report.dataset["digest"] == second.report.dataset["digest"]
    assert second.report.run["kept_files"] == 20


OPENED = """
import os, sys
opened = []
sys.addaudithook(lambda event, args: opened.append(os.path.abspath(str(args[0]))) if event == "open" else None)
from datacheck.cli.main import run
code = run(["scan", "data", "--schema", "schema.yaml"])
print("\\n".join(path for path in opened if path.startswith(os.path.abspath("data") + os.sep)), file=sys.stderr)
sys.exit(code)
"""


def opened(folder):
    """Scan in a process of its own; return the data files that it and its children opened, and how many were kept."""
    done = subprocess.run(
        [sys.executable, "-c", OPENED], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode in {0, 1}, done.stderr
    said = json.loads((folder / ".datacheck/latest/result.json").read_bytes())
    return done.stderr.split(), said["run"]["kept_files"]


def test_a_second_scan_opens_no_data_file_and_no_list(in_tmp):
    data = in_tmp / "data"
    (data / "train").mkdir(parents=True)
    for i in range(5):
        np.save(data / f"train/{i}.npy", cloud(i))
    (data / "train.txt").write_text("".join(f"{i}\n" for i in [*range(5), 9]))
    listed = PLAIN.replace('"*.npy"', '"{split}/{id}.npy", list: "{split}.txt"')
    (in_tmp / "schema.yaml").write_text(listed)
    age(data)
    first, kept = opened(in_tmp)
    assert (Path(first[0]).name, kept) == ("train.txt", 0)
    before = json.loads((in_tmp / ".datacheck/latest/result.json").read_bytes())
    assert opened(in_tmp) == ([], 5)
    assert opened(in_tmp) == ([], 5)
    folder = in_tmp / ".datacheck/latest"
    after = json.loads((folder / "result.json").read_bytes())
    assert after["findings"] == before["findings"] != []
    assert after["dataset"] == before["dataset"]
    assert (folder / "samples.parquet").stat().st_nlink == 3, (
        "the rows of an unchanged scan are not written again"
    )
    (data / "train.txt").write_text("".join(f"{i}\n" for i in range(5)))
    os.utime(data / "train.txt", (1_000_000_000, 1_000_000_000))
    assert opened(in_tmp) == ([str(data / "train.txt")], 5), (
        "a list that has changed is read, the samples are not"
    )
    os.utime(data / "train/3.npy", (1_000_000_001, 1_000_000_001))
    assert opened(in_tmp)[1] == 4


def test_a_second_scan_opens_no_data_file(data):
    first = run(data)
    for (
        path
    ) in data.iterdir():  # same size, times and inode, but nothing that a reader would accept
        before = path.stat()
        with path.open("r+b") as file:
            file.write(b"\0" * before.st_size)
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    forget_ctime(first)
    second = run(data)
    assert second.report.run["kept_files"] == 20
    assert second.report.run["kept_samples"] == 20
    assert (second.table.status == CHECKED).all()
    assert second.report.dataset["digest"] == first.report.dataset["digest"]
    assert no_run(second.report.folder)["findings"] == []


def forget_ctime(result):
    """Write the present ctimes into a run's listing: no test can set a file's ctime."""
    folder = Path(result.report.folder)
    past = read_state(folder)
    for place, path in enumerate(past.listing.entries.paths):
        past.listing.entries.numbers[place, 2] = Path(past.listing.root, path).stat().st_ctime_ns
    (folder / stored.LISTING).write_bytes(state_bytes(past))


def test_with_rehash_a_changed_byte_behind_unchanged_times_is_found_and_named(data):
    first = run(data)
    path = data / "011.npy"
    before = path.stat()
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    forget_ctime(first)
    assert run(data).report.findings == []
    result = run(data, rehash=True)
    (finding,) = result.report.findings
    assert finding.code == "DC108"
    assert "011.npy" in finding.message
    assert finding.examples == ("011.npy",)


def test_one_changed_file_is_read_again_alone_and_named(data):
    assert verdict(run(data), "DC108").verdict is Verdict.NOT_APPLICABLE
    np.save(data / "011.npy", cloud(99))
    result = run(data)
    assert result.report.run["kept_files"] == 19
    assert [(f.code, f.examples) for f in result.report.findings] == [("DC108", ("011.npy",))]
    third = run(data)
    assert verdict(third, "DC108").verdict is Verdict.PASS


def verdict(result, code):
    return next(v for v in result.report.verdicts if v.code == code)


def test_a_new_threshold_reads_no_data(data):
    run(data)
    tight = parse_schema(PLAIN.replace("0.5..2", "5..9"))
    result = run(data, tight)
    assert result.report.run["kept_files"] == 20
    assert told(result)["DC201"][0] == 20


def test_a_companion_that_comes_later_is_seen(data):
    text = (
        PLAIN.replace('"*.npy"', '"{id:\\\\d+}.npy"')
        + '  mask: {file: "mask_{id}.npy", optional: true, shape: [P]}\n'
    )
    schema = parse_schema(text)
    assert "mask:dtype" not in run(data, schema).table.columns
    np.save(data / "mask_003.npy", np.zeros(200))
    result = run(data, schema)
    assert result.report.run["kept_files"] == 19
    assert any(name.startswith("mask:") for name in result.table.columns)


def test_what_kills_or_hangs_the_reader_is_one_unreadable_sample(data, monkeypatch, repository):
    monkeypatch.syspath_prepend(str(repository))
    monkeypatch.setattr(measuring, "_MEASURE", "tests.scan.misbehaving:measure_items")
    for name in ("kill_1.npy", "hang_2.npy"):
        np.save(data / name, cloud(1))
    result = run(data, limits=Limits(item_s=3.0))
    reasons = {k: r for k, r in zip(result.table.keys, result.table.reasons, strict=True) if r}
    assert reasons["kill_1.npy"].startswith("DC101 the parser was killed by SIGSEGV")
    assert reasons["hang_2.npy"] == "DC101 still busy after 3 s"
    assert result.report.dataset["samples"]["checked"] == 20
    assert result.report.exit_code == 1
    monkeypatch.setattr(measuring, "_MEASURE", "datacheck.scan.worker:measure_items")
    again = run(data)
    assert set(again.table.reasons) == {""}, (
        "another machine, or this one on another day, may well read them"
    )
    assert again.report.run["kept_files"] == 20


def test_a_reader_that_raises_is_a_crash_with_its_traceback_and_exit_code_4(
    data, monkeypatch, repository
):
    monkeypatch.syspath_prepend(str(repository))
    monkeypatch.setattr(measuring, "_MEASURE", "tests.scan.misbehaving:measure_items")
    np.save(data / "bug_1.npy", cloud(1))
    result = run(data)
    assert result.report.exit_code == 4
    (crash,) = result.report.crashes
    assert (crash["at"], "RuntimeError: bug" in crash["traceback"]) == ("bug_1.npy", True)
    assert result.table.status.tolist().count(UNREADABLE) == 1
    again = run(data)
    assert again.report.exit_code == 4, "a crash is never remembered as done"


def test_an_interrupted_scan_goes_on_where_it_was(data, monkeypatch):
    monkeypatch.setattr(measuring, "TASK_ITEMS", 5)

    def stop_after_two(tick):
        if tick.files == 10:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as stopped:
        run_scan(plain(), Request(data), stop_after_two)
    assert stopped.value.__notes__ == [
        "10 of 20 files are done and kept: the same command goes on."
    ]
    assert not Path(".datacheck/latest").exists()
    ticks = []
    result = run_scan(plain(), Request(data), ticks.append)
    assert (ticks[0].kept, ticks[0].all_files, ticks[-1].files) == (10, 10, 10)
    assert (result.table.status == CHECKED).all()
    assert len(result.table) == 20
    assert list(Path(".datacheck").glob(".work*")) == []
    shutil.rmtree(".datacheck")
    whole = run(data)
    assert no_run(whole.report.folder) == without_run(result.report)


def test_results_in_a_chosen_folder_replace_those_of_an_earlier_scan(data):
    first = run(data, output=Path("out/here"))
    assert first.report.folder == "out/here"
    np.save(data / "005.npy", cloud(5, 1000))
    second = run(data, output=Path("out/here"))
    assert second.report.run["kept_files"] == 19
    assert json.loads(Path("out/here/valid.json").read_bytes())["excluded"] == {
        "005.npy": ["DC201"]
    }
    assert os.listdir("out") == ["here"]
    assert not Path(".datacheck").exists()


def test_a_waiver_that_matches_nothing_ends_the_scan_but_not_the_work(data):
    schema = parse_schema(PLAIN + "rules: {DC201: {ignore: [nobody.npy], reason: giant}}\n")
    with pytest.raises(UsageError, match=r"'nobody\.npy' matches no sample"):
        run(data, schema)
    assert run(data).report.run["kept_files"] == 20


# ---------------------------------------------------------------------------------------- bad input


def test_a_folder_without_files_is_said(in_tmp):
    (in_tmp / "empty").mkdir()
    with pytest.raises(UsageError, match="empty: holds no files"):
        run(in_tmp / "empty")
    os.mkfifo(in_tmp / "empty/pipe")
    with pytest.raises(
        UsageError, match=r"that can be scanned \(1 left out; pipe: not a regular file"
    ):
        run(in_tmp / "empty")


def test_a_schema_that_fits_no_file_is_said_with_its_patterns(data):
    with pytest.raises(
        UsageError, match=r"none of its 20 files fits schema plain .*\*\.h5.*--schema files"
    ):
        run(data, parse_schema(PLAIN.replace("*.npy", "*.h5")))


def test_files_of_no_known_format_are_told_which_formats_there_are(in_tmp):
    (in_tmp / "odd").mkdir()
    (in_tmp / "odd/a.xyz7").write_bytes(b"1 2 3")
    with pytest.raises(
        UsageError,
        match=r"the first is a\.xyz7\. No format reads them; known are arrow, .*hdf5, .*zarr",
    ) as said:
        scan("odd", "files")
    assert "--schema" not in str(said.value)


def test_a_path_that_is_not_there_is_said(in_tmp):
    with pytest.raises(UsageError, match="nowhere: no such file or folder"):
        run(in_tmp / "nowhere")


def test_a_field_that_no_sample_has_is_a_finding(data):
    result = run(data, parse_schema(PLAIN + "  colour: {role: color, shape: [P, 3]}\n"))
    assert told(result)["DC121"][0] == 20


def test_a_full_disk_leaves_nothing_half_written(data, monkeypatch):
    from datacheck.runtime import fsops

    real = fsops.write_file

    def full(path, parts, **options):
        if path.name == "valid.json":
            raise fsops.as_storage_error(OSError(28, "No space left on device"), path)
        real(path, parts, **options)

    monkeypatch.setattr(fsops, "write_file", full)
    with pytest.raises(OutOfSpaceError, match="no space left"):
        run(data)
    assert not Path(".datacheck/latest").exists()
    assert list(Path(".datacheck").glob("*/result.json")) == []
    monkeypatch.undo()
    monkeypatch.chdir(data.parent)
    assert run(data).report.run["kept_files"] == 20


# ----------------------------------------------------------------------------------------- the name


def test_scan_has_a_name_at_the_top_that_is_not_the_package(data):
    assert datacheck.scan_dataset is scan
    assert scan(data, plain()).valid.all()


@pytest.mark.parametrize(
    "made",
    [
        lambda data: scan("a\0b"),
        lambda data: scan("a\0b", plain()),
        lambda data: scan(data, plain(), output=Path("a\0b")),
        lambda data: scan(data, plain(roots={"objects": None}), roots={"objects": "a\0b"}),
        lambda data: datacheck.verify("a\0b"),
        lambda data: datacheck.open_cache("a\0b"),
        lambda data: datacheck.build_cache(plain(), data, "a\0b"),
    ],
)
def test_a_path_that_no_file_can_have_is_a_wrong_request(data, made):
    with pytest.raises(UsageError, match=r"a\\x00b: holds the character NUL.* Leave it out"):
        made(data)


def test_a_single_file_can_be_scanned(data):
    result = run(data / "003.npy")
    assert result.table.keys == ["003.npy"]


def test_a_schema_is_drafted_where_none_is_named_and_none_fits(data):
    assert scan(data).report.schema["name"] == data.name
    assert scan(data, "files").report.schema["name"] == "files"
    assert Request(data).fail_on == "error"
