import io
import json
import re
import shlex
from dataclasses import replace

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from datacheck.model.finding import Cause, Finding, Level, Report, RuleVerdict, Severity, Verdict
from datacheck.report.text import LINES, _wrapped, report_lines, report_printer
from datacheck.report.words import escaped_json
from datacheck.scan.run_documents import result_bytes
from tests.report.hostile import HOSTILE, leaks


def finding(code="DC201", failed=37, of=1200, severity=Severity.ERROR, **options):
    options.setdefault("message", "size 156 m (median of the 37), allowed 0.02..0.4 m.")
    options.setdefault("examples", ("train.h5:/300", "train.h5:/301", "train.h5:/302")[:failed])
    options.setdefault("fields", ("obj_verts",))
    return Finding(
        code,
        options.pop("name", "length-unit"),
        severity,
        Level.SAMPLE,
        options.pop("fields"),
        options.pop("message"),
        np.arange(failed),
        of,
        options.pop("examples"),
        **options,
    )


def report(*findings, valid=None, **options):
    listed = options.pop("listed", 1200)
    unfit = sum(f.failed for f in findings if f.severity is Severity.ERROR)
    run = {
        "id": "R",
        "started": "2026-11-20T00:00:00Z",
        "seconds": 1.46,
        "version": "0.1.0",
        "command": "",
        "kept_files": 0,
        "kept_samples": 0,
        "fail_on": options.pop("fail_on", "error"),
    }
    dataset = {
        "name": "n",
        "root": options.pop("root", "data/"),
        "digest": "d",
        "files": 3,
        "bytes": 133_169_152,
        "samples": {"listed": listed, "checked": listed, "unreadable": 0, "skipped": 0},
        "splits": options.pop("splits", {}),
    }
    verdict = RuleVerdict("DC201", "length-unit", Verdict.PASS, Severity.ERROR, Level.SAMPLE)
    return Report(
        run | options.pop("run", {}),
        dataset,
        {"name": "sceneleap", "digest": "s"},
        options.pop("verdicts", [verdict]),
        list(findings),
        listed - unfit if valid is None else valid,
        options.pop("unchecked", []),
        options.pop("crashes", []),
        ".datacheck/R",
    )


def text(said, width=100):
    return [line.plain for line in report_lines(said, width)]


def test_the_first_lines_answer_whether_one_can_train_on_it():
    assert text(report())[:4] == [
        "datacheck 0.1.0 · schema sceneleap · data/",
        "3 files, 133 MB · 1,200 samples · 1.5 s",
        "",
        "OK  all 1,200 samples are fit for training: nothing found",
    ]
    assert (
        text(report(finding()))[3]
        == "FAIL  37 of 1,200 samples are not fit for training: 1 error, 0 warnings"
    )
    assert text(report(finding(failed=1200)))[3].startswith(
        "FAIL  none of 1,200 samples is fit for training"
    )
    warned = report(finding(severity=Severity.WARNING))
    assert text(warned)[3] == "OK  all 1,200 samples are fit for training: 0 errors, 1 warning"
    whole = text(report(finding(failed=0, of=0)))[3]
    assert whole == (
        "FAIL  the dataset as a whole is not fit for training, its 1,200 samples are: 1 error, 0 "
        "warnings"
    )
    assert text(report(listed=1))[3] == "OK  the sample is fit for training: nothing found"
    alone = report(finding(failed=1, of=1), listed=1)
    assert text(alone)[3] == "FAIL  the sample is not fit for training: 1 error, 0 warnings"


def test_what_a_baseline_knows_was_found_though_it_is_not_new():
    lines = text(replace(report(valid=1163), suppressed=[finding(suppressed="known")]))
    assert lines[3] == "OK  37 of 1,200 samples are not fit for training: nothing new found"
    assert lines[-1] == "OK  nothing new found · exit 0"


def test_a_cause_that_the_message_names_already_is_not_said_twice():
    said = finding(
        message="3 samples are centred on the root.", cause=Cause("centred on the root", explains=3)
    )
    assert not any(line.startswith("  =") for line in text(report(said)))


def test_a_block_has_measured_and_expected_cause_keys_and_fix():
    cause = Cause("probably millimetres: x0.001", explains=36, alternatives=("inches",))
    lines = text(
        report(
            finding(
                cause=cause, fix="Declare unit: mm.", hides={"DC304": 37, "DC203": 2}, split="train"
            )
        )
    )
    start = next(i for i, line in enumerate(lines) if line.startswith("error"))
    assert lines[start : start + 6] == [
        "error DC201 length-unit · obj_verts · train"
        + "37 of 1,200 samples (3.1 %)".rjust(100 - 43),
        "  size 156 m (median of the 37), allowed 0.02..0.4 m.",
        "  = probably millimetres: x0.001 (explains 36 of 37); or inches",
        "    train.h5:/300  train.h5:/301  train.h5:/302  … 34 more",
        "  hides DC203 (2), DC304: not judged on these samples",
        "  fix   Declare unit: mm.",
    ]
    assert all(len(line) <= 100 for line in lines)


def test_the_end_says_what_was_checked_what_was_not_and_where_the_list_is():
    kinds = [
        Verdict.PASS,
        Verdict.PASS,
        Verdict.FAIL,
        Verdict.SKIP,
        Verdict.NOT_APPLICABLE,
        Verdict.OFF,
    ]
    verdicts = [
        RuleVerdict(f"DC{i}", "x", kind, Severity.ERROR, Level.SAMPLE)
        for i, kind in enumerate(kinds)
    ]
    splits = {"train": {"samples": 1000, "valid": 963}, "val": {"samples": 200, "valid": 200}}
    lines = text(
        report(
            finding(), verdicts=verdicts, unchecked=["14 files that no sample uses"], splits=splits
        )
    )
    assert (
        "checked   6 rules: 1 failed, 2 passed, 1 had nothing to look at, 1 does not apply, 1 off"
        in lines
    )
    assert "not seen  14 files that no sample uses" in lines
    assert "train 963 of 1,000 · val 200 of 200" in " ".join(lines)
    assert lines[-1] == "FAIL  1 error, 0 warnings · exit 1"


def commands(said):
    return [line[10:] for line in text(said) if re.match(r"(next| {4}) {6}datacheck ", line)]


def test_the_end_says_what_to_type_next_so_that_it_can_be_typed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    named = finding(examples=("a b/it's \u684c\u5b50.npy",), failed=1)
    elsewhere = [
        "datacheck explain DC201",
        "datacheck view 'a b/it'\"'\"'s \u684c\u5b50.npy' --run .datacheck/R",
    ]
    assert commands(report(named)) == elsewhere
    (tmp_path / ".datacheck/R").mkdir(parents=True)
    (tmp_path / ".datacheck/latest").symlink_to("R")
    assert commands(report(named)) == [
        elsewhere[0],
        elsewhere[1].removesuffix(" --run .datacheck/R"),
    ]
    assert [shlex.split(line)[2] for line in commands(report(named))] == [
        "DC201",
        "a b/it's \u684c\u5b50.npy",
    ]


@pytest.mark.parametrize(
    "said",
    [
        report(finding(examples=("red\x1b[31m.npy",))),
        report(finding(examples=("-rf.npy",))),
        report(finding(examples=())),
        replace(report(finding()), dataset=report().dataset | {"files": 0}),
        replace(report(finding()), folder="out\nnext      rm -rf x\x1b[31m"),
    ],
    ids=[
        "no key as it is printed",
        "an option",
        "the dataset as a whole",
        "of a loader",
        "no folder as it is printed",
    ],
)
def test_a_sample_that_no_command_shows_is_not_in_one(said):
    assert commands(said) == ["datacheck explain DC201"]


def test_a_code_of_a_shared_run_is_one_word_of_a_command():
    code = "DC221; touch x #"
    first, *_ = commands(report(finding(code=code)))
    assert shlex.split(first) == ["datacheck", "explain", code]
    assert not [line for line in commands(report(finding(code="--help"))) if "explain" in line]


def test_without_a_fault_there_is_nothing_to_do_next():
    assert commands(report()) == commands(report(finding(severity=Severity.INFO))) == []


def test_the_worst_finding_says_what_to_do_before_others_say_more_than_a_line():
    found = [finding(f"DC{i:03d}", failed=3, fix=f"Repair {i}.") for i in range(15)]
    lines = text(report(*found))
    assert "  fix   Repair 0." in lines
    assert lines.index("  fix   Repair 0.") < lines.index(
        next(line for line in lines if line.startswith("error DC001"))
    )
    assert sum(line.startswith("  size 156 m") for line in lines) > 5


def test_two_findings_of_one_rule_and_field_are_told_apart():
    lines = text(report(finding(kind="jerk"), finding(kind="end"), finding("DC202", kind="deg")))
    titles = [line.partition("  ")[0] for line in lines if line.startswith("error")]
    assert titles == [
        "error DC201 length-unit \u00b7 obj_verts \u00b7 jerk",
        "error DC201 length-unit \u00b7 obj_verts \u00b7 end",
        "error DC202 length-unit \u00b7 obj_verts",
    ]


def test_ties_that_the_cause_names_already_are_not_said_twice():
    said = Cause("probably mm; or cm", explains=37, alternatives=("cm", "inch"))
    assert "  = probably mm; or cm (explains 37 of 37); or inch" in text(
        report(finding(cause=said))
    )


def test_a_crash_is_one_line_and_exit_4():
    crash = {
        "rule": "DC201",
        "at": "x train",
        "traceback": "Traceback\n  File ...\nZeroDivisionError: no\n",
    }
    lines = text(report(crashes=[crash]))
    assert (
        "not seen  DC201 crashed on x train: ZeroDivisionError: no (traceback in result.json)"
        in lines
    )
    assert lines[-1] == "CRASH  0 errors, 0 warnings, 1 crash · exit 4"


@given(st.integers(0, 200), st.integers(40, 110), st.integers(0, 600), st.booleans())
def test_it_never_takes_more_than_60_lines_and_names_as_many_findings_as_fit(
    count, width, length, caused
):
    found = [
        finding(
            f"DC{i:03d}",
            failed=3,
            message="word " * length,
            fix="do " * length,
            cause=Cause("because " * 40) if caused else None,
            hides=dict.fromkeys(map(str, range(50)), 1),
        )
        for i in range(count)
    ]
    lines = text(report(*found, unchecked=["not seen " * 50] * 20), width)
    assert len(lines) <= LINES
    named = sum(line.startswith("error DC") for line in lines)
    assert named == count or f"… and {count - named} more findings in result.json" in lines
    assert named >= min(count, 15)


def test_the_worst_findings_get_the_room():
    found = [finding(f"DC{i:03d}", failed=3, fix="Repair.") for i in range(20)]
    lines = text(report(*found))
    assert len(lines) <= LINES
    assert sum(line.startswith("error DC") for line in lines) == 20
    first = lines.index(next(line for line in lines if line.startswith("error DC000")))
    assert lines[first + 1].startswith("  size 156 m")


@pytest.mark.parametrize("width", [40, 60, 100])
def test_no_line_is_wider_than_the_terminal_but_for_names(width):
    said = report(
        finding(message="word " * 60, fix="do " * 60, cause=Cause("because " * 30)), root="r" * 20
    )
    assert all(len(line) <= width for line in text(said, width) if "train.h5" not in line)


@pytest.mark.parametrize("width", [40, 80, 110])
def test_chinese_and_emoji_names_take_two_cells_a_character(width):
    names = tuple(f"场景_厨房🤖/帧_{i}.npy" for i in range(9))  # 22 cells, 16 characters
    long = "训练集/带餐桌的大厨房（二〇二四年重新采集，已去除重复帧）/" * 3
    said = report(
        finding(
            message=f"{long} is 3 m.",
            fix=long,
            cause=Cause(long),
            examples=names,
            fields=("点云" * 30,),
        ),
        root=long,
        splits={"训练集": {"samples": 9, "valid": 9}},
        unchecked=[long],
    )
    # Folded, it is no command
    lines = [line for line in text(said, width) if "datacheck view" not in line]
    assert max(map(cell_len, lines)) <= width
    assert not [line for line in lines if line.strip()[:1] in {*"，。、；：？！）》」"}]
    (first, *_) = [line for line in lines if line.startswith("    场景")]
    fits = (width - 4 + 2) // (22 + 2)  # names of 22 cells, two spaces between them
    assert first == "    " + "  ".join(names[:fits])


def test_a_chinese_name_fills_the_line_in_which_it_begins():
    lines = text(report(finding(message="No file " + "帧" * 40 + ".")), 80)
    assert "  No file " + "帧" * 35 in lines  # 2 + 8 + 70 cells
    assert "  帧帧帧帧帧." in lines


def test_a_line_that_is_cut_in_a_wide_character_has_one_space_before_the_ellipsis():
    for width in (80, 81):
        lines = text(report(unchecked=["帧" * 200]), width)
        assert [line for line in lines if line.endswith("帧 …")]


def test_the_data_have_no_say_in_the_markup_or_the_terminal():
    evil = "[bold red]x[/] \x1b[2J {x} %s"
    said = report(
        finding(
            message=evil, examples=(evil,), fields=(evil,), fix=evil, cause=Cause(evil), split=evil
        ),
        unchecked=[evil],
        root=evil,
        splits={evil: {"samples": 1, "valid": 1}},
    )
    out = io.StringIO()
    report_printer(said, Console(file=out, width=100, highlight=False))()
    shown = out.getvalue()
    assert "\x1b" not in shown
    assert r"[bold red]x[/] \x1b[2J {x} %s" in shown


def commands_in(output):
    """The lines that are commands to the runner of GitHub Actions (its TryParseV2 and TryParse), Azure or TeamCity."""
    lines = output.splitlines()
    return [
        line
        for line in lines
        if re.match(r"\s*::[a-z-]+(?: .*?)?::", line) or re.search(r"##\w*\[[a-z-]+.*?\]", line)
    ]


@pytest.mark.parametrize(
    "evil",
    [
        HOSTILE["command"],
        HOSTILE["old command"],
        "::add-mask::a",
        "##vso[task.setvariable variable=x]y",
        "##teamcity[buildStop comment='x']",
    ],
)
def test_no_name_is_a_command_of_ci_wherever_a_line_is_broken(monkeypatch, evil):
    def printed(word):
        said = report(
            finding(message=word, examples=(word,), fix=word), unchecked=[word], root=word
        )
        out = io.StringIO()
        report_printer(said, Console(file=out, width=100))()
        return out.getvalue()

    words = [evil, *("x" * length + evil for length in range(80, 100)), "x" * 90 + f" {evil}"]
    shown = [printed(word) for word in words]
    monkeypatch.setattr("datacheck.report.words.escape_ci_commands", lambda line: line)
    plain = [printed(word) for word in words]
    assert any(commands_in(output) for output in plain)
    assert [commands_in(output) for output in shown] == [[]] * len(words)
    for before, after in zip(plain, shown, strict=True):
        # Spelled it would be no command
        typed = re.sub(r" +datacheck view .*##\w*\[.*\n", "", before)
        assert after.replace(r"\x3a", ":").replace(r"\x23", "#") == typed


def test_an_output_without_unicode_gets_plain_characters():
    binary = io.BytesIO()
    file = io.TextIOWrapper(binary, encoding="ascii")
    report_printer(report(finding()), Console(file=file, width=100))()
    file.flush()
    assert "train.h5:/302  ... 34 more" in binary.getvalue().decode("ascii")


@pytest.mark.parametrize(
    ("key", "encoding", "typed"),
    [
        ("t\u00fcr.npy", "ascii", False),
        ("t\u00fcr.npy", "latin-1", True),
        ("3\u00d74.npy", "latin-1", False),
        ("\u684c\u5b50.npy", "latin-1", False),
        ("\u684c\u5b50.npy", "gbk", True),
        ("a b.npy", "ascii", True),
    ],
)
def test_a_command_that_an_output_cannot_show_as_it_is_typed_is_not_there(key, encoding, typed):
    binary = io.BytesIO()
    file = io.TextIOWrapper(binary, encoding=encoding)
    report_printer(report(finding(examples=(key,), failed=1)), Console(file=file, width=100))()
    file.flush()
    said = binary.getvalue().decode(encoding)
    assert "next      datacheck explain DC201" in said
    assert (
        re.findall("datacheck view .*", said)
        == [f"datacheck view {shlex.quote(key)} --run .datacheck/R"] * typed
    )


def test_colours_on_a_terminal_and_none_where_they_are_not_wanted(monkeypatch):
    for name in ("CI", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    out = io.StringIO()
    report_printer(
        report(finding()),
        Console(file=out, force_terminal=True, color_system="standard", width=100),
    )()
    assert "\x1b[1;31merror\x1b[0m" in out.getvalue()


def test_json_is_what_lies_in_the_folder(tmp_path):
    (tmp_path / "result.json").write_bytes(b'{"a": 1}\n')
    assert json.loads(result_bytes(str(tmp_path))) == {"a": 1}


@pytest.mark.parametrize("name", HOSTILE)
def test_json_that_is_printed_says_the_same_and_acts_on_nothing(name):
    text = HOSTILE[name].encode("utf-8", "backslashreplace").decode()
    for data in (
        orjson.dumps({text: [text]}),
        json.dumps({text: [text]}, indent="\t").replace("\n", "\r\n").encode(),
    ):
        printed = escaped_json(data)
        assert json.loads(printed) == {text: [text]}
        assert not leaks(printed.decode())
    plain = {"a": "caf\u00e9 \u684c"}
    assert escaped_json(orjson.dumps(plain)) == orjson.dumps(plain)


def test_codes_are_spelled_out_whoever_wrote_them():
    """A run is checked when it is read; a plug-in calls its rules as it likes."""
    lines = text(report(finding(code="DC201\x1b[31m", hides={"DC1\x9b": 1, "DC2\x1b": 2})))
    assert not leaks("".join(lines))
    assert any("DC201\\x1b[31m" in line for line in lines)


def test_a_paragraph_is_cut_before_it_is_made_into_lines(monkeypatch):
    """To cut one line from a text takes time in proportion to the text: of a million lines each was cut."""
    cut = []
    monkeypatch.setattr(
        "datacheck.report.text.spans", lambda plain, room: cut.append(len(plain)) or [(0, room)]
    )
    _wrapped(Text("a " * 1_000_000), 80, 10, 5)
    assert cut == [70 * 6]
