"""The hostile corpus where the other tests of an output hold it against a few texts only."""

import io
import json

import html5lib
import orjson
import pytest
from rich.console import Console

from datacheck.report.html import write_page
from datacheck.report.sample_page import write_view
from datacheck.report.text import LINES, report_printer
from tests.report import pictured
from tests.report.hostile import HOSTILE, evil_run, hostile_report, leaks

XHTML = "{http://www.w3.org/1999/xhtml}"


def read(path):
    """The elements of a page, by name, and its data; the parser found no error."""
    parser = html5lib.HTMLParser()
    tree = parser.parse(path.read_bytes().decode())
    assert parser.errors == []
    (data,) = (
        one.text for one in tree.iter(f"{XHTML}script") if one.get("type") == "application/json"
    )
    return [one.tag for one in tree.iter()], json.loads(data)


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("width", [40, 80, 110])
def test_no_text_acts_on_a_terminal(name, width):
    out = io.StringIO()
    report_printer(
        hostile_report(HOSTILE[name]),
        Console(file=out, width=width, force_terminal=True, no_color=True),
    )()
    shown = out.getvalue()
    for code in ("\x1b[1m", "\x1b[2m", "\x1b[0m"):  # bold, dim and their end: ours
        shown = shown.replace(code, "")
    assert leaks(shown) == set()
    assert len(shown.splitlines()) <= LINES


@pytest.mark.parametrize("name", HOSTILE)
def test_no_text_is_markup_in_a_page_with_pictures(made_run, monkeypatch, name):
    evil = HOSTILE[name].encode("utf-8", "backslashreplace").decode()
    plain = read(write_page(pictured.put(evil_run(made_run, "x"))))[0]
    monkeypatch.setattr(pictured, "HOSTILE", evil)
    elements, said = read(write_page(pictured.put(evil_run(made_run, evil))))
    assert elements == plain
    assert said["previews"]["samples"][-1]["why"] == evil


@pytest.mark.parametrize("name", HOSTILE)
def test_no_text_is_markup_in_the_page_of_a_sample(tmp_path, monkeypatch, name):
    evil = HOSTILE[name].encode("utf-8", "backslashreplace").decode()

    def page(text):
        monkeypatch.setattr(pictured, "HOSTILE", text)
        made = [{"field": field, **one} for field, one in pictured.pictures().items()]
        said = {
            "sample": {"key": text, "split": text, "fields": made, "left_out": [text], "why": text},
            "about": text,
        }
        write_view(tmp_path / "view.html", said)
        return *read(tmp_path / "view.html"), said

    plain, elements = page("x")[0], page(evil)
    assert elements[0] == plain
    assert elements[1] == orjson.loads(orjson.dumps(elements[2]))
