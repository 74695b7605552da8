import io

import pytest
from rich.console import Console

from datacheck.finding import Tick
from datacheck.report.progress import progress_bar, said


def test_a_bar_says_samples_files_bytes_rate_and_what_was_kept():
    tick = Tick(files=30, all_files=60, nbytes=4_000_000, all_nbytes=8_000_000, samples=1234, kept=7)
    assert said(tick, 2.0) == "1,234 samples · 30/60 files · 4 MB · 2 MB/s · 7 files unchanged"
    assert "unchanged" not in said(tick._replace(kept=0), 2.0)


@pytest.fixture(autouse=True)
def nobody_watches(monkeypatch):
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setenv("TERM", "xterm")


def test_on_a_terminal_it_is_drawn_and_taken_away():
    drawn = io.StringIO()
    with progress_bar(Console(file=drawn, force_terminal=True, width=120)) as tell:
        tell(Tick(0, 2, 0, 100, 0, 0))
        tell(Tick(2, 2, 100, 100, 5, 0))
    assert "5 samples" in drawn.getvalue()
    assert "100%" in drawn.getvalue()


@pytest.mark.parametrize(("name", "value"), [("CI", "1"), ("TERM", "dumb")])
def test_nothing_is_drawn_where_nobody_would_see_it(monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    drawn = io.StringIO()
    with progress_bar(Console(file=drawn, force_terminal=True)) as tell:
        assert tell is None
    with progress_bar(Console(file=drawn, force_terminal=False)) as tell:
        assert tell is None
    assert drawn.getvalue() == ""


def test_of_a_loader_samples_alone_are_counted():
    assert said(Tick(64, 1000, 0, 0, 64, 0, "reading"), 2.0) == "64/1,000 samples"


def test_a_scan_of_nothing_new_does_not_divide_by_zero():
    drawn = io.StringIO()
    with progress_bar(Console(file=drawn, force_terminal=True)) as tell:
        tell(Tick(0, 0, 0, 0, 0, 100))
    assert "0/0 files" in drawn.getvalue()


def test_there_is_no_bar_where_standard_error_is_closed(monkeypatch):
    monkeypatch.setattr("sys.stderr", None)
    with progress_bar() as tell:
        assert tell is None
