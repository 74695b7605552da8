import io

import pytest
from rich.console import Console

from datacheck.model.finding import Tick
from datacheck.report.progress import ByteRate, lines, progress_bar, progress_text


def test_a_bar_says_samples_files_bytes_rate_and_what_was_kept():
    tick = Tick(
        files=30, all_files=60, nbytes=4_000_000, all_nbytes=8_000_000, samples=1234, kept=7
    )
    assert (
        progress_text(tick, 2e6)
        == "1,234 samples · 30/60 files · 4 MB · 2 MB/s · 7 files unchanged"
    )
    assert progress_text(tick._replace(kept=0), None) == "1,234 samples · 30/60 files · 4 MB"
    assert (
        progress_text(tick._replace(doing="hashing"), None)
        == "30/60 files · 4 MB · 7 files unchanged"
    )
    assert (
        progress_text(tick._replace(unit="shards"), 2e6)
        == "1,234 samples · 30/60 shards · 4 MB · 2 MB/s · 7 kept"
    )


@pytest.fixture(autouse=True)
def nobody_watches(monkeypatch):
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setenv("TERM", "xterm")


def test_on_a_terminal_it_is_drawn_and_taken_away():
    drawn = io.StringIO()
    with progress_bar(Console(file=drawn, force_terminal=True, width=120)) as tell:
        tell(Tick(0, 2, 0, 100, 0, 0))
        tell(Tick(1, 2, 50, 100, 2, 0, note="Dask dashboard: [b]http://127.0.0.1:8787/status"))
        tell(Tick(2, 2, 100, 100, 5, 0, note="Dask dashboard: [b]http://127.0.0.1:8787/status"))
    assert "5 samples" in drawn.getvalue()
    assert "100%" in drawn.getvalue()
    assert drawn.getvalue().count("Dask dashboard: [b]http://127.0.0.1:8787/status") == 1


class Clock:
    """Tells the time that it is told."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


def test_the_rate_is_that_of_this_run_and_of_this_part_of_it():
    clock = Clock()
    pace = ByteRate(clock)
    # Five were there from a run before
    assert pace(Tick(5, 9, 500, 900, 0, 5, "building all")) is None
    clock.now += 4
    assert pace(Tick(6, 9, 600, 900, 0, 5, "building all")) == 25.0
    assert pace(Tick(1, 9, 100, 900, 0, 0, "checking all")) is None
    assert pace(Tick(2, 9, 200, 900, 0, 0, "checking all")) is None  # no time has gone by
    clock.now += 2
    assert pace(Tick(3, 9, 300, 900, 0, 0, "checking all")) == 100.0


def test_elsewhere_a_line_comes_every_half_a_minute():
    clock, file = Clock(), io.StringIO()
    tell = lines(file, clock)
    for shard in range(8):
        tell(Tick(shard, 400, shard * 10**6, 400 * 10**6, shard * 64, 0, "building all", "shards"))
        clock.now += 10
    assert file.getvalue().splitlines() == [
        "building all: 192 samples, 3/400 shards, 3 MB, 100 kB/s, 1:06:10 left",
        "building all: 384 samples, 6/400 shards, 6 MB, 100 kB/s, 1:05:40 left",
    ]


def test_a_note_is_told_at_once_and_again_only_after_another():
    file = io.StringIO()
    tell = lines(file, Clock())
    for shard, note in enumerate(
        ["the dashboard", "the dashboard", "", "no workers", "", "the dashboard"]
    ):
        tell(Tick(shard, 9, 0, 9, 0, 0, "building all", "shards", note))
    assert file.getvalue() == "the dashboard\nno workers\nthe dashboard\n"


@pytest.mark.parametrize(("name", "value"), [("CI", "1"), ("TERM", "dumb"), ("TERM", "xterm")])
def test_no_bar_is_drawn_where_nobody_would_see_it(monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    drawn = io.StringIO()
    with progress_bar(Console(file=drawn, force_terminal=name == "CI" or value == "dumb")) as tell:
        tell(Tick(0, 2, 0, 100, 0, 0))
        tell(Tick(2, 2, 100, 100, 5, 0))
    assert drawn.getvalue() == ""  # it did not take half a minute


def test_of_a_loader_samples_alone_are_counted():
    assert progress_text(Tick(64, 1000, 0, 0, 64, 0, "reading"), None) == "64/1,000 samples"


def test_a_scan_of_nothing_new_does_not_divide_by_zero():
    drawn = io.StringIO()
    with progress_bar(Console(file=drawn, force_terminal=True)) as tell:
        tell(Tick(0, 0, 0, 0, 0, 100))
    assert "0/0 files" in drawn.getvalue()


def test_there_is_no_bar_where_standard_error_is_closed(monkeypatch):
    monkeypatch.setattr("sys.stderr", None)
    with progress_bar() as tell:
        assert tell is None
