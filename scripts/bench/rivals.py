"""Which tools name a planted fault of a LeRobot dataset: datacheck beside robovet, lerobot-doctor and physlint.

    python scripts/bench/rivals.py [--tools PYTHON] [--seed 0] [--only NAME]

Each fault of `datacheck.testing.lerobot` is planted alone in a copy of one clean dataset, and each
tool reads both. A tool names the fault (+) if it reports something of the copy that it does not
report of the clean dataset; refusing the copy counts as well. `--tools` is the interpreter of an
environment that has the other tools; those that it lacks are left out, with a line that says so.
The last lines count the faults that each tool names, and what each reports of clean data.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from datacheck.scan import scan
from datacheck.testing import synth
from datacheck.testing.faults import FAULTS, plant

# Prints, for each folder, the findings of one tool as a JSON list of texts without numbers.
_ROBOVET = """
from robovet import load_dataset, run_doctor
def findings(folder):
    results = run_doctor(load_dataset(folder)).results
    return [r.check_id for r in results if r.severity.label not in ("PASS", "INFO")]
"""
_DOCTOR = """
from pathlib import Path
from lerobot_doctor.dataset_loader import load_local
from lerobot_doctor.runner import run_checks
def findings(folder):
    checks = run_checks(load_local(Path(folder))).results
    messages = [(c.name, m) for c in checks for m in c.messages if m.severity.value != "PASS"]
    return [f"{name} {m.severity.value} {m.message}" for name, m in messages]
"""
_PHYSLINT = """
from physlint.api import check_dataset
from physlint.config import CacheSettings, Config
def findings(folder):
    config = Config(cache=CacheSettings(enabled=False))
    results = check_dataset(folder, config=config).results
    return [f"{r.rule_id} {r.status.value}" for r in results if r.status.value in ("failed", "errored")]
"""
_CALL = """
import contextlib, io, json, sys
with contextlib.redirect_stdout(io.StringIO()):
    try:
        found = findings(sys.argv[1])
    except Exception as error:
        found = [f"refused: {type(error).__name__}"]
print(json.dumps(sorted(set(found))))
"""
TOOLS = {"robovet": _ROBOVET, "lerobot_doctor": _DOCTOR, "physlint": _PHYSLINT}


def ours(folder: Path, output: Path) -> set[str]:
    """Return code and kind of each finding of a scan with the built-in schema."""
    report = scan(folder, output=output).report
    return {f"{f.code} {f.kind}" for f in report.findings}


def theirs(python: str, program: str, folder: Path) -> set[str]:
    """Return what another tool reports of a folder."""
    done = subprocess.run(
        [python, "-c", program + _CALL, str(folder)],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder.parent,
    )
    lines = done.stdout.strip().splitlines()
    return set(json.loads(lines[-1])) if lines else {f"ended with {done.returncode}"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tools", default=sys.executable, help="interpreter that has the tools")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="a part of the names of faults")
    options = parser.parse_args()
    tools = {}
    for name, program in TOOLS.items():
        known = subprocess.run(
            [options.tools, "-c", f"import {name}"], capture_output=True, check=False
        )
        if known.returncode == 0:
            tools[name] = program
        else:
            print(f"{name} is not installed in {options.tools}: left out")
    names = ["datacheck", *tools]
    print(f"{platform.machine()}, {os.cpu_count()} cores, seed {options.seed}\n")
    print(f"| fault | {' | '.join(names)} |\n| --- |{' --- |' * len(names)}")
    counts = dict.fromkeys(names, 0)
    planted = 0
    quiet: list[str] = []
    with tempfile.TemporaryDirectory() as place:
        for system in ("lerobot", "lerobot_v21"):
            clean = Path(place, system, "data")
            synth.write(system, clean, seed=options.seed)
            usual = {"datacheck": ours(clean, Path(place, "run-clean"))} | {
                name: theirs(options.tools, program, clean) for name, program in tools.items()
            }
            quiet += [f"{system}: {name} reports {len(usual[name])}" for name in names]
            for fault in FAULTS:
                if fault.system != system or options.only not in fault.name:
                    continue
                broken = Path(place, fault.name, "data")
                shutil.copytree(clean, broken)
                plant(system, broken, [fault.name], seed=options.seed)
                found = {"datacheck": ours(broken, Path(place, fault.name, "run"))} | {
                    name: theirs(options.tools, program, broken) for name, program in tools.items()
                }
                named = {name: bool(found[name] - usual[name]) for name in names}
                marks = " | ".join("+" if named[name] else "-" for name in names)
                print(f"| {system}: {fault.name} | {marks} |", flush=True)
                counts = {name: counts[name] + named[name] for name in names}
                planted += 1
                shutil.rmtree(broken.parent)
    print(f"| **{planted} faults** | {' | '.join(str(counts[name]) for name in names)} |\n")
    print("Of clean data: " + "; ".join(quiet))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
