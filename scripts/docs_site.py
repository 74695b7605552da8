"""What the docs site has beside docs/, as a hook of mkdocs: pages of other folders, rules by family, commands, API.

Nothing is written into docs/: on a Git host each page lies where it is needed, and its links hold
there. Here they are turned to where the site has the page; a link to what the site has not becomes
plain text.
"""

from __future__ import annotations

import posixpath
import re
import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import click
from mkdocs.structure.files import File

import datacheck
import datacheck.repro
import datacheck.torch
from datacheck.cli.main import datacheck as command_line
from datacheck.report.rule_pages import chinese
from datacheck.rules import catalogue

ROOT = Path(__file__).resolve().parents[1]
ZH = "datacheck/rules/zh"
PLACES = {  # outside of docs/: place in the site
    "README.md": "index.md",
    "schemas/README.md": "schemas.md",
    "pipelines/README.md": "pipelines.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "CHANGELOG.md": "changelog.md",
    ZH: "rules/zh/README.md",
}
FAMILIES = (
    "Files and fields",
    "Numbers and units",
    "Frames and cameras",
    "Labels",
    "Episodes",
    "Joints",
    "Text",
    "Splits and copies",
    "Runs and loaders",
)
WIDTH = 100  # of what the commands print, so of code on a page
CSS = ".md-grid { max-width: 78rem } .md-typeset pre > code { font-size: .62rem }\n"
LINK = re.compile(r"(!?)\[([^\]]*)\]\((?![a-z]+:|#)([^)\s]+)\)")
FENCE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
SHAPES = re.compile(r'<details class="(?:shapes|class-attributes)".*?</details>', re.DOTALL)
SHAPE = re.compile(r"\n(?=[\w&;, ]+: )")
TOGETHER = re.compile(r"(<code>\w+, [\w, ]+</code>(?:(?!</tr>).)*?)<em>required</em>", re.DOTALL)
EXTENDING = (
    "datacheck.model.sample.Sample",
    "datacheck.model.sample.Block",
    "datacheck.rules.base.rule",
    "datacheck.rules.base.Rule",
    "datacheck.transforms.base.Transform",
    "datacheck.testing.synth.write",
    "datacheck.testing.faults.plant",
)


def on_config(config: Any) -> Any:
    """Put the rules into the navigation, by family, and the decisions."""
    (rules,) = [part["Rules"] for part in config.nav if "Rules" in part]
    for (number, ours), title in zip(
        groupby(catalogue().values(), lambda r: r.code[2]), FAMILIES, strict=True
    ):
        pages = [{f"{r.code} {r.name}": f"rules/{r.code}.md"} for r in ours]
        rules.append({f"{number}xx {title}": pages})
    rules.append(
        {
            "中文": [
                PLACES[ZH],
                *({f"{c} {r.name}": f"rules/zh/{c}.md"} for c, r in catalogue().items()),
            ]
        }
    )
    (reference,) = [part["Reference"] for part in config.nav if "Reference" in part]
    reference.append(
        {
            "Decisions": [
                f"decisions/{path.name}" for path in sorted(ROOT.glob("docs/decisions/*.md"))
            ]
        }
    )
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add what does not lie in docs/."""
    for place, text in pages():
        files.append(File.generated(config, place, content=text))
    files.append(File.generated(config, "assets/site.css", content=CSS))
    return files


def pages() -> Iterator[tuple[str, str]]:
    """Yield place and text of every page that docs/ has not."""
    for place, where in PLACES.items():
        if place != ZH:
            yield where, (ROOT / place).read_text(encoding="utf-8")
    for path in sorted((ROOT / ZH).glob("DC*.md")):
        yield f"rules/zh/{path.name}", path.read_text(encoding="utf-8")
    rows = "".join(
        f"| [{c}]({c}.md) | {r.name} | {chinese(r).first} |\n" for c, r in catalogue().items()
    )
    yield PLACES[ZH], f"# 规则\n\n| 代码 | 名称 | 问题 |\n| --- | --- | --- |\n{rows}"
    yield "commands.md", "# Command line\n\n" + "\n".join(commands(command_line, "datacheck", None))
    for package in (datacheck, datacheck.torch, datacheck.repro):
        names = [name for name in package.__all__ if not name.startswith("_")]
        text = api(package.__name__, {name: home(package, name) for name in names})
        yield f"api/{package.__name__.rpartition('.')[2]}.md", text
    yield "api/extending.md", api("Extending datacheck", {name: name for name in EXTENDING})


def commands(command: click.Command, name: str, above: click.Context | None) -> Iterator[str]:
    """Yield the help of a command and of those below it."""
    names = command_line.context_settings["help_option_names"]
    context = click.Context(
        command, info_name=name, parent=above, terminal_width=WIDTH, help_option_names=names
    )
    yield f"## {context.command_path}\n\n```text\n{command.get_help(context)}\n```\n"
    if isinstance(command, click.Group):
        for below in command.list_commands(context):
            yield from commands(command.get_command(context, below), below, context)


def home(package: Any, name: str) -> str:
    """Return where a name is defined that a package imports when it is first used: mkdocstrings runs no code."""
    module, _, attribute = package._HOME[name].partition(":")  # noqa: SLF001
    if name in getattr(sys.modules.get(module), "_HOME", {}):
        return home(sys.modules[module], name)
    return f"{module}.{attribute or name}"


def api(title: str, names: dict[str, str]) -> str:
    """Return a page of public names and where they are defined, which mkdocstrings fills from their docstrings."""
    parts = [
        f"::: {place}\n    options: {{heading: {name}, toc_label: {name}}}\n"
        for name, place in names.items()
    ]
    return f"# {title}\n\n" + "\n".join(parts)


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Turn links between files of the repository into links between pages of the site."""
    site = page.file.src_uri
    here = {where: place for place, where in PLACES.items() if place != ZH}.get(
        site, f"docs/{site}"
    )
    if site in {PLACES[ZH], "commands.md"} or site.startswith(("api/", "rules/zh/")):
        return markdown
    parts = FENCE.split(markdown)
    return "".join(
        part if i % 2 else LINK.sub(lambda m: turned(m, here, site), part)
        for i, part in enumerate(parts)
    )


def on_page_content(html: str, page: Any, config: Any, files: Any) -> str:
    """Show docstrings as they are written: to Markdown `<name>_is_pad` is a tag, and lines of shapes are one text.

    Parameters that a docstring names together ("rank, world_size: ...") are called required,
    whatever they are; what each one's default is says the signature.
    """
    if not page.file.src_uri.startswith("api/"):
        return html
    html = SHAPES.sub(
        lambda found: SHAPE.sub("<br>\n", found[0]), html.replace("<name>", "&lt;name&gt;")
    )
    return TOGETHER.sub(r"\1", html)


def turned(link: re.Match[str], here: str, site: str) -> str:
    image, text, target = link.groups()
    path, hash_, anchor = target.partition("#")
    place = posixpath.normpath(posixpath.join(posixpath.dirname(here), path))
    where = PLACES.get(place, place.removeprefix("docs/") if place.startswith("docs/") else None)
    if where is None:
        return text
    return f"{image}[{text}]({posixpath.relpath(where, posixpath.dirname(site) or '.')}{hash_}{anchor})"
