"""How long report.html takes to write and to open, and how large it is: of a made run of any size, without data.

python scripts/bench/report.py --rows 1000000 --failed 50000
python scripts/bench/report.py --run .datacheck/latest        of a finished run, beside what its
scan took python scripts/bench/report.py --scan DATA --schema NAME      of a new scan of DATA, with
the pictures that it makes
"""

import argparse
import os
import platform
import shutil
import statistics
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import orjson

from datacheck.model.table import Measured, Table, Texts
from datacheck.report.html import write_page
from datacheck.scan.samples import read_table, table_bytes

STATS = ("box", "norm", "rows", "zeros", "p99", "peak", "front", "copies")
SCHEMA = "datacheck: 1\nname: made\nsamples: {{files: '*.npy'}}\nfields:\n{fields}"


def made(folder, rows, failed, fields):
    """Write the files of a run of `fields` fields with eleven measures each, of which the last `failed` rows fail."""
    rng = np.random.default_rng(0)
    bad, whole = np.arange(rows) >= rows - failed, np.ones(rows, bool)
    columns = {}
    for name in (f"field{n}" for n in range(fields)):
        for stat in STATS:
            columns[f"{name}:{stat}"] = Measured(
                np.where(bad, 1000.0, 1.0) * rng.lognormal(0, 0.3, rows), whole
            )
        for stat in ("min", "max", "dims"):
            columns[f"{name}:{stat}"] = Measured(rng.normal(0, 1, (rows, 3)), whole)
        columns[f"{name}:ndim"] = Measured(np.full(rows, 2), whole)
    empty, keys = Texts([""], np.zeros(rows, np.int32)), [f"train/{n:07d}.npy" for n in range(rows)]
    table = Table(
        keys,
        keys,
        empty,
        Texts(["train", "val"], (np.arange(rows) % 9 == 0).astype(np.int32)),
        empty,
        np.zeros(rows, np.int8),
        empty,
        np.full(rows, 9),
        columns,
    )
    (folder / "samples.parquet").write_bytes(
        table_bytes(table, Texts(["", "DC201"], bad.astype(np.int32)))
    )
    lines = "".join(
        f"  field{n}: {{role: points, shape: [P, 3], unit: m, size: 0.2..5}}\n"
        for n in range(fields)
    )
    (folder / "schema.yaml").write_text(SCHEMA.format(fields=lines))
    finding = {
        "id": "DC201:field0:mm",
        "rule": "DC201",
        "name": "length-unit",
        "severity": "error",
        "level": "sample",
        "fields": ["field0"],
        "split": "train",
        "kind": "mm",
        "message": "size 1000 m, allowed 0.2..5 m.",
        "failed": failed,
        "of": rows,
        "share": failed / rows,
        "measured": {"stat": "size", "median": 1000.0, "unit": "m"},
        "expected": {"range": [0.2, 5.0], "unit": "m"},
        "examples": keys[-3:],
        "more": failed - 3,
        "hides": {},
        "cause": {
            "text": "probably mm",
            "kind": "mm",
            "factor": 0.001,
            "explains": failed,
            "alternatives": [],
        },
        "fix": "",
    }
    said = {
        "format": "datacheck.result/1",
        "run": {
            "id": "made",
            "started": "2026-01-01T00:00:00Z",
            "seconds": 0.0,
            "version": "0",
            "level": "numeric",
            "command": "",
            "fail_on": "error",
            "kept_files": 0,
            "kept_samples": 0,
        },
        "dataset": {
            "name": "made",
            "root": "made",
            "digest": "0" * 32,
            "files": rows,
            "bytes": rows,
            "splits": {},
            "samples": {"listed": rows, "checked": rows, "unreadable": 0, "skipped": 0},
        },
        "schema": {"name": "made", "digest": "0" * 32},
        "unchecked": [],
        "crashes": [],
        "files": {},
        "verdict": {
            "status": "fail",
            "exit_code": 1,
            "counts": {"error": 1, "warning": 0, "info": 0},
            "valid": rows - failed,
        },
        "rules": {
            "DC201": {
                "name": "length-unit",
                "status": "fail",
                "level": "sample",
                "severity": "error",
                "checked": rows,
                "failed": failed,
                "skipped": {},
                "options": {},
            }
        },
        "findings": [finding] * 30,
    }
    (folder / "result.json").write_bytes(orjson.dumps(said))
    excluded = {keys[row]: ["DC201"] for row in np.flatnonzero(bad).tolist()}
    (folder / "valid.json").write_bytes(orjson.dumps({"excluded": excluded}))


def timed(folder, table):
    """Return the median seconds of five writings; of rows at hand, as behind a scan, or read from the file."""
    seconds = []
    for _ in range(5):
        began = time.perf_counter()
        write_page(folder, table)
        seconds.append(time.perf_counter() - began)
    return sorted(seconds)[2]


def opened(page):
    """Return the seconds until Chromium has drawn the page, or None where there is no Chromium."""
    if not (shutil.which("chromium") and shutil.which("chromedriver")):
        return None
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    for word in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(word)
    driver = webdriver.Chrome(options, webdriver.ChromeService(shutil.which("chromedriver")))
    try:
        driver.get("data:,")
        began = time.perf_counter()
        driver.get(page.as_uri())
        driver.execute_async_script(
            "requestAnimationFrame(() => requestAnimationFrame(arguments[0]))"
        )
        return time.perf_counter() - began
    finally:
        driver.quit()


def scanned(data, schema, rounds):
    """Scan data as the command does; print how much longer it takes with pictures and page, and with the page alone."""
    from datacheck.preview.run_previews import PreviewProcess
    from datacheck.scan import scan

    seconds = {"scan": [], "page": [], "page and pictures": []}
    for number in range(3 * rounds):
        what = list(seconds)[number % 3]
        with tempfile.TemporaryDirectory() as place:
            began = time.perf_counter()
            with (
                PreviewProcess()
                if what == "page and pictures"
                else nullcontext() as preview_process
            ):
                run = scan(data, schema, output=Path(place) / "run", rehash=True)
                done = time.perf_counter()
                if what != "scan":
                    page = write_page(
                        run, drawn=None if preview_process is None else preview_process.write(run)
                    )
            now = time.perf_counter()
            size = 0 if what == "scan" else page.stat().st_size
            seconds[what].append((now - began, now - done))
    scan_s = statistics.median(whole for whole, _ in seconds.pop("scan"))
    print(f"{data}: scan {scan_s:.2f} s, median of {rounds}")
    for what, times in seconds.items():
        whole, behind = (statistics.median(column) for column in zip(*times, strict=True))
        print(
            f"    with {what:18} {whole:.2f} s ({(whole - scan_s) / scan_s:+.1%}), "
            f"behind the scan {behind:.3f} s ({behind / scan_s:.1%})"
        )
    print(
        f"    {size:,} bytes; {os.cpu_count()} cores, {platform.machine()}, Python "
        f"{platform.python_version()}"
    )


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--failed", type=int, default=50_000)
    parser.add_argument("--fields", type=int, default=6)
    parser.add_argument("--run", type=Path, help="a finished run, in place of a made one")
    parser.add_argument(
        "--scan", type=Path, metavar="DATA", help="scan these data, in place of a made run"
    )
    parser.add_argument("--schema", help="of these data")
    parser.add_argument("--rounds", type=int, default=5, help="of scans")
    given = parser.parse_args()
    if given.scan is not None:
        scanned(given.scan, given.schema, given.rounds)
        return
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        if given.run is None:
            made(folder, given.rows, given.failed, given.fields)
        else:
            for name in ("result.json", "samples.parquet", "schema.yaml", "previews.json"):
                if name != "previews.json" or (given.run / name).exists():
                    shutil.copyfile(given.run / name, folder / name)
        scan = orjson.loads((folder / "result.json").read_bytes())["run"]["seconds"]
        write_page(folder)  # imports
        cold, took = timed(folder, None), timed(folder, read_table(folder / "samples.parquet"))
        page = folder / "report.html"
        share = f" ({took / scan:.1%} of the scan's {scan:.2f} s)" if scan else ""
        drawn = opened(page)
        print(
            f"written in {took:.3f} s{share}, {cold:.3f} s where the rows are read first; "
            f"{page.stat().st_size:,} bytes; "
            + ("no Chromium to open it" if drawn is None else f"opened in {drawn:.2f} s")
        )


if __name__ == "__main__":
    main()
