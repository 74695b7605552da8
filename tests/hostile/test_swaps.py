"""A file that becomes a link while it is read leads nowhere; the long race is `scripts/bench/faults/swaps.py`."""

from tests.hostile.ground import Ground
from tests.hostile.swapping import COMMANDS, control, race


def test_no_file_outside_is_opened_while_files_become_links(tmp_path):
    found = race(Ground(tmp_path), swaps=500, runs=len(COMMANDS))
    assert (sorted(found.opened), sorted(found.shown), found.odd) == ([], [], [])
    assert found.swaps >= 500


def test_who_reads_the_names_plainly_opens_files_outside(tmp_path):
    assert control(Ground(tmp_path), swaps=500).opened
