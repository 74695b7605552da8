"""Names and texts that try to be more than text: each output's tests put every one of them where a user's text goes.

`HOSTILE` is by name, for readable test ids. `hostile_report` is a report, and `hostile_result` a
result.json, with one of them in every place that data, schemas and people can write to; `leaks`
says what of a text acts on what shows it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from datacheck.model.finding import Cause, Finding, Level, Report, RuleVerdict, Severity, Verdict
from datacheck.rules.comparison import DriftResult, comparison_json
from datacheck.scan.run_documents import RESULT, dump_json, result
from tests.report.conftest import SCHEMA_TEXT

HOSTILE = {
    "markup": "<script>alert(1)</script><img src=x onerror=alert(2)>",
    "closing": "</pre></code></td></table></details></testsuite></script>--><!--",
    "cdata": "]]><![CDATA[x]]>",
    "entity": "&lt;b&gt; &amp; &#60; &xxe; <!DOCTYPE a [<!ENTITY xxe SYSTEM 'file:///etc/passwd'>]>",
    "quotes": '"\'`\u00b4\u2018\u2019\u201c\u201d\\" onclick="x',
    "newlines": "a\nb\r\nc\rd\x85e\u2028f\u2029g\x0bh\x0ci",
    "ansi": "\x1b[31mred\x1b[0m \x1b]0;title\x07 \x9b1m \x1b]8;;http://x\x1b\\link",
    "bidi": "abc\u202egpj.exe\u202c \u2066x\u2069 \u200f\u061c",
    "invisible": "zero\u200bwidth\u200djoiner\ufeffmark\u00adhyphen",
    "nul": "a\x00b\x01c\x08d\x7fe",
    "noncharacters": "a\ufffeb\uffffc\U0001fffed\U0010ffffe",
    "surrogates": "a\ud800b\udfffc\udc80d",
    "percent": "%0A%0D%25%3A%2C%s%(x)s%n{x}{0}${x}$(x)",
    "command": "::error::owned ::set-output name=x::y ::stop-commands::z ::add-mask::a",
    "command on a line": "x\n::error title=owned::owned\n::add-mask::a\r::warning::b",
    "old command": "##[error]owned ##vso[task.complete result=Succeeded]",
    "properties": "a,title=owned,file=/etc/passwd,line=1:2::3",
    "markdown": "# h *b* ~~s~~ [l](javascript:alert(1)) ![i](http://x/y.png) <http://x> 1. > \\* | "
    "a |\n|---|\n| c |",
    "backticks": "`a` ``b`` ```c``` \n```\n~~~\n",
    "fence": "\n\n```html\n<b>x</b>\n```\n\n---\n===\n",
    "mentions": "@everyone #1 owner/repo#2 GH-3 a@b.example www.example.com http://x",
    "formula": "=cmd|'/c calc'!A1 +1 -1 @SUM(1)\t",
    "paths": "../../../etc/passwd C:\\x \\\\host\\x file:///x //x/y ~/.ssh a:b ?q#f",
    "percent names": "a%2e%2e%2fb%00 %E0%A4%A",
    "emoji and chinese": "手部姿态 👩‍👩‍👧 \u0301 é ﷽ Z͑ͫ̓",
    "rich markup": "[bold red]x[/] [link=http://x]y[/link] :smile:",
    "long": "x" * 5000 + "<b>",
    "empty": "",
    "json in a script": "</script><!--<script>\\u003c/script>\\u2028 {{policy}} {{run}} </style> "
    "javascript:alert(1)",
    "hidden": "a\U000e0041\U000e0042b\u180ec\ue000d\ufff9e\u200d\U0001f467 \U0001f467\u200de",
    "spaces": "  \t \u00a0\u3000 ",
}

ACTING = {
    "control characters": lambda c: ord(c) < 32 or 127 <= ord(c) < 160,
    "line ends of Unicode": lambda c: c in "\u2028\u2029",
    "text direction": lambda c: (
        c in "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
    ),
    "surrogates": lambda c: "\ud800" <= c <= "\udfff",
    "no characters": lambda c: ord(c) & 0xFFFE == 0xFFFE,
}


def leaks(text: str, allowed: str = "\n") -> set[str]:
    """What of a text would act on a terminal, an XML reader or a page, or cannot be written at all."""
    return {kind for kind, acts in ACTING.items() for c in text if c not in allowed and acts(c)}


def hostile_report(evil: str, folder: str = ".datacheck/R") -> Report:
    """A report with a text in every place that is not ours: one error, one warning, one known finding, a crash."""
    cause = Cause(evil, evil, 0.001, 1, (evil,))

    def finding(severity: Severity, code: str, **options: object) -> Finding:
        return Finding(
            code,
            evil,
            severity,
            Level.SAMPLE,
            (evil, "x"),
            evil,
            np.arange(2),
            3,
            (evil, f"a{evil}"),
            {evil: evil, "n": [evil]},
            {evil: 1.0},
            cause,
            evil,
            evil,
            {"DC999": 1},
            evil,
            **options,
        )

    run = {
        "id": "20261120T000000Z",
        "started": "2026-11-20T00:00:00Z",
        "seconds": 1.5,
        "version": "0.1.0",
        "command": f"datacheck scan {evil}",
        "level": "numeric",
        "fail_on": "warning",
        "kept_files": 0,
        "kept_samples": 0,
        "tokenized": 0,
        "rule_seconds": {"DC201": 0.5},
    }
    dataset = {
        "name": evil,
        "root": evil,
        "digest": "0" * 32,
        "files": 3,
        "bytes": 3,
        "samples": {"listed": 3, "checked": 3, "unreadable": 0, "skipped": 0},
        "splits": {evil: {"samples": 3, "valid": 1}},
    }
    verdicts = [
        RuleVerdict(
            code,
            evil,
            verdict,
            Severity.ERROR,
            Level.SAMPLE,
            3,
            2,
            {"DC901": 1},
            (evil,),
            evil,
            {evil: evil},
        )
        for code, verdict in zip(
            ("DC901", "DC902", "DC903", "DC904", "DC905", "DC906"), Verdict, strict=True
        )
    ]
    curve = {"at": [1.0, 2.0], "here": [1, 2], "reference": [0, 2], "ks": 0.5, "ks_at": 1.0}
    classes = ((evil or "c", 0.5, 0.25),)
    told = DriftResult(
        evil,
        evil or "m",
        evil,
        1.5,
        True,
        (2, 2),
        (2, 2),
        0.01,
        0.2,
        (1.5, 2.0),
        curve,
        classes,
        evil,
    )
    verdicts[1] = replace(
        verdicts[1],
        compared=comparison_json([told]),
        options={"effect": 0.2, "false_discoveries": 0.05},
    )
    known = finding(Severity.ERROR, "DC901", suppressed=evil or "known")
    return Report(
        run,
        dataset,
        {"name": evil, "digest": "1" * 32},
        verdicts,
        [finding(Severity.ERROR, "DC902"), finding(Severity.WARNING, "DC902")],
        1,
        [evil],
        [{"rule": "DC904", "at": evil, "traceback": f"Traceback\n{evil}\nValueError: {evil}"}],
        folder,
        [known],
    )


def hostile_result(evil: str) -> dict[str, Any]:
    """The result.json of such a report, also with texts that no JSON file can hold."""
    mark = "\U000f0000"
    said: dict[str, Any] = _put(result(hostile_report(mark)), mark, evil)
    return said


def _put(value: Any, mark: str, evil: str) -> Any:
    if isinstance(value, str):
        return value.replace(mark, evil)
    if isinstance(value, dict):
        return {_put(name, mark, evil): _put(item, mark, evil) for name, item in value.items()}
    return [_put(item, mark, evil) for item in value] if isinstance(value, list) else value


def evil_run(made_run: Any, evil: str) -> Any:
    """The folder of a run with such a result, and keys, splits and a schema with the text: what a JSON file can hold.

    Args:
        made_run: the fixture.
        evil: a text; of surrogates their spelling.
    """
    evil = evil.encode("utf-8", "backslashreplace").decode()
    comment = "".join(c if c.isprintable() else "." for c in evil)
    keys = [f"{n} {evil}" for n in range(100)]
    folder = made_run(
        keys=keys, schema=f"{SCHEMA_TEXT}# {comment}\n", splits=(evil, "val"), shared=evil
    )
    (folder / RESULT).write_bytes(dump_json(hostile_result(evil)))
    return folder
