"""The docs as a site: everything is in it, every link holds, and nothing is loaded from elsewhere."""

from __future__ import annotations

import html
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from datacheck.rules import catalogue
from tests.docs.pages import pages

OUTSIDE = {
    "README.md": "index.html",
    "CONTRIBUTING.md": "contributing.html",
    "SECURITY.md": "security.html",
    "CHANGELOG.md": "changelog.html",
    "schemas/README.md": "schemas.html",
    "pipelines/README.md": "pipelines.html",
}


@pytest.fixture(scope="module")
def site(repository, tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    env = os.environ | {"NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(repository)}
    run = subprocess.run(
        command, cwd=repository, env=env, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    assert "WARNING" not in run.stderr
    assert "Deprecat" not in run.stderr  # of two files for one page
    return folder


class Loaded(HTMLParser):
    """What a browser fetches to show a page."""

    def __init__(self, text):
        super().__init__()
        self.found = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        if tag == "link" and given.get("rel") in {"canonical", "next", "prev"}:
            return
        if tag in {"script", "link", "img", "iframe", "source", "object"}:
            self.found += [given[name] for name in ("src", "href", "data") if given.get(name)]


@pytest.mark.slow
def test_every_page_every_rule_and_every_public_name_is_in_the_site(site, repository):
    expected = {
        OUTSIDE.get(p, re.sub(r"README\.md$|\.md$", "", p).removeprefix("docs/"))
        for p in pages(repository)
    }
    for name in expected:
        file = (
            name
            if name.endswith(".html")
            else f"{name}index.html"
            if name.endswith("/")
            else f"{name}.html"
        )
        assert (site / file).is_file(), file
    for code, rule in catalogue().items():
        assert rule.name in (site / f"rules/{code}.html").read_text(encoding="utf-8")
        assert (site / f"rules/zh/{code}.html").is_file()
    api = "".join(path.read_text(encoding="utf-8") for path in (site / "api").glob("*.html"))
    for name in (
        "scan_dataset",
        "build_cache",
        "CachedDataset",
        "probe_label_shift",
        "Recorder",
        "pin",
    ):
        assert name in api
    assert "&lt;name&gt;_is_pad" in api
    assert "datacheck cache export" in (site / "commands.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_class_shows_how_it_is_called_and_parameters_what_they_are(site):
    text = (site / "api/torch.html").read_text(encoding="utf-8")
    plain = html.unescape(re.sub(r"<[^>]+>", "", text))
    assert re.search(r"EvalSampler\(\s*dataset,\s*\*,\s*rank=None,\s*world_size=None", plain)
    assert "lengths: int64 (episodes) [steps]<br>\nreturns: int64 (episodes)" in text
    rows = re.findall(r'<tr class="doc-section-item">.*?</tr>', text, re.DOTALL)
    together = [row for row in rows if re.search(r"<code>\w+, ", row)]
    assert len(together) >= 4
    assert not any("required" in row for row in together)
    assert sum("required" in row for row in rows) > 20
    extending = re.sub(r"<[^>]+>", "", (site / "api/extending.html").read_text(encoding="utf-8"))
    assert re.search(r"Sample\(\s*key,\s*fields,\s*origin\s*\)", extending)


@pytest.mark.slow
def test_a_page_loads_nothing_from_elsewhere(site):
    for path in site.rglob("*.html"):
        away = [
            url
            for url in Loaded(path.read_text(encoding="utf-8")).found
            if re.match(r"(\w+:)?//", url)
        ]
        assert away == [], path
    for path in site.rglob("*.css"):
        assert not re.findall(
            r"url\(['\"]?(?:\w+:)?//|@import", path.read_text(encoding="utf-8")
        ), path


@pytest.mark.slow
def test_links_between_pages_outside_of_docs_were_turned(site):
    assert 'href="../schemas.html#rules"' in (site / "rules/index.html").read_text(encoding="utf-8")
    assert 'href="rules/index.html"' in (site / "schemas.html").read_text(encoding="utf-8")
    assert 'src="images/report-ho3d.png"' in (site / "index.html").read_text(encoding="utf-8")


def test_what_is_loaded_from_elsewhere_would_be_seen():
    assert Loaded('<p><img src="https://a.example/x.png"></p>').found == ["https://a.example/x.png"]


def test_links_of_pages_hold_on_a_git_host(repository):
    """The target of every relative link of a page is a file or folder of the repository."""
    for page in pages(repository):
        text = re.sub(
            r"^```.*?^```", "", (repository / page).read_text(encoding="utf-8"), flags=re.M | re.S
        )
        for target in re.findall(r"\]\((?!\w+:|#)([^)\s#]+)", text):
            assert ((repository / page).parent / Path(target)).exists(), f"{page}: {target}"
