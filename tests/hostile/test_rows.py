"""Each command has a row in the tables of attacks, or a reason why it needs none."""

from tests.hostile.commands import NO_ROW, TABLES, commands


def test_every_command_has_a_row_or_a_reason():
    rows = {command for table in TABLES for command in table}
    assert sorted(rows | set(NO_ROW)) == commands()
    assert rows & set(NO_ROW) == set()
    assert all(len(reason.split()) > 4 for reason in NO_ROW.values())


def test_a_row_calls_the_command_whose_row_it_is():
    for table in TABLES:
        for command, asked in table.items():
            assert asked
            for words in asked:
                assert " ".join(words).startswith(f"{command} "), words
