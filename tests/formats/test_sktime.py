"""Time series of sktime: by hand, one faulty case among good ones, and a scan of both splits."""

from __future__ import annotations

import numpy as np
import pytest

from datacheck.errors import FormatError
from datacheck.formats.base import format_of, open_container
from datacheck.formats.foreign import unsupported_format
from datacheck.scan import scan
from tests.formats.reading import CORPUS, read_all


def test_values_by_hand():
    values = read_all(CORPUS / "sktime/y_two_channels_TRAIN.ts")
    assert sorted(values) == ["case_0/label", "case_0/series", "case_1/label", "case_1/series"]
    assert values["case_0/series"].tolist() == [[1, 4.5], [2, 5], [3, -60]]
    assert np.array_equal(values["case_1/series"], [[7, 8], [np.nan, np.nan]], equal_nan=True)
    assert [values["case_0/label"], values["case_1/label"]] == ["1", "up"]
    target = read_all(CORPUS / "sktime/y_target_TEST.ts")
    assert target["case_0/series"].tolist() == [[1], [2], [3]]
    assert target["case_0/target"] == 0.25
    assert np.isnan(target["case_1/target"])
    plain = read_all(CORPUS / "sktime/y_no_label_TEST.ts")
    assert {name: value.tolist() for name, value in plain.items()} == {
        "case_0/series": [[1, 3], [2, 4]]
    }


def test_a_faulty_case_leaves_the_others_readable():
    with open_container(CORPUS / "sktime/n_label_TRAIN.ts") as container:
        assert container.groups("/case_*") == ["case_0", "case_1"]
        assert container.read("case_0/series").tolist() == [[1], [2]]
        with pytest.raises(FormatError, match="line 5: the label"):
            container.read("case_1/series")


def test_only_names_of_the_archive_are_series():
    assert format_of("a/Vowels_TRAIN.ts") is format_of("vowels_test.ts") is not None
    for name in ("app.ts", "clip.ts", "train.ts"):
        assert format_of(name) is None
        assert "NAME_TRAIN.ts" in unsupported_format(name).way


def written(folder, name, cases):
    folder.mkdir(exist_ok=True)
    head = "@problemName a\n@missing false\n@classLabel true 0 1\n@data\n"
    lines = (
        ":".join(",".join(map(repr, channel)) for channel in case.T.tolist()) + f":{n % 2}\n"
        for n, case in enumerate(cases)
    )
    (folder / f"{name}.ts").write_text(head + "".join(lines))


def findings(tmp_path, name, train, test):
    written(tmp_path / name, "A_TRAIN", train)
    written(tmp_path / name, "A_TEST", test)
    run = scan(tmp_path / name, output=tmp_path / f"{name}-out")
    return [(f.code, [run.table.keys[row] for row in f.rows]) for f in run.report.findings]


def test_a_scan_without_a_schema_judges_each_case(tmp_path):
    rng = np.random.default_rng(0)
    cases = [rng.normal(size=(10 + n % 7, 3)).cumsum(axis=0) for n in range(40)]
    train, test = cases[:20], cases[20:]
    assert findings(tmp_path, "good", train, test) == []
    leaked = [*test[:10], train[4], *test[11:]]
    assert findings(tmp_path, "leaked", train, leaked) == [("DC801", ["A_TEST.ts:/case_10"])]
    test[13][5, 1] = np.nan
    assert findings(tmp_path, "holes", train, test) == [("DC221", ["A_TEST.ts:/case_13"])]
