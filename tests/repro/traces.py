"""Recorded runs made by hand: what a trace says is known, since nobody recorded it."""

from __future__ import annotations

import json


def environment(**more):
    return {
        "code": {"model.py": "c0"},
        "packages": {},
        "native": {},
        "data": {"a": "d0"},
        "torch": {},
        **more,
    }


def step(number, **more):
    """A step whose every column says its number; `more` changes some of them."""
    line = {
        "kind": "step",
        "step": number,
        "epoch": number // 10,
        "samples": 4,
        "updates": 1,
        "lr": [0.1],
    }
    line |= {
        name: f"{name} {number}" for name in ("indices", "input", "grads", "params", "optimizer")
    }
    return (
        line
        | {
            "loss": float(1 + number).hex(),
            "grad_norm": (0.5).hex(),
            "random": {"torch": f"r{number}"},
        }
        | more
    )


def start(**more):
    line = {
        "kind": "start",
        "version": 1,
        "rank": 0,
        "world": 1,
        "every": 1,
        "first": 0,
        "hyper": [{"lr": 0.1}],
    }
    return line | {"weights": {"w": "w0"}, "optimizer": ["o0"], "kinds": ["SGD"]} | more


def make_run(
    folder,
    steps=30,
    *,
    change=None,
    lines=(),
    env=None,
    config=None,
    begin=None,
    end=True,
    rank=0,
    first=0,
):
    """Write a run.

    Args:
        folder: where.
        steps: the number behind that of the last one.
        change: from step to columns that differ there; a value of None leaves the column out.
        lines: more lines, behind the steps.
        first: the number of the first step.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "env.json").write_text(json.dumps(environment() if env is None else env))
    (folder / "config.json").write_text(
        json.dumps({"version": 1, "config": {"lr": 0.1} if config is None else config})
    )
    change = change or {}
    every = [step(number, **change.get(number, {})) for number in range(first, steps)]
    every = [{name: value for name, value in line.items() if value is not None} for line in every]
    written = [start(rank=rank, first=first, **(begin or {})), *every, *lines]
    if end:
        written.append({"kind": "end", "step": steps, "status": "done"})
    text = "".join(json.dumps(line) + "\n" for line in written)
    (folder / f"trace-{rank:05d}.jsonl").write_text(text)
    return folder


def evaluation(number, *, name="val", seen=10, of=10, **values):
    said = {metric: value.hex() for metric, value in values.items()}
    return {
        "kind": "eval",
        "name": name,
        "step": number,
        "epoch": 0,
        "values": said,
        "seen": seen,
        "of": of,
    }
