"""What a scan says of the findings of the scan before it, on data of which every fault is planted."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from datacheck.report.text import report_lines
from datacheck.scan import Request, run_scan
from datacheck.scan.rescore import Rescore, baseline_of
from datacheck.scan.run_documents import RESULT
from datacheck.schema.load import parse_schema

PLAIN = (
    'datacheck: 1\nname: plain\nsamples: {files: "*.npy"}\nfields: {x: {role: value, shape: '
    "[8], range: 0..1}}\n"
)


def wrote(folder, *, outside=(), nan=()):
    folder.mkdir(exist_ok=True)
    for n in range(12):
        values = np.random.default_rng(n).uniform(size=8)
        values[0] = 7 if n in outside else np.nan if n in nan else values[0]
        np.save(folder / f"{n:02d}.npy", values)


def scanned(data="data", text=PLAIN, **options):
    report = run_scan(parse_schema(text), Request(Path(data), **options)).report
    kept = json.loads(Path(report.folder, RESULT).read_bytes())["run"].get("since")
    assert kept == report.run.get("since")
    return report


def line(report):
    said = "\n".join(one.plain for one in report_lines(report, 100))
    return " ".join(said.partition("\nsince ")[2].partition("\nvalid ")[0].split())


def test_the_first_scan_says_nothing_and_the_second_what_is_new_and_what_is_gone(in_tmp):
    wrote(in_tmp / "data", outside=[3])
    first = scanned()
    assert "since" not in first.run
    assert line(first) == ""
    again = scanned()
    assert again.run["since"] == {
        "run": first.run["id"],
        "started": first.run["started"],
        "new": {"count": 0, "ids": []},
        "gone": {"count": 0, "ids": []},
        "other": [],
    }
    when = first.run["started"].replace("T", " ").replace("Z", " UTC")
    assert line(again) == f"the scan of {when}: nothing new"
    wrote(in_tmp / "data", nan=[5])
    other = scanned()
    assert {f.code for f in first.findings} == {"DC224"}
    assert [f.code for f in other.findings if f.id in other.run["since"]["new"]["ids"]] == ["DC221"]
    assert other.run["since"]["gone"] == {"count": 1, "ids": [first.findings[0].id]}
    assert line(other).endswith(": 1 new finding, 1 no longer found")


def test_a_finding_of_more_samples_is_not_new(in_tmp):
    wrote(in_tmp / "data", outside=[3])
    scanned()
    wrote(in_tmp / "data", outside=[3, 4])
    assert scanned().run["since"]["new"]["count"] == 0


def test_what_besides_the_data_is_another_is_said_and_what_is_not_judged_is_not_gone(in_tmp):
    wrote(in_tmp / "data", outside=[3])
    scanned()
    since = scanned(text=PLAIN + "rules: {DC224: off}\n").run["since"]
    assert (since["gone"]["count"], since["other"]) == (0, ["schema"])
    report = scanned(text=PLAIN.replace("0..1", "0..9"), level="structure")
    assert report.run["since"]["other"] == ["schema", "depth"]
    assert "(with another schema and another depth)" in line(report)


def test_a_run_of_other_data_in_the_same_folder_is_not_the_scan_before(in_tmp):
    wrote(in_tmp / "data", outside=[3])
    wrote(in_tmp / "more", nan=[3])
    scanned(output=Path("run"))
    assert "since" not in scanned("more", output=Path("run")).run
    assert scanned("more", output=Path("run")).run["since"]["new"]["count"] == 0
    one = in_tmp / "data" / "03.npy"
    shutil.copy(one, in_tmp / "more" / "03.npy")
    said = scanned("more", output=Path("run")).run["since"]
    assert (said["new"]["count"], said["gone"]["count"]) == (1, 1)


def test_data_by_another_path_are_the_same_data(in_tmp):
    wrote(in_tmp / "data", outside=[3])
    first = scanned()
    (in_tmp / "link").symlink_to("data")
    for path in ("link", in_tmp / "data", "data/../data", "link"):
        since = scanned(path).run["since"]
        assert (since["new"]["count"], since["gone"]["count"]) == (0, 0)
    assert since["started"] >= first.run["started"]


@pytest.mark.parametrize(
    "change",
    [
        lambda said: said | {"left_out": {"findings": 2}},
        lambda said: said | {"findings": [{"id": "x"}]},
        lambda said: {"run": {"started": "then"}},
        lambda said: said | {"findings": None},
    ],
)
def test_beside_a_run_that_lacks_findings_nothing_is_said(in_tmp, change):
    wrote(in_tmp / "data", outside=[3])
    file = Path(scanned().folder, RESULT)
    file.write_text(json.dumps(change(json.loads(file.read_bytes()))))
    assert "since" not in scanned().run


def test_what_a_baseline_knows_is_neither_new_nor_gone(in_tmp):
    wrote(in_tmp / "data", outside=[3])
    scanned()
    Path("baseline.json").write_bytes(baseline_of(Rescore(Path(".datacheck/latest")), "why")[0])
    since = scanned(baseline=Path("baseline.json")).run["since"]
    assert (since["new"]["count"], since["gone"]["count"]) == (0, 0)
    since = scanned().run["since"]
    assert (since["new"]["count"], since["gone"]["count"]) == (0, 0)


@pytest.mark.parametrize("sign", ["f", "\u540d"])
def test_names_of_many_findings_are_cut_and_counted(in_tmp, sign):
    names = [f"{sign * 80}{n}" for n in range(300)]
    (in_tmp / "data").mkdir()
    fields = "".join(f"  {name}: {{role: value, shape: [4], range: 0..1}}\n" for name in names)
    text = f'datacheck: 1\nname: many\nsamples: {{files: "*.npz"}}\nfields:\n{fields}'
    for n in range(3):
        np.savez(
            in_tmp / "data" / f"{n}.npz",
            **{name: np.random.default_rng(n).uniform(size=4) for name in names},
        )
    scanned(text=text)
    for n in range(3):
        values = {name: np.random.default_rng(n).uniform(size=4) + 7 for name in names}
        np.savez(in_tmp / "data" / f"{n}.npz", **values)
    report = scanned(text=text)
    found = [f for f in report.findings if f.code == "DC224"]
    assert len(found) >= 100
    new = report.run["since"]["new"]
    assert new["count"] >= len(found) > len(new["ids"]) > 50
    assert len(json.dumps(new, ensure_ascii=False).encode()) < 25_000
