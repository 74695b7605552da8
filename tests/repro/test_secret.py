"""What may be a secret is found in texts of any length, and what was found before still is."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import numpy as np
import pytest

from datacheck.repro.process import credential, masked, names_secret, secret

LIMIT_S = 800
MANY = 1_000_000  # characters; where each of them is begun at anew, 10**12 are read

LONG = """
import sys
from datacheck.repro.process import masked
many = int(sys.argv[1])
words = [
    ",".join(map(str, range(many // 6))), "a" * many, "a" * many + "=1", "1-" * (many // 2), "a " * (many // 2),
    "a" + " " * many, "http://host:80/x," * (many // 17), "http://a" * (many // 8), "_aT" * (many // 3),
]
print([said == word for said, word in zip(masked(words), words)])
"""


def test_long_words_of_a_command_line_are_read_once(repository):
    env = os.environ | {"PYTHONPATH": str(repository)}
    done = subprocess.run(
        [sys.executable, "-c", LONG, str(MANY)],
        env=env,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=True,
    )
    assert done.stdout.strip() == str([True] * 9)


# As they were, each beginning anew at every character: what they find is to be found.
_CREDENTIAL = re.compile(
    r"://[^/\s@]*@|://[^/\s@:]*:[^\s@]*@"
    r"|\b(hf_|sk-|gh[pousr]_|github_pat_|glpat-|xox[abprs]-|AKIA|ASIA|eyJ[A-Za-z0-9_-]{8,}\.|-----BEGIN )"
    r"|[?&](sig|signature|token|key|password|x-amz-\w+)=",
    re.IGNORECASE,
)
_LONG = re.compile(r"(?=[^/\s]*[a-z])(?=[^/\s]*[A-Z])(?=[^/\s]*[0-9])[A-Za-z0-9+=_-]{32,}")
_PAIR = re.compile(r"([A-Za-z_][\w.-]*)[\"']?\s*[:=](?!//)")

PIECES = [
    "a",
    "Z",
    "7",
    "é",
    "_",
    "-",
    ".",
    "/",
    "//",
    "://",
    ":",
    "=",
    "@",
    " ",
    "\n",
    '"',
    "'",
    ",",
    "{",
    "?",
    "&",
    "+",
    "token",
    "password",
    "api_key",
    "pass",
    "user",
    "http",
    "key",
    "lr",
    "x" * 20,
    "Xy7-" * 6,
    "0" * 32,
    "B" * 16,
]


@pytest.mark.parametrize("seed", range(5))
def test_what_was_hidden_stays_hidden_and_nothing_else_is(seed):
    rng = np.random.Generator(np.random.Philox(seed))
    hidden = 0
    for _ in range(4000):
        text = "".join(rng.choice(PIECES, int(rng.integers(1, 12))))
        before = bool(_CREDENTIAL.search(text)) or any(map(names_secret, _PAIR.findall(text)))
        assert credential(text) == before, text
        assert secret("", text) == (before or bool(_LONG.search(text))), text
        hidden += before
    assert hidden > 100


@pytest.mark.parametrize(
    "word",
    [
        "1token=x",
        "-9.password:x",
        "étoken=x",
        '{"a-b.token" : 1}',
        "n" * 100 + "_password=x",
        "x://u@h",
        "x://u:p/q@h",
        "a@b://u:p@h",
        "Ab0" + "-" * 32,
        "-" * 32 + ",aB0",
    ],
)
def test_what_a_shorter_pattern_would_miss(word):
    assert secret("", word)
    assert word not in masked(["x", word])


@pytest.mark.parametrize("word", ["x://u /@h", "x://host/a@b", "-" * 32 + "/aB0", "x://u @h"])
def test_what_is_none(word):
    assert not secret("", word)
