"""Documents of runs that somebody damaged or made up.

In full: scripts/bench/faults/documents.py.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from datacheck.cli.main import run
from datacheck.errors import DamagedRunError, UsageError
from datacheck.model.table import Measured, Table, Texts
from datacheck.report import croissant
from datacheck.runtime.documents import Arrays, check_values, open_document, read_json
from datacheck.runtime.hashing import digest64
from datacheck.scan import Request, run_scan, samples, scan
from datacheck.scan.rescore import Rescore, baseline_of, rescore
from datacheck.scan.row_reuse import interrupted_run
from datacheck.scan.run_dir import Journal, RunLocation
from datacheck.scan.run_documents import read_result
from datacheck.scan.run_state import last_finished, read_state
from datacheck.scan.samples import read_table, table_bytes
from datacheck.schema.load import load_schema, parse_schema
from datacheck.torch.wrap import VALID_BYTES, VALID_BYTES_EACH
from datacheck.workers.wire import FRAME, decode, encode

SCHEMA = """datacheck: 1
name: some
samples: {files: "{id}.npy"}
fields: {x: {role: value, shape: [3], range: 0..9}}
"""
CANARY = """import pathlib
pathlib.Path("BURNT").touch()
def check(sample):
    return sample.key != "1.npy"
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with data, a module and a finished run of a schema that names the module."""
    (tmp_path / "data").mkdir()
    for number in range(4):
        np.save(tmp_path / f"data/{number}.npy", np.arange(3.0) + number)
        os.utime(tmp_path / f"data/{number}.npy", (1e9, 1e9))
    (tmp_path / "canary.py").write_text(CANARY)
    (tmp_path / "some.yaml").write_text(SCHEMA)
    (tmp_path / "own.yaml").write_text(
        SCHEMA + "checks: [canary:check]\nrules: {canary:check: {severity: warning}}\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])  # so that whoever imports it, does
    yield tmp_path
    sys.modules.pop("canary", None)


def made(schema="some.yaml"):
    """Scan; return the folder of the run."""
    run_scan(
        load_schema(schema), Request(Path("data"), output=Path("run"), paths=[str(Path.cwd())])
    )
    Path("BURNT").unlink(missing_ok=True)
    sys.modules.pop("canary", None)
    return Path("run")


# ------------------------------------------------------------------------------------------- limits


def test_a_packed_npz_is_refused_before_it_is_unpacked(tmp_path):
    np.savez_compressed(tmp_path / "a.npz", head=np.zeros(50_000_000, np.uint8))
    with pytest.raises(ValueError, match="packed or overlap"):
        Arrays(tmp_path / "a.npz", 1 << 40)


@pytest.mark.parametrize("shape", [(10**12,), (10**9, 10**9), (3, 3), (-1,), (0, 10**18)])
@pytest.mark.parametrize("kind", ["<i8", "|S0", "|O", "<U1"])
def test_the_header_of_an_array_must_fit_its_bytes(tmp_path, shape, kind):
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        head, {"descr": kind, "fortran_order": False, "shape": shape}
    )
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as file:
        file.writestr("a.npy", head.getvalue() + bytes(16))
    with (
        Arrays(tmp_path / "a.npz", 1 << 40) as arrays,
        pytest.raises(ValueError, match=r"damaged|header says"),
    ):
        arrays["a"]


def test_arrays_come_back_as_numpy_wrote_them(tmp_path):
    held = {
        "a": np.zeros((0, 5)),
        "b": np.int64(3),
        "c": np.asfortranarray(np.arange(6).reshape(2, 3)),
        "d": "ä",
    }
    np.savez(tmp_path / "a.npz", **held)
    with Arrays(tmp_path / "a.npz", 1 << 20) as arrays, np.load(tmp_path / "a.npz") as expected:
        assert set(arrays) == set(expected)
        for name in held:
            np.testing.assert_array_equal(arrays[name], expected[name])
            assert arrays[name].dtype == expected[name].dtype


def test_members_that_overlap_are_refused(tmp_path):
    data = io.BytesIO()
    np.save(data, np.zeros(100_000, np.uint8))
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as file:
        file.writestr("a.npy", data.getvalue())
        for number in range(20):
            twin = zipfile.ZipInfo(f"{number}.npy")
            info = file.infolist()[0]
            for name in ("header_offset", "CRC", "compress_size", "file_size"):
                setattr(twin, name, getattr(info, name))
            file.filelist.append(twin)
    with pytest.raises(ValueError, match="packed or overlap"):
        Arrays(tmp_path / "a.npz", 1 << 40)


def test_a_sparse_file_is_refused_and_one_that_was_written_is_not(tmp_path):
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(OSError, match="sparse"):
        open_document(tmp_path / "sparse", 1 << 50)
    with pytest.raises(OSError, match="at most 1,024 are read"):
        open_document(tmp_path / "sparse", 1024)
    (tmp_path / "whole").write_bytes(bytes(20 << 20))
    with open_document(tmp_path / "whole", 1 << 30) as file:
        assert len(file.read()) == 20 << 20


def test_json_of_too_many_values_is_refused(tmp_path):
    (tmp_path / "a.json").write_bytes(b"[" + b"[]," * 1000 + b"1]")
    assert len(read_json(tmp_path / "a.json", 1 << 20)) == 1001
    with pytest.raises(ValueError, match="about 2,001 values; at most 100"):
        read_json(tmp_path / "a.json", 1 << 20, 100)
    check_values(b'{"a": "' + b"x" * 1000 + b'"}', 10)


def parquet(table, path, rows=65_536, **options):
    usual = {
        "compression": "lz4",
        "use_dictionary": [name for name in table.column_names if name != "key"],
    }
    pq.write_table(table, path, row_group_size=rows, **(usual | options))
    with path.open("rb") as file:
        samples.check(file)


def test_rows_of_nothing_are_refused(tmp_path):
    keys = pa.array([f"{n:06d}" for n in range(65_536)])
    parquet(
        pa.table({"key": keys, "a": pa.nulls(len(keys), pa.int64())}), tmp_path / "fine.parquet"
    )
    nothing = pa.array(["k"] * 20_000_000)
    with pytest.raises(ValueError, match=r"of memory|bytes of keys"):
        parquet(pa.table({"key": nothing}), tmp_path / "a.parquet", use_dictionary=True)
    wide = {"key": keys} | {
        f"c{n}": pa.nulls(len(keys), pa.list_(pa.float64(), 64)) for n in range(40)
    }
    parquet(pa.table(wide | {"status": keys}), tmp_path / "b.parquet")
    said = {b"datacheck": b'{"files_are_keys": true}'}
    texts = dict.fromkeys(("file", "inner", "split", "group", "reason", "codes"), keys)
    told = {"status": pa.array(["checked"] * len(keys)), "nbytes": pa.nulls(len(keys), pa.int64())}
    parquet(pa.table(wide | texts | told).replace_schema_metadata(said), tmp_path / "b.parquet")
    with pytest.raises(DamagedRunError, match="of memory"):
        [column.values.sum() for column in read_table(tmp_path / "b.parquet").columns.values()]
    for kind in (
        pa.list_(pa.int64()),
        pa.struct({"a": pa.int64()}),
        pa.list_(pa.int8(), 4097),
        pa.binary(),
    ):
        parquet(pa.table({"key": keys, "a": pa.nulls(len(keys), kind)}), tmp_path / "c.parquet")
        with pytest.raises(ValueError, match="which no scan writes"):
            read_table(tmp_path / "c.parquet")


@pytest.mark.parametrize(
    "options", [{"compression": "zstd"}, {"rows": 100_000}, {"compression": "gzip"}]
)
def test_a_parquet_file_that_no_scan_writes_is_refused(tmp_path, options):
    keys = pa.array([f"{n:06d}" for n in range(100_000)])
    with pytest.raises(ValueError, match=r"as datacheck writes it|row group of"):
        parquet(pa.table({"key": keys}), tmp_path / "a.parquet", **options)


@pytest.mark.parametrize("count", [0, 1, 65_536, 300_000])
def test_rows_that_are_all_alike_are_read(tmp_path, count):
    """As small as an honest file can be beside its columns: keys that count up, and columns of one number."""
    keys = [f"same.jsonl:{n:012d}" for n in range(count)]
    columns = {f"x:{n}": Measured(np.zeros(count), np.ones(count, bool)) for n in range(40)}
    few = {
        name: Texts([""], np.zeros(count, np.int32))
        for name in ("inner", "splits", "groups", "reasons")
    }
    table = Table(
        keys,
        keys,
        status=np.zeros(count, np.int8),
        nbytes=np.zeros(count, np.int64),
        columns=columns,
        **few,
    )
    (tmp_path / "a.parquet").write_bytes(table_bytes(table))
    back = read_table(tmp_path / "a.parquet")
    assert list(back.keys) == keys
    assert back.columns["x:7"].values.tolist() == [0.0] * count


@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_keys_of_which_a_few_bytes_make_a_gigabyte_are_refused(tmp_path, version):
    """All other texts are read as dictionaries, and Arrow takes what a page says of itself for what the footer says."""
    path, many = tmp_path / "a.parquet", ["k" * 1_000_000] * 3
    options = {
        "data_page_version": version,
        "dictionary_pagesize_limit": 1 << 30,
        "write_statistics": False,
    }
    fine = pa.table({"key": ["a", "b", "c"], "file": many})
    parquet(fine, path, use_dictionary=["file"], **options | {"data_page_version": "1.0"})
    for table in (pa.table({"key": many}), pa.table({"file": ["a"] * 3, "key": many})):
        with pytest.raises(ValueError, match="the column b'key' is not as datacheck writes it"):
            parquet(table, path, use_dictionary=["key"], **options)
    growing = pa.table({"key": ["k" * n for n in range(3_000)]})
    pq.write_table(
        growing, path, use_dictionary=False, column_encoding={"key": "DELTA_BYTE_ARRAY"}, **options
    )
    data = path.read_bytes()
    assert data.count(b"\x25\x06\x0e") == 1, "the list of its encodings in the footer"
    path.write_bytes(data.replace(b"\x25\x06\x0e", b"\x25\x06\x00"))
    assert (len(data) < 1_000, pq.read_table(path)["key"].nbytes > 4_000_000) == (True, True)
    with (
        path.open("rb") as file,
        pytest.raises(ValueError, match=r"is not as datacheck writes it|damaged"),
    ):
        samples.check(file)


def test_long_keys_that_a_small_file_packs_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(samples, "MOST_KEY_BYTES", 1 << 20)
    monkeypatch.setattr(samples, "MOST_EACH", 4096)
    long = pa.array(["x" * 3_880 + f"{n:09d}" for n in range(1_000)])
    for table in (pa.table({"key": long}), pa.table({"file": ["a"] * 1_000, "key": long})):
        with pytest.raises(ValueError, match=r"keys of 3,\d+,\d+ bytes; at most [12],\d+,\d+"):
            parquet(table, tmp_path / "a.parquet")
    # honest paths pack less
    paths = pa.array(
        [f"{'d' * 300}/{digest64(bytes([n % 256, n // 256])):x}" * 3 for n in range(1_000)]
    )
    parquet(pa.table({"key": paths}), tmp_path / "b.parquet")


def test_words_that_take_more_memory_than_the_file_says_are_refused(tmp_path):
    path, rows = tmp_path / "a.parquet", 2
    words = pa.DictionaryArray.from_arrays(pa.array([0, 1]), pa.array(["a", "b", "c"]))
    with pytest.raises(ValueError, match="the column b'x:v' is not as datacheck writes it"):
        parquet(pa.table({"key": ["a", "b"], "x:v": words}), path)

    def table(size, letter):
        columns = {
            f"x{n}:v": Measured(np.array(["k" * size + letter, "b"], object), np.ones(rows, bool))
            for n in "ab"
        }
        few = {
            name: Texts([""], np.zeros(rows, np.int32))
            for name in ("inner", "splits", "groups", "reasons")
        }
        numbers = {"status": np.zeros(rows, np.int8), "nbytes": np.zeros(rows, np.int64)}
        return bytes(table_bytes(Table(["a", "b"], ["a", "b"], columns=columns, **numbers, **few)))

    path.write_bytes(table(4_000, "\U0001f600"))
    assert [len(column.values[0]) for column in read_table(path).columns.values()] == [4_001] * 2
    path.write_bytes(data := table(40_000_000, "\U0001f600"))
    assert len(data) < 700_000
    with pytest.raises(DamagedRunError, match="of memory"):
        [column.values for column in read_table(path).columns.values()]
    said = zigzag(pq.ParquetFile(path).metadata.row_group(0).column(9).total_uncompressed_size)
    assert data.count(said) == 2
    path.write_bytes(data.replace(said, b"\x80\x80\x80\x00"))
    with pytest.raises(ValueError, match="larger than its column"):
        read_table(path)


def test_a_field_that_a_struct_says_twice_is_refused():
    """Thrift passes over one of another type than its own: it would go by the other."""
    assert samples._Thrift(b"\x15\x02\x15\x04\x00").struct() == {1: 1, 2: 2}
    for data in (b"\x15\x02\x04\x02\x04\x00", b"\x05\x82\x80\x08\x02\x00"):
        with pytest.raises(ValueError, match="twice"):
            samples._Thrift(data).struct()


@pytest.mark.parametrize(
    ("field", "part"),
    [(1, b"\x11\x00"), (2, b"\x11\x00"), (4, b"\x00"), (6, b"\x11\x19\xf1\x00\x00")],
    ids=["not looked at", "columns", "row groups", "lists of nothing"],
)
def test_a_footer_of_small_structs_takes_no_gigabytes(field, part):
    """A dict of 232 bytes for two of the footer, which is no column: 1.2 GB of 9.8 MB."""
    count = 200_000
    data = bytes([field << 4 | 9, 0xFC]) + zigzag(count // 2) + part * count + b"\x00"
    tracemalloc.start()
    with contextlib.suppress(ValueError):
        samples._Thrift(data).struct(wanted=samples._FOOTER)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 40 * len(data)


def test_what_is_not_looked_at_in_a_footer_is_read_and_not_kept():
    data = b"\x15\x02" + b"\x16\x04" + b"\x1c\x15\x02\x15\x04\x00" + b"\x16\x08\x00"
    assert samples._Thrift(data).struct() == {1: 1, 2: 2, 3: {1: 1, 2: 2}, 4: 4}
    assert samples._Thrift(data).struct(wanted={1: samples._ALL, 3: {2: samples._ALL}}) == {
        1: 1,
        3: {2: 2},
    }
    with pytest.raises(ValueError, match="twice"):
        samples._Thrift(b"\x1c\x15\x02\x05\x02\x04\x00\x00").struct(wanted={2: samples._ALL})


def test_a_page_larger_than_its_column_is_refused(tmp_path):
    """A page header is what Arrow goes by: of 4 MB of LZ4 it would make a gigabyte."""
    path = tmp_path / "a.parquet"
    parquet(
        pa.table({"key": pa.array([os.urandom(8).hex() for _ in range(60_000)])}),
        path,
        use_dictionary=False,
    )
    data = bytearray(path.read_bytes())
    said = samples._Thrift(bytes(data[4:100])).struct()
    assert data[4:6] == b"\x15\x00", "the type of the page, then its size"
    old = zigzag(said[2])
    assert data[7 : 7 + len(old)] == old
    data[7 : 7 + len(old)] = zigzag(said[2] + 60_000)
    path.write_bytes(data)
    with path.open("rb") as file, pytest.raises(ValueError, match="larger than its column"):
        samples.check(file)


def zigzag(number):
    number, found = number * 2, []
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])


def test_an_array_of_a_part_lies_within_its_frame():
    head = b'$array\n{"$array": 0, "dtype": "<f8", "shape": [SHAPE]ALIKE}'
    for shape, alike in ((b"1000000", b""), (b"-1", b""), (b"-5", b', "alike": true')):
        text = head.replace(b"SHAPE", shape).replace(b"ALIKE", alike)
        with pytest.raises(ValueError, match="an array of"):
            decode(FRAME.pack(len(text), 8) + text + bytes(8))
    with pytest.raises(ValueError, match="a frame of"):
        decode(b"".join(encode({"a": np.ones(3)}))[:-1])
    alike = b"".join(encode({"a": np.ones(10_000)}))
    assert decode(alike)["a"].shape == decode(alike, most=10_000)["a"].shape == (10_000,)
    with pytest.raises(ValueError, match="10,000 rows that are alike"):
        decode(alike, most=9999)


def test_a_run_whose_keys_are_the_longest_paths_can_be_read(tmp_path):
    """The longest path of Linux has 4,095 bytes, each of which JSON may escape as six."""
    from datacheck.scan.run_documents import read_valid

    keys = ["".join(map(chr, [1] * 4090)) + f"{n:05}" for n in range(1000)]
    document = {"format": "datacheck.valid/1", "excluded": {"DC101": keys}}
    (tmp_path / "valid.json").write_text(json.dumps(document))
    assert read_valid(tmp_path, len(keys))["excluded"]["DC101"] == keys


def test_valid_json_may_be_as_large_for_a_loader_as_for_a_scan():
    from datacheck.scan import run_documents

    assert (VALID_BYTES, VALID_BYTES_EACH) == (
        run_documents.VALID_BYTES,
        run_documents.VALID_BYTES_EACH,
    )


# ------------------------------------------------------------------------------------- damaged runs


EVIL = "\x1b]0;owned\x07\x1b[31m\x9b31m\0"


def rewritten(path, change):
    path.chmod(0o644)
    said = json.loads(path.read_bytes())
    change(said)
    path.write_text(json.dumps(said))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda said: said["verdict"].update(exit_code=4), "contradict"),
        (lambda said: said["verdict"].update(status="crash", exit_code=4), "contradict"),
        (lambda said: said["findings"][0].update(severity="fatal"), "findings.0.severity"),
        (lambda said: said["dataset"].update(files=2**70), "dataset.files"),
        (lambda said: said["run"].update(seconds="x"), "run.seconds"),
        (lambda said: said.update(rules=[]), "rules"),
        (
            lambda said: said["rules"]["DC101"].update(options=json.loads("[" * 70 + "]" * 70)),
            "nested deeper than 64 levels",
        ),
        (lambda said: said["findings"][0].update(rule=f"DC221{EVIL}"), "findings.0.rule"),
        (lambda said: said["findings"][0].update(hides={f"DC221{EVIL}": 1}), "findings.0.hides"),
        (lambda said: said["rules"].update({EVIL: said["rules"]["DC101"]}), "rules."),
        (lambda said: said["rules"]["DC101"].update(skipped={EVIL: 1}), "rules.DC101.skipped"),
        (
            lambda said: said.update(crashes=[{"rule": EVIL, "at": "", "traceback": "x"}]),
            "crashes.0.rule",
        ),
        (lambda said: said["run"].update(id=EVIL), "run.id"),
        (lambda said: said["run"].update(rescored=EVIL), "run.rescored"),
        (lambda said: said["run"].update(started=said["run"]["started"] + EVIL), "run.started"),
        (lambda said: said["run"].update(started="yesterday"), "run.started"),
        (lambda said: said["run"].update(version=EVIL), "run.version"),
        (lambda said: said["run"].update(version="0.1.0\n"), "run.version"),
        (lambda said: said["run"].update(rule_seconds={EVIL: 1.0}), "run.rule_seconds"),
        (lambda said: said["dataset"].update(digest=EVIL), "dataset.digest"),
        (lambda said: said["schema"].update(digest="x" * 1001), "schema.digest"),
        (
            lambda said: said["findings"][0].update(message="x" * 100_001),
            "a text of 100,001 letters",
        ),
        (lambda said: said["unchecked"].append("x" * 100_001), "a text of 100,001 letters"),
        (
            lambda said: said["dataset"]["splits"].update(
                {"x" * 100_001: {"samples": 1, "valid": 1}}
            ),
            "a text of",
        ),
    ],
)
def test_a_value_of_another_type_is_told(place, change, told, capsys):
    np.save("data/2.npy", np.full(3, 70.0))
    folder = made()
    assert read_result(folder)["findings"]
    rewritten(folder / "result.json", change)
    for command in (["report", "run"], ["card", "run"], ["rescore", "run"], ["baseline", "run"]):
        assert run(command) == 2
        out, err = capsys.readouterr()
        assert told in err
        assert not {sign for sign in out + err if not sign.isprintable()} - {"\n"}


def test_a_verdict_that_the_other_files_contradict_is_told(place, capsys):
    np.save("data/2.npy", np.full(3, 70.0))
    folder = made()
    result = folder / "result.json"
    original = result.read_bytes()

    def passing(said):
        said["verdict"].update(status="pass", exit_code=0)

    def counted(said):
        passing(said)
        said["findings"] = []

    def hidden(said):
        counted(said)
        said["verdict"]["counts"] = {"error": 0, "warning": 0, "info": 0}
        said["verdict"]["valid"] = said["dataset"]["samples"]["listed"]

    for change, told in (
        (passing, "contradict one another"),
        (counted, "contradict one another"),
        (hidden, "fit samples; valid.json leaves"),
    ):
        result.write_bytes(original)
        rewritten(result, change)
        assert run(["report", "run"]) == 2
        assert told in capsys.readouterr().err
    result.write_bytes(original)
    rewritten(result, lambda said: (passing(said), said["run"].update(fail_on="never")))
    assert run(["report", "run"]) == 0


@pytest.mark.parametrize(
    "code", ["DC221", "my.checks:range", "mein_paket.prüfung:größe", "ACME-7", ""]
)
def test_codes_of_own_checks_and_of_plug_ins_are_codes(place, code):
    folder = made()
    rewritten(
        folder / "result.json", lambda said: said["rules"].update({code: said["rules"]["DC101"]})
    )
    for version in ("0.1.0", "1.2.3.dev4+g0a1b2c3.d20261126", "2!1.0rc1"):
        rewritten(folder / "result.json", lambda said, now=version: said["run"].update(version=now))
        assert code in read_result(folder)["rules"]


@pytest.mark.parametrize("name", ["result.json", "listing.npz", "samples.parquet", "schema.yaml"])
@pytest.mark.parametrize("what", ["pipe", "folder", "zeros", "sparse"])
def test_what_is_no_document_is_told_at_once(place, name, what, capsys):
    path = made() / name
    path.unlink()
    if what == "pipe":
        os.mkfifo(path)
    elif what == "folder":
        path.mkdir()
    elif what == "zeros":
        path.symlink_to("/dev/zero")
    else:
        with path.open("wb") as file:
            file.truncate(1 << 40)
    split = ["split", "run", "--by", "id", "--train", "1", "--to", "lists"]
    first = split if name == "schema.yaml" else ["report", "run"]
    for command in (first, ["card", "run"], ["rescore", "run"], ["baseline", "run"]):
        assert run(command) == 2
        said = capsys.readouterr().err
        assert said.startswith("datacheck: run: ") or str(path) in said, said


def test_a_column_of_another_type_is_no_crash(place, capsys):
    """A rule that meets texts for numbers raises; that is the run's fault, and a scan reads the files again."""
    folder = made()
    first = read_state(folder)
    table = pq.read_table(folder / "samples.parquet")
    (folder / "samples.parquet").chmod(0o644)
    for place_, name in enumerate(table.column_names):
        if name.startswith("x:") and pa.types.is_integer(table[name].type):
            table = table.set_column(place_, name, pa.array(["many"] * len(table)))
    parquet(table, folder / "samples.parquet")
    assert run(["rescore", "run"]) == 2
    assert "fails on the rows of this run" in capsys.readouterr().err
    done = scan("data", "some.yaml", output=Path("run"))
    assert (done.report.exit_code, done.report.run["kept_samples"]) == (0, 0)
    assert read_state(folder).table.columns.keys() == first.table.columns.keys()


def test_pages_that_cannot_be_read_are_no_crash(place, capsys):
    folder = made()
    path = folder / "samples.parquet"
    metadata, data = pq.ParquetFile(path).metadata.row_group(0), bytearray(path.read_bytes())
    for number in range(metadata.num_columns):
        column = metadata.column(number)
        if column.path_in_schema.startswith("x:"):  # the end of each: its values
            stop = column.data_page_offset + column.total_compressed_size
            data[stop - 8 : stop] = b"\xff" * 8
    path.chmod(0o644)
    path.write_bytes(data)
    assert run(["rescore", "run"]) == 2
    assert "cannot be read" in capsys.readouterr().err
    assert scan("data", "some.yaml", output=Path("run")).report.exit_code == 0


def test_columns_of_a_listing_that_do_not_fit_are_none(place):
    folder = made()
    with np.load(folder / "listing.npz") as held:
        arrays = dict(held)
    assert last_finished([folder]) is not None
    for change in (
        {"items": np.array([0, 1, 2, 99], np.int32)},
        {"items": np.array([-1, 0, 1, 2], np.int32)},
        {"splits": np.array([0, 0, 0, 7], np.int32)},
        {"several": np.array([0], np.int32)},
        {"counts": np.array([2**31 - 1], np.int32)},
        {"paths": np.zeros(1000, np.uint8)},
        {"digests": np.array(["\xe4" * 8] * 4, "U32")},
        {"numbers": arrays["numbers"].astype("f8")},
    ):
        np.savez(folder / "listing.npz", **arrays | change)
        assert last_finished([folder]) is None, change


def test_a_damaged_part_of_an_interrupted_scan_is_none(tmp_path):
    journal = Journal(RunLocation(tmp_path, "some"), "key")
    part = {
        "key": "key",
        "tables": [],
        "items": [["a", "", ["a"]]],
        "entries": [],
        "undeclared": [],
    }
    table = Table(
        ["a"], ["a"], [""], [""], [""], np.zeros(1, np.int8), [""], np.zeros(1, np.int64)
    ).as_wire()
    many = np.broadcast_to(np.zeros(1, np.int64), 10**9)
    with journal.held():
        file = journal.folder / "part-00000000"
        file.write_bytes(b"".join(encode(part)))
        assert interrupted_run(journal, tmp_path, parse_schema(SCHEMA)) is not None
        for wrong in (table | {"nbytes": np.zeros(10**6, np.int64)}, table | {"nbytes": many}):
            file.write_bytes(b"".join(encode(part | {"tables": [wrong]})))
            assert interrupted_run(journal, tmp_path, parse_schema(SCHEMA)) is None
        file.unlink()
        os.mkfifo(file)
        assert interrupted_run(journal, tmp_path, parse_schema(SCHEMA)) is None


# ----------------------------------------------------------------------------------- runs of others


def test_no_module_is_imported_because_a_run_names_it(place, capsys):
    folder = made("own.yaml")
    done = rescore(Rescore(folder, output=Path("again"), paths=[str(place)]))
    assert not Path("BURNT").exists()
    assert "canary" not in sys.modules
    told = "own checks not run (canary:check)"
    assert [line for line in done.report.unchecked if line.startswith(told)]
    assert "canary:check" not in {verdict.code for verdict in done.report.verdicts}
    assert read_result(Path("again"))["schema"] == read_result(folder)["schema"]
    assert baseline_of(Rescore(folder), "")[3][0].startswith(told)
    for command in (["report"], ["card"], ["baseline", "-o", "b.json"], ["rescore"]):
        assert run([command[0], "run", *command[1:]]) == 0
    assert "Name the schema: datacheck baseline run --schema FILE" in capsys.readouterr().err
    assert not Path("BURNT").exists()


def test_checks_of_a_schema_that_is_named_are_run(place):
    folder = made("own.yaml")
    assert run(["rescore", "run", "--schema", "own.yaml", "--output", "again"]) == 0
    rules = json.loads(Path("again/result.json").read_bytes())["rules"]
    assert rules["canary:check"]["failed"] == 1
    assert Path("BURNT").exists()
    assert run(["baseline", str(folder), "--schema", "own.yaml", "-o", "b.json"]) == 0
    assert list(json.loads(Path("b.json").read_bytes())["known"]) == ["canary:check"]


@pytest.mark.parametrize("base", ["../other.yaml", "/etc/hosts"])
def test_a_run_extends_no_file(place, base, capsys):
    folder = made()
    Path("other.yaml").write_text(SCHEMA)
    (folder / "schema.yaml").write_text(f"{SCHEMA}extends: {base}\n")
    assert run(["rescore", "run"]) == 2
    assert "the schema of a run may extend built-in schemas only" in capsys.readouterr().err
    (folder / "schema.yaml").write_text(f"{SCHEMA}extends: files\n")
    with contextlib.suppress(UsageError):
        rescore(Rescore(folder))


def test_no_tokenizer_is_opened_because_a_run_names_it(place, monkeypatch):
    folder = made()
    (place / "secret").mkdir()
    (place / "secret/tokenizer.json").write_text("{}")
    (folder / "schema.yaml").write_text(f"{SCHEMA}tokenizer: {{path: {place}/secret}}\n")
    opened: list[str] = []
    sys.addaudithook(lambda event, args: opened.append(str(args[0])) if event == "open" else None)
    with contextlib.suppress(UsageError):
        rescore(Rescore(folder))
    assert run(["view", "1.npy", "--run", "run", "--no-open", "--out", "v.html"]) == 0
    assert opened
    assert not [path for path in opened if "secret" in path]


def test_a_card_opens_nothing_outside_of_the_data(place, capsys):
    folder = made()
    Path("outside.txt").write_text("secret")
    with np.load(folder / "listing.npz") as held:
        arrays = dict(held)
    for path in ("../outside.txt", str(place / "outside.txt")):
        names = sorted(["0.npy", "1.npy", "2.npy", path])
        arrays["paths"] = np.frombuffer("\0".join(names).encode(), np.uint8)
        np.savez(folder / "listing.npz", **arrays)
        with pytest.raises(
            (UsageError, croissant.StorageError), match=r"data folder|changed|there any more"
        ):
            croissant.card(folder)


@pytest.mark.slow
def test_every_command_takes_every_damage(repository, tmp_path):
    """In a process of its own: the memory of each command counts from what its parent holds."""
    script = repository / "scripts/bench/faults/documents.py"
    done = subprocess.run(
        [sys.executable, script, "--number", "12", "--rare", "6", "--folder", tmp_path],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "controls not told: none" in done.stdout
