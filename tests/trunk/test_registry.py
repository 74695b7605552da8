"""Import by name: built-ins, plug-ins, optional libraries."""

import importlib.metadata

import pytest

from datacheck import plugins
from datacheck.errors import MissingDependencyError, UsageError
from datacheck.formats.base import Format
from datacheck.plugins import discover, require, resolve


def entry(monkeypatch, value):
    point = importlib.metadata.EntryPoint("mine", value, "datacheck.formats")
    monkeypatch.setattr(plugins, "known_plugins", lambda _: importlib.metadata.EntryPoints([point]))


def test_plug_ins_stand_behind_the_built_ins(monkeypatch):
    entry(monkeypatch, "datacheck.formats.npy:NPY")
    names = [f.name for f in discover("datacheck.formats", Format)]
    assert names[-1] == "npy"
    assert len(names) == len({*names}) + 1


def test_a_plug_in_that_cannot_be_loaded_is_named(monkeypatch):
    entry(monkeypatch, "no_such_module:FORMAT")
    with pytest.raises(
        UsageError, match=r"the plug-in mine \(no_such_module:FORMAT\) for datacheck.formats"
    ):
        discover("datacheck.formats", Format)


def test_names_and_extras_that_are_not_there_are_told_in_one_line():
    with pytest.raises(UsageError, match="module:function"):
        resolve("json:no_such_function")
    with pytest.raises(
        MissingDependencyError,
        match=r"no_such_module is not installed: pip install 'datacheck\[las\]'",
    ):
        require("no_such_module", "las")


def test_a_folder_of_that_name_is_no_library(tmp_path, monkeypatch):
    """A script beside the folder `wandb` of earlier runs imports the folder where the library is missing."""
    (tmp_path / "left_by_runs").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(MissingDependencyError, match="left_by_runs is not installed"):
        require("left_by_runs", "wandb")
