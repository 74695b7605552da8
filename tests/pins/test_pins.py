"""Public names, commands, options and rules are as they were; `python -m tests.pins.pins` writes them anew."""

from tests.pins.pins import PUBLIC, public


def test_what_users_name_is_as_it_was():
    """A line more is a promise more; a line less breaks somebody."""
    assert public() == PUBLIC.read_text().splitlines()
