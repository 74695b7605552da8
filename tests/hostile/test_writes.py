"""No command changes, adds or removes anything outside of the folder that it was given."""

from __future__ import annotations

import pytest

from tests.hostile.ground import tree
from tests.hostile.test_reads import run_all
from tests.hostile.writes import CANARIES, HEX


@pytest.mark.parametrize("name", sorted(CANARIES))
def test_no_command_writes_through_what_leads_out(name, ground):
    asked = CANARIES[name](ground)
    before = tree(ground.outside)
    wrong = run_all(ground, asked)
    after = tree(ground.outside)
    assert sorted(before.keys() ^ after.keys()) == []
    assert [path for path in before if before[path] != after[path]] == []
    assert (wrong["ended"], wrong["done"], wrong.get("said")) == ([], len(asked), None)


def test_a_file_in_an_unfinished_build_that_no_builder_wrote_is_kept(ground):
    (cache,) = (path.parent for path in (ground.place / "caches").rglob("manifest.json"))
    kept = [
        place / ".building" / f"{cache.name}.{HEX}" / "thesis.txt"
        for place in (ground.place / "caches", cache.parent)
    ]
    for path in kept:
        path.parent.mkdir(parents=True)
        path.write_text("keep")
    run_all(ground, [["cache", "gc", "caches", "--keep", "0", "--unlocked", "--delete"]])
    assert [path.read_text() for path in kept if path.exists()] == ["keep", "keep"]
