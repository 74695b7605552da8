"""``datacheck explain``, ``rules`` and ``schema check``."""

import json
from dataclasses import replace

import pytest
from rich.cells import cell_len

from datacheck.report.rule_pages import english
from datacheck.rules import catalogue


@pytest.mark.parametrize("name", ["DC201", "dc201", "length-unit"])
def test_a_rule_is_explained_by_code_or_name(here, name):
    code, out, err = here("explain", name)
    assert (code, err) == (0, "")
    assert out.startswith("DC201 length-unit   error; per sample")
    assert "rescue: share of the offenders" in out


def test_an_unknown_rule_is_named_with_what_was_meant(here):
    code, out, err = here("explain", "lenght-unit")
    assert (code, out) == (2, "")
    assert "Did you mean 'length-unit'" in err


def test_the_table_lists_every_rule_and_can_be_narrowed(here):
    code, out, _ = here("rules")
    assert code == 0
    assert [line[:5] for line in out.splitlines() if line.startswith("DC")] == sorted(catalogue())
    assert max(map(len, out.splitlines())) <= 110
    units = [
        line[:5]
        for line in here("rules", "--family", "units")[1].splitlines()
        if line.startswith("DC")
    ]
    assert units == [c for c, r in catalogue().items() if r.judge.__module__.endswith(".units")]
    assert {
        line[:4] for line in here("rules", "--family", "DC60")[1].splitlines() if line[:2] == "DC"
    } == {"DC60"}
    joints = here("rules", "--role", "joints")[1]
    assert "DC602" in joints
    assert "DC702" not in joints


def test_a_schema_says_what_it_makes_of_each_rule(here):
    rows = {
        row["code"]: row
        for row in json.loads(here("rules", "--schema", "ho3d", "--format", "json")[1])
    }
    assert rows["DC601"]["runs"] == "runs on handJoints3D"
    assert rows["DC702"]["runs"].startswith("not applicable: ")
    assert rows["DC101"]["runs"] == "runs on whole samples"


def test_json_holds_nothing_that_a_terminal_or_a_runner_acts_on(here, place):
    name = r'"x\u009b31m\u202e ##vso[task.complete]"'
    (place / "s.yaml").write_text(
        "datacheck: 1\nname: s\nsamples: {files: '*.npy'}\n"
        f"fields: {{{name}: {{role: value, shape: [3]}}, y: {{role: value}}}}\n"
        f"rules: {{DC221: {{severity: off, reason: {name}}}}}\n"
    )
    out = here("rules", "--schema", "s.yaml", "--format", "json")[1]
    assert json.loads(name) in str(json.loads(out)).encode().decode("unicode_escape")
    assert out.replace("\n", "").isprintable()
    assert "##vso[" not in out


def test_fields_with_chinese_names_stay_within_the_terminal(here, place, monkeypatch):
    monkeypatch.setenv("COLUMNS", "70")
    fields = "".join(f"  左手食指关节{n}: {{role: value, shape: [4]}}\n" for n in range(20))
    (place / "zh.yaml").write_text(
        f'datacheck: 1\nname: zh\nsamples: {{files: "*.npz"}}\nfields:\n{fields}'
    )
    code, out, _ = here("rules", "--schema", "zh.yaml", "--family", "numbers")
    assert code == 0
    assert "左手食指关节19" in out
    assert max(map(cell_len, out.splitlines())) <= 70


@pytest.mark.parametrize(
    "args", [["--family", "unitz"], ["--role", "pionts"], ["--schema", "ho3e"]]
)
def test_a_wrong_filter_is_refused_with_what_was_meant(here, args):
    code, out, err = here("rules", *args)
    assert (code, out) == (2, "")
    assert "Did you mean" in err


def test_a_schema_file_is_checked_with_every_fault_at_its_line(here, place):
    assert here("schema", "check", place / "plain.yaml")[0] == 0
    (place / "bad.yaml").write_text(
        "datacheck: 1\nname: x\nsamples: {files: '*'}\nfields: {a: {role: points}}\n"
        "rules:\n  DC999: off\n  DC201: {resque: 0.5}\n  DC221: {allow: 2}\n".replace(
            "  DC221: {allow: 2}\n", ""
        )
    )
    code, out, err = here("schema", "check", place / "bad.yaml")
    assert (code, out) == (2, "")
    assert "bad.yaml:6, rules.DC999: there is no rule" in err
    assert (
        "bad.yaml:7, rules.DC201.resque: length-unit has no option 'resque'. Did you mean 'rescue'"
        in err
    )


def test_a_page_can_be_had_in_chinese_and_each_page_says_how_to_get_the_other(here):
    code, out, err = here("explain", "length-unit", "--lang", "zh")
    assert (code, err) == (0, "")
    assert out.startswith("DC201 length-unit   错误；按样本判断")
    assert "长度不是声明的单位。" in out
    assert "size: 1500" in out  # the examples are the English ones
    assert out.endswith("\n\nEnglish: datacheck explain DC201\n")
    assert here("explain", "DC201")[1].endswith("\n\n中文: datacheck explain DC201 --lang zh\n")
    assert here("explain", "DC201", "--lang", "en")[1] == here("explain", "DC201")[1]


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_a_page_ends_with_what_can_be_typed_as_it_stands(here, place, lang):
    out = here("explain", "DC221", "--lang", lang)[1]
    typed = [line.partition("#")[0].strip() for line in out.splitlines() if "  # " in line]
    assert typed == [
        "rules: {DC221: {allow: 0.5%}}",
        "rules: {DC221: {ignore: [KEY], reason: TEXT}}",
        "datacheck rules --family DC22",
    ]
    for line in typed[:2]:
        (place / "own.yaml").write_text(f"datacheck: 1\nname: own\nextends: plain.yaml\n{line}\n")
        assert here("schema", "check", "own.yaml")[0] == 0
    assert here(*typed[2].split()[1:])[0] == 0


def test_a_rule_has_the_command_of_its_repair_where_there_is_one(here):
    shown = {
        code
        for code in catalogue()
        if f"datacheck fix {code} DATA --to DIR" in here("explain", code)[1]
    }
    assert shown == {"DC105", "DC201", "DC202", "DC228", "DC701"}


def test_no_page_is_wider_than_the_terminal(here, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    for lang in ("en", "zh"):
        assert (
            max(cell_len(line) for line in here("explain", "DC201", "--lang", lang)[1].splitlines())
            <= 80
        )


def test_an_unknown_language_is_refused_with_those_that_there_are(here):
    code, out, err = here("explain", "DC201", "--lang", "fr")
    assert (code, out) == (2, "")
    assert "'fr' is not one of 'en', 'zh'" in err


@pytest.mark.parametrize("encoding", ["ascii", "cp1252"])
def test_an_output_without_chinese_characters_gets_the_english_page(command, encoding):
    env = {"PYTHONIOENCODING": encoding}
    code, out, err = command("explain", "DC201", "--lang", "zh", env=env)
    assert code == 0
    assert "Lengths are not in the declared unit." in out
    assert err == (
        f"standard output is {encoding}, which has no Chinese characters (PYTHONIOENCODING=utf-8 "
        f"has them); "
        "this is the English one.\n"
    )
    assert command("explain", "DC201", env=env) == (0, out, "")
    assert "--lang zh" not in out


def test_an_output_in_gbk_gets_the_chinese_page(start):
    process = start(
        "explain", "DC201", "--lang", "zh", env={"PYTHONIOENCODING": "gbk"}, encoding="gbk"
    )
    assert "长度不是声明的单位。" in process.communicate()[0]


def test_a_rule_of_a_plug_in_has_its_own_page_alone(here, monkeypatch):
    own = replace(catalogue()["DC201"], code="X201", name="own-rule")
    monkeypatch.setattr("datacheck.rules.catalogue", lambda: {"X201": own})
    code, out, err = here("explain", "X201", "--lang", "zh")
    assert (code, err) == (
        0,
        "X201 is a rule of a plug-in and has no Chinese page; this is the English one.\n",
    )
    assert out == here("explain", "X201")[1]
    assert "Lengths are not in the declared unit." in out
    assert "中文" not in out


@pytest.mark.parametrize(
    ("rule", "first", "chinese"),
    [
        (
            "DC201",
            "roles joints, points, pose, position; not",
            "role 为 joints、points、pose、position 的字段；",
        ),
        (
            "DC311",
            "warning; per sample; role normal; not",
            "警告；按样本判断；针对 role 为 normal 的字段；",
        ),
        (
            "DC221",
            "any role but answers, captions, chat, text; not",
            "针对 role 不是 answers、captions、chat、text 的字段；",
        ),
        ("DC122", "error; per sample; any role\n", "针对任意 role 的字段\n"),
        ("DC125", "error; per sample; any role;", "针对任意 role 的字段；"),  # of what has columns
    ],
)
def test_the_first_line_names_the_roles_that_a_rule_looks_at(here, rule, first, chinese):
    pages = {lang: here("explain", rule, "--lang", lang)[1] for lang in ("en", "zh")}
    heads = {lang: page.partition("\n\n")[0] for lang, page in pages.items()}
    assert first.strip() in " ".join(heads["en"].split())
    assert chinese.strip() in heads["zh"].replace("\n", "")
    assert (rule in here("rules", "--role", "normal")[1]) == (rule in {"DC311", "DC221", "DC122"})


def test_of_a_rule_on_whole_samples_or_one_that_cannot_say_it_no_role_is_named(here):
    head = here("explain", "DC801")[1].splitlines()[0]
    assert head.endswith("error; per dataset; not judged on samples that fail DC109, DC602")

    def fails(spec):
        raise AttributeError(spec)

    rule = catalogue()["DC201"]
    assert english(replace(rule, applies=fails)).identity.startswith(
        "error; per sample; not judged"
    )
    one = replace(rule, applies=lambda spec: spec.role == "pose")
    assert english(one).identity.startswith("error; per sample; role pose; ")
