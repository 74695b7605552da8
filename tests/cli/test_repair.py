"""``datacheck cache repair``: what it prints, and with which exit code it ends."""

from __future__ import annotations

import numpy as np
import pytest

from datacheck.cli.main import run

SCHEMA = """datacheck: 1
name: clouds
samples: {files: "{split}/*.npy"}
fields: {points: {role: points, shape: [P, 3], unit: m}}
"""


@pytest.fixture
def built(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rng = np.random.Generator(np.random.Philox(4))
    for split in ("train", "val"):
        (tmp_path / "data" / split).mkdir(parents=True)
        for i in range(4):
            np.save(
                tmp_path / f"data/{split}/{i}.npy", rng.uniform(-1, 1, (50, 3)).astype(np.float32)
            )
    (tmp_path / "clouds.yaml").write_text(SCHEMA)
    assert run(["cache", "build", *WORDS]) == 0
    capsys.readouterr()
    return sorted(tmp_path.glob("cache/clouds/*/*"))


WORDS = ["clouds.yaml", "--data", "data", "--out", "cache"]


def damage(cache):
    file = cache / "fields/points/c.0.0"
    raw = bytearray(file.read_bytes())
    raw[100] ^= 4
    file.chmod(0o644)
    file.write_bytes(raw)


def test_what_is_damaged_is_told_repaired_and_then_intact(built, tmp_path, capsys):
    train, val = built
    damage(train)
    assert run(["cache", "verify", "cache"]) == 7
    assert "datacheck cache repair" in capsys.readouterr().out
    assert run(["cache", "repair", *WORDS]) == 0
    lines = capsys.readouterr().out.splitlines()
    (moved,) = tmp_path.glob("cache/clouds/train/.trash/*")
    assert lines == [
        f"{train.relative_to(tmp_path)}: 1 problem",
        lines[1],
        "    repaired: 1 of 1 shards rebuilt, tables and documents written again",
        f"    the damaged cache was moved to {moved.relative_to(tmp_path)}",
        f"{val.relative_to(tmp_path)}: intact (every byte); nothing to repair",
    ]
    assert "fields/points/c.0.0 (field points, shard 0, all 4 samples): chunk 0" in lines[1]
    assert run(["cache", "verify", "--values", "cache"]) == 0
    assert run(["cache", "verify", str(moved)]) == 7
    capsys.readouterr()
    assert run(["cache", "repair", *WORDS]) == 0
    assert capsys.readouterr().out.count("nothing to repair") == 2


def test_other_sources_end_with_2_and_are_named(built, tmp_path, capsys):
    train, _ = built
    damage(train)
    np.save(tmp_path / "data/train/2.npy", np.ones((50, 3), np.float32))
    before = sorted((p, p.stat().st_ino) for p in tmp_path.glob("cache/**/*"))
    assert run(["cache", "repair", *WORDS]) == 2
    said = capsys.readouterr().err
    assert (
        f"{train.relative_to(tmp_path)}: made from other data, another schema or pipeline" in said
    )
    assert "sources: 4 files -> 4 files: 1 changed (train/2.npy)" in said
    assert sorted((p, p.stat().st_ino) for p in tmp_path.glob("cache/**/*")) == before


def test_a_split_alone_can_be_repaired(built, capsys):
    for cache in built:
        damage(cache)
    assert run(["cache", "repair", *WORDS, "--split", "val"]) == 0
    assert run(["cache", "verify", str(built[1])]) == 0
    assert run(["cache", "verify", str(built[0])]) == 7
    assert run(["cache", "repair", "clouds.yaml", "--data", "data", "--out", "nowhere"]) == 2
    assert "no cache of these data" in capsys.readouterr().err
