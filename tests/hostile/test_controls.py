"""Each detector sees what it is for: a canary that runs on purpose, a token that is printed, a file that is opened."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
import yaml

from tests.hostile import executed
from tests.hostile.ground import Ended, Watch, tree


def test_a_module_that_is_imported_is_seen(ground):
    executed.startup_modules(ground)
    # -c: the working folder is on the path
    ended = ground.run(sys.executable, "-c", "import sitecustomize, conftest")
    assert "sitecustomize" in ground.ran(ended)
    assert ground.ran(Ended(0, b"")) == []


def test_a_module_that_cannot_write_is_seen_by_how_its_process_ends(ground):
    executed.startup_modules(ground)
    ground.fired.chmod(0o500)
    ground.fired.rename(ground.base / "gone")
    ground.fired.mkdir()
    (ground.place / "other.py").write_text(ground.python("no/such/folder"))
    ended = ground.run(sys.executable, "-c", "import other")
    assert ended.code == -12
    assert ground.ran(ended) == ["no/such/folder", "something (SIGUSR2)"]


def loads(data):
    """Unpickle in a child, as no reader should."""
    return [sys.executable, "-c", f"import os, pickle; pickle.loads({data!r})"]


@pytest.mark.parametrize(
    "name", ["reduce", "posix", "inst", "obj", "stack_global", "exec", "nested", "getattr"]
)
def test_a_pickle_that_is_loaded_is_seen(name, ground):
    ended = ground.run(*loads(executed.pickles(ground)[name]))
    assert ground.ran(ended) != []


def test_yaml_that_is_loaded_unsafely_is_seen(ground):
    (ground.place / "tagged.yaml").write_text(executed.yaml_with_tags(ground, "control"))
    with pytest.raises(yaml.YAMLError):
        yaml.safe_load((ground.place / "tagged.yaml").read_text())
    ended = ground.run(sys.executable, "-c", "import yaml; yaml.unsafe_load(open('tagged.yaml'))")
    assert ground.ran(ended) == ["yaml control"]


def test_a_token_that_is_printed_or_written_is_found(ground):
    secret = ground.outside / "secret.txt"
    ended = ground.run("cat", secret)
    assert ground.leaks(ended) == ["what was printed"]
    (ground.place / "made/copy.bin").write_bytes(b"\0" + secret.read_bytes())
    (ground.place / f"{ground.token}.txt").touch()
    assert len(ground.leaks(Ended(0, b""))) == 2


@pytest.mark.parametrize("way", ["", "link", "/proc/self/root"])
def test_an_open_is_seen_by_whatever_name(way, ground):
    secret = ground.outside / "secret.txt"
    (ground.place / "link").symlink_to(secret)
    name = Path(f"{way}{secret}") if way.startswith("/") else ground.place / way if way else secret
    with Watch(ground.outside) as watch:
        assert watch.seen() == []
        secret.stat()
        assert watch.seen() == []
        os.close(os.open(name, os.O_RDONLY))
        assert watch.seen() == [str(secret)]
        list((ground.outside / "secret.zarr").iterdir())
        assert watch.seen() == [str(ground.outside / "secret.zarr")]


def test_a_change_outside_is_seen(ground):
    before = tree(ground.outside)
    secret = ground.outside / "secret.txt"
    secret.write_text(secret.read_text())
    assert [name for name, value in tree(ground.outside).items() if before[name] != value] == [
        "secret.txt"
    ]
    secret.unlink()
    assert before.keys() - tree(ground.outside).keys() == {"secret.txt"}


@pytest.mark.parametrize(
    "end", [(4, b""), (-11, b""), (1, b"Traceback (most recent call last)"), (1, b"internal error")]
)
def test_an_end_that_bad_input_may_not_have_is_seen(end):
    assert not Ended(*end).sound
    assert Ended(1, b"datacheck: 1 error").sound
