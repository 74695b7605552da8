"""What may be a secret: in names of variables, options and settings, and in what stands behind them."""

from __future__ import annotations

import re

HIDDEN = "***"
_ALWAYS = re.compile(
    r"secret|pass_?(wor[dt]|wd|phrase|code)|credential|(^|_)(pwd|auth|authorization)(_|$)"
    r"|^_?((user|db|my|root|admin|http|ssh|smtp|mail|redis|pg)_?)?pass_?$"
)
_SETTING = re.compile(  # pad_token, max_tokens, tokens_per_batch and their like
    r"(?<![a-z])(pad|eos|bos|unk|sep|cls|mask|max|min|num|number|n|new|special|extra|image|video|text|action|class"
    r"|register|start|end|total)_tokens?(?![a-z])"
    r"|(?<![a-z])tokens?_(per|ids?|types?|len|length|counts?|size|dim|embeddings?|dropout|budget|limit|level|index|idx"
    r"|merging|mixing|pruning)(?![a-z])"
)
_TOKEN = re.compile(r"(^|_)[a-z]*tokens?[0-9]*(_|$)")
_KEY = re.compile(r"(^|_)(api|access|private|secret|wandb|license|account|signing|encryption|ssh)_?keys?[0-9]*(_|$)")
_ANY_KEY = re.compile(r"(^|_)[a-z]*keys?[0-9]*(_(?!per)|$)")
_CREDENTIAL = re.compile(
    r"\b(hf_|sk-|gh[pousr]_|github_pat_|glpat-|xox[abprs]-|AKIA|ASIA|eyJ[A-Za-z0-9_-]{8,}\.|-----BEGIN )"
    r"|[?&](sig|signature|token|key|password|x-amz-\w+)=",
    re.IGNORECASE,
)
# These are applied to texts of any length (a list of numbers on a command line): none begins anew within a word.
_USER = re.compile(r"://(?:[^/]*\Z|[^/:]*:)")  # of a URL up to an @, for a password may hold what it should not
_LONG = re.compile(r"[A-Za-z0-9+=_-]{32,}")
_MIXED = [re.compile(kind) for kind in ("[a-z]", "[A-Z]", "[0-9]")]
_PAIR = re.compile(  # within JSON, YAML, Hydra's braces
    r"(?<![\w.-])(?:(?![A-Za-z_])[\w.-])*+([A-Za-z_][\w.-]*+)[\"']?\s*+[:=](?!//)"
)
_ASSIGNED = re.compile(r"[+~]*[A-Za-z_][\w.@/-]*=")


def names_secret(name: str) -> bool:
    """Tell whether what is called so may be a secret: ``hub_token`` and ``apiKey``, not ``pad_token``."""
    said = _spelled(name)
    return bool(_ALWAYS.search(said) or _KEY.search(said) or _TOKEN.search(_SETTING.sub("", said)))


def names_password(name: str) -> bool:
    """Tell whether what is called so may be a secret though it is a number: not ``text_token``, a count."""
    said = _spelled(name)
    return bool(_ALWAYS.search(said) or _KEY.search(said))


def _spelled(name: str) -> str:
    apart = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name)
    return re.sub(r"[^a-z0-9]+", "_", apart.lower())


def credential(value: str) -> bool:
    """Tell whether a text looks like a credential, or holds a pair of a secret name and a value."""
    found = bool(_CREDENTIAL.search(value)) or any(map(names_secret, _PAIR.findall(value)))
    return found or any(_USER.search(re.split(r"\s", before)[-1]) for before in value.split("@")[:-1])


def _mixed(value: str) -> bool:
    """Tell whether there is a run of 32 letters and digits, with small and capital ones and digits up to a slash."""
    for word in re.split(r"[/\s]", value):
        run = _LONG.search(word)
        if run and all(kind.search(word, run.start()) for kind in _MIXED):
            return True
    return False


def secret(name: str, value: str) -> bool:
    """Tell whether a word of a command line may hold a secret: by its name, or by what its value looks like."""
    return names_secret(name) or credential(value) or _mixed(value)


def secret_variable(name: str, value: str = "") -> bool:
    """Tell whether a variable of the environment may hold a secret; of these any key is one."""
    return secret(name, value) or bool(_ANY_KEY.search(_spelled(name)))


def masked(words: list[str]) -> list[str]:
    """Return a command line in which what may be a secret is ``***``.

    Notes:
        Behind an option with such a name all is hidden up to the next option: it may take several words. From the
        second on, an assignment (``lr=0.1``) is judged by itself.
    """
    found: list[str] = []
    behind = 0  # words since an option that names a secret; 0: there is none
    for word in words:
        option = word.startswith("--") or (word.startswith("-") and behind != 1)
        if behind and not option and (behind == 1 or not _ASSIGNED.match(word)):
            found.append(HIDDEN)
            behind += 1
            continue
        name, sign, value = word.partition("=")
        if sign and secret(name, value):
            found.append(f"{HIDDEN if credential(name) else name}={HIDDEN}")
        else:
            found.append(HIDDEN if secret("", word) else word)
        behind = int(option and not sign and names_secret(word)) or (behind if behind and not option else 0)
    return found
