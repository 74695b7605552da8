"""Documents about a dataset: what is parsed in the process that coordinates is small, and no folder."""

import pytest

from datacheck.errors import FormatError
from datacheck.sources import loader_tables
from datacheck.sources.lerobot import read_rate
from datacheck.sources.loader_tables import read_document
from datacheck.sources.roots import Roots


@pytest.mark.parametrize("name", ["all.json", "meta/info.json"])
def test_a_folder_in_place_of_a_document_is_opened_by_no_parser(tmp_path, name):
    """The folder would be a Zarr store, parsed in the process that coordinates: without limits, outside the sandbox."""
    folder = tmp_path / name
    (folder / "rows").mkdir(parents=True)
    (folder / ".zgroup").write_text('{"zarr_format": 2}')
    for read in (
        lambda: read_document(tmp_path, {}, name, 1 << 20),
        lambda: read_rate(Roots(tmp_path, {}).file("")),
    ):
        with pytest.raises(FormatError, match=r"directory|No such file"):
            read()


@pytest.mark.parametrize(("name", "text"), [("a.yaml", "x: [{}]"), ("a.json", '{{"x": [{}]}}')])
def test_a_document_of_too_many_values_is_refused_where_it_is_parsed(
    tmp_path, monkeypatch, name, text
):
    monkeypatch.setattr(loader_tables, "_VALUES", 100)
    monkeypatch.setattr(loader_tables, "_HERE_BYTES", 0)
    for count, answers in ((99, "values"), (100, "fault")):  # besides the list itself
        (tmp_path / name).write_text(text.format(", ".join(["[]"] * count)))
        said = loader_tables.read_values(
            {"root": str(tmp_path), "roots": {}, "items": [name]}, lambda _: None
        )
        assert answers in said


def test_a_document_that_grows_is_read_to_the_size_that_was_checked(tmp_path, monkeypatch):
    file = tmp_path / "all.json"
    file.write_text('{"a": 1}')
    checked = loader_tables.check_bytes

    def grown(size, what, limit):
        checked(size, what, limit)
        with file.open("a") as more:
            more.write(", and this is no JSON")

    monkeypatch.setattr(loader_tables, "check_bytes", grown)
    assert read_document(tmp_path, {}, "all.json", 1 << 20) == {"a": 1}
