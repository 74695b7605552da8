"""Messages of errors, which Python prints as they are: names in them may come from data."""

import pytest

from datacheck import errors


@pytest.mark.parametrize("kind", [errors.UsageError, errors.BatchError, errors.FormatError])
def test_a_message_gives_no_command_to_a_terminal_or_a_log(kind):
    said = str(
        kind("a\x1b]0;t\x07 \u202ecba\n  ::error::owned\nand\ttab, é, a::b ##[error]x ##vso[y]")
    )
    assert (
        said
        == "a\\x1b]0;t\\x07 \\u202ecba\n  \\x3a:error::owned\nand\ttab, é, a::b \\x23#[error]x "
        "\\x23#vso[y]"
    )


def test_the_message_itself_stays_for_whoever_makes_the_error_again():
    assert errors.UsageError("a\x1b").args == ("a\x1b",)
