"""Scans of whole datasets, one kind after the other, against reading the same bytes and against the naive loop.

    python scripts/bench/scan.py [KIND ...] [--gigabytes 1] [--rounds 3] [--folder DIR]

Kinds: jsonl. Data are synthetic, in a temporary folder and so in the page cache; every scan is a fresh command. Speeds
are bytes per second of processor time, that of all processes together: what one core does. Medians over the rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from datacheck.testing.synth import minimind
from datacheck.testing.synth.draw import generator

_COMMAND = "import sys; from datacheck.cli.main import main; sys.exit(main())"
_POLL_S = 0.02
_READ = 1 << 20
_DIFFERENT = 4000  # synthetic records; the others differ from them by a number
_TOKENIZED = 50  # times smaller is the file that is also tokenized


@dataclass
class Cost:
    """What one run took: seconds, seconds of all processors, the most memory of one process [bytes]; what it did."""

    wall: float
    cpu: float
    coordinator: int = 0
    worker: int = 0
    tokenized: int = 0


def timed(call: Callable[[], object]) -> Cost:
    """Run a function in this process."""
    wall, cpu = time.perf_counter(), time.process_time()
    call()
    return Cost(time.perf_counter() - wall, time.process_time() - cpu)


def median(costs: list[Cost]) -> Cost:
    """Return the run of the median processor time, with the most memory of all runs."""
    middle = sorted(costs, key=lambda cost: cost.cpu)[len(costs) // 2]
    return Cost(
        statistics.median(cost.wall for cost in costs), middle.cpu,
        max(cost.coordinator for cost in costs), max(cost.worker for cost in costs), middle.tokenized,
    )  # fmt: skip


def scan(data: Path, schema: str | Path, workers: int, samples: int) -> Cost:
    """Run ``datacheck scan`` anew and watch it; it must check so many samples."""
    with tempfile.TemporaryDirectory(dir=data.parent) as here:
        command = [sys.executable, "-c", _COMMAND, "scan", str(data), "--schema", str(schema)]
        command += ["--workers", str(workers), "--format", "json", "--output", str(Path(here, "run"))]
        wall = time.perf_counter()
        with Path(here, "said").open("wb") as out:
            process = subprocess.Popen(command, stdout=out, cwd=here)
            most: dict[int, int] = {}
            while (ended := os.wait4(process.pid, os.WNOHANG))[0] == 0:
                for pid in family(process.pid):
                    most[pid] = max(most.get(pid, 0), peak(pid))
                time.sleep(_POLL_S)
        wall = time.perf_counter() - wall
        code = process.returncode = os.waitstatus_to_exitcode(ended[1])
        answer = Path(here, "said").read_text()
        if code not in {0, 1} or json.loads(answer)["dataset"]["samples"]["checked"] != samples:
            raise SystemExit(answer)
        tokenized = json.loads(answer)["run"]["tokenized"]
        used = ended[2]
    others = [size for pid, size in most.items() if pid != process.pid]
    return Cost(wall, used.ru_utime + used.ru_stime, most.get(process.pid, 0), max(others, default=0), tokenized)


def family(pid: int) -> Iterator[int]:
    """Yield a process and all that it started."""
    yield pid
    for found in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = found.read_text().split()
        except OSError:  # it has just ended
            continue
        for child in children:
            yield from family(int(child))


def peak(pid: int) -> int:
    """Return the most memory [bytes] that a process has held, 0 where it has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM")), 0)


def read_bytes(path: Path) -> None:
    """Read a file and do nothing with it."""
    buffer = bytearray(_READ)
    with path.open("rb", buffering=0) as file:
        while file.readinto(buffer):
            pass


def row(what: str, nbytes: int, cost: Cost, others: dict[str, Cost]) -> str:
    """Return one line of a table: speed per core, how much slower than others, memory."""
    ratios = "  ".join(f"{other.cpu / cost.cpu:5.2f} of {name}" for name, other in others.items())
    memory = f"  {cost.coordinator >> 20:5,} MiB + {cost.worker >> 20:,} MiB a worker" if cost.coordinator else ""
    return f"{what:44} {nbytes / cost.cpu / 1e6:7,.0f} MB/s per core {cost.wall:6.1f} s   {ratios}{memory}"


# ------------------------------------------------------------------------------------------------ JSON lines

LINES: dict[str, tuple[str, Callable[..., dict]]] = {
    "texts, 1.4 kB a line": ("pretrain", lambda rng: minimind.pretrain(rng, minimind.Size(characters=560))),
    "texts, 0.35 kB a line": ("pretrain", lambda rng: minimind.pretrain(rng, minimind.Size(characters=125))),
    "chats, 1.9 kB a line": (
        "sft", lambda rng: {"conversations": minimind.chat(rng, minimind.Size(answer=240, turns=2))}
    ),
}  # fmt: skip


def write_lines(path: Path, make: Callable[..., dict], nbytes: int) -> int:
    """Write about so many bytes of JSON lines; return how many lines."""
    base = [make(generator(0, path.name, number)) for number in range(_DIFFERENT)]
    count = 0
    with path.open("wb") as file:
        while file.tell() < nbytes:
            for record in base:
                if "text" in record:
                    record = {"text": f"{count} {record['text']}"}
                else:
                    last = record["conversations"][-1] | {
                        "content": f"{record['conversations'][-1]['content']} {count}"
                    }
                    record = {"conversations": [*record["conversations"][:-1], last]}
                file.write(json.dumps(record, ensure_ascii=False).encode() + b"\n")
                count += 1
            file.truncate()
    return count


def naive(path: Path) -> None:
    """Check every line as a training script does: it parses, its field is there and not empty, none stands twice."""
    seen, bad = set(), 0
    with path.open(encoding="utf-8") as file:
        for line in file:
            record = json.loads(line)
            value = record.get("text") or record.get("conversations")
            if not value:
                bad += 1
                continue
            text = value if isinstance(value, str) else "".join(message["content"] for message in value)
            bad += not text.strip() or text in seen
            seen.add(text)
    assert not bad


def jsonl(folder: Path, gigabytes: float, rounds: int) -> Iterator[str]:
    """Yield the table of JSON lines: one file of each kind of line, read by one worker and by two."""
    minimind.write_tokenizer(folder / "model")
    for what, (name, make) in LINES.items():
        data = folder / "data"
        data.mkdir()
        path = data / f"{name}.jsonl"
        count = write_lines(path, make, int(gigabytes * 1e9))
        nbytes = path.stat().st_size
        yield f"JSON lines, {what}: {count:,} lines, {nbytes / 1e9:.2f} GB"
        text = Path("schemas", f"minimind_{name}.yaml").read_text().replace("path: model, ", "")
        plain = folder / "plain.yaml"
        plain.write_text(text)
        found: dict[str, list[Cost]] = {"reading": [], "naive loop": [], "1 worker": [], "2 workers": []}
        for _ in range(rounds):
            found["reading"].append(timed(lambda path=path: read_bytes(path)))
            found["naive loop"].append(timed(lambda path=path: naive(path)))
            for workers in (1, 2):
                found[f"{workers} worker{'s' * (workers > 1)}"].append(scan(data, plain, workers, count))
        costs = {name: median(runs) for name, runs in found.items()}
        limits = {name: costs[name] for name in ("reading", "naive loop")}
        for name_, cost in costs.items():
            label = name_ if name_ in limits else f"datacheck scan, {name_}, {cost.tokenized} tokenized"
            yield row(label, nbytes, cost, {} if name_ == "reading" else limits)
        yield from _tokenized(data, path, name, make, nbytes // _TOKENIZED, folder / "model")
        for file in data.rglob("*"):
            file.unlink()
        data.rmdir()


def _tokenized(data: Path, path: Path, name: str, make: Callable[..., dict], nbytes: int, model: Path) -> Iterator[str]:
    count = write_lines(path, make, nbytes)
    schema = model.parent / "tokens.yaml"
    schema.write_text(Path("schemas", f"minimind_{name}.yaml").read_text().replace("path: model", f"path: {model}"))
    cost = scan(data, schema, 1, count)
    yield row(f"of {count:,} lines {cost.tokenized:,} tokenized", path.stat().st_size, cost, {})


# ---------------------------------------------------------------------------------------------------- main

KINDS: dict[str, Callable[[Path, float, int], Iterator[str]]] = {"jsonl": jsonl}


def main() -> int:
    """Print the tables that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", metavar="KIND", choices=[*KINDS, []], help="default: all")
    parser.add_argument("--gigabytes", type=float, default=1.0, help="bytes of the data of each table")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", default=None, help="where to write the data; removed afterwards")
    asked = parser.parse_args()
    print(f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}, {asked.rounds} rounds")
    for kind in asked.kinds or KINDS:
        with tempfile.TemporaryDirectory(dir=asked.folder) as name:
            for line in KINDS[kind](Path(name), asked.gigabytes, asked.rounds):
                print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
