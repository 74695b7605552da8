"""Text to tokens as in training: a tokenizer and its chat template.

Needs the extra ``text``. Templates come from files, so they run in a sandbox.
"""

from __future__ import annotations

import codecs
import copy
import json
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from datacheck.errors import UsageError
from datacheck.plugins import require
from datacheck.runtime.beneath import AnyPath, ConfinedFolder, File, read_file
from datacheck.runtime.documents import MIB, check_values
from datacheck.runtime.hashing import digest_bytes
from datacheck.workers.budget import OutOfTimeError, limited_memory, limited_time

Array = np.ndarray[Any, Any]

_FILE = "tokenizer.json"
_CONFIG = "tokenizer_config.json"
_TEMPLATE = "chat_template.jinja"
_GENERATION = "generation_config.json"
FILES = (_FILE, _CONFIG, _TEMPLATE, _GENERATION)
TOKENIZER_BYTES = 64 * MIB  # of tokenizer.json; those of large vocabularies have 20 MB
SETTINGS_BYTES = 8 * MIB  # of each other file; decoded and parsed they take ten times as much
_TEMPLATE_S = 1.0  # processor time; a chat takes a millisecond
# Limits of memory and of text for an empty chat.
_TEMPLATE_BYTES = 64 * MIB
_TEMPLATE_LETTERS = 100_000
# both limits grow with each letter of the chat
_PER_LETTER = 64
_LETTERS_PER_LETTER = 16
# If the template is too costly for a chat of at most `_SHORT` letters, it is for all chats. After
# `_MOST_LONG` costly longer chats, no other long one is tried.
_SHORT = 10_000
_MOST_LONG = 5
# Ends the reason for a chat that is not tried because others were too costly.
UNTRIED = "it was not tried for this one"
# Bits of an integer, and elements of a repeated text.
_DIGITS = 4_096
_REPEATED = 100_000
# Text of an added token in tokenizer.json.
# Possessive: otherwise each letter of a long text takes a hundred bytes until its end is found.
_CONTENT = re.compile(rb'"content"\s*+:\s*+("(?:[^"\\]++|\\.)*+")')
_SPECIAL = ("bos_token", "eos_token", "pad_token", "unk_token")
# Names of the speaker and the text in a message: of OpenAI, of ShareGPT, and of dialogue corpora.
MESSAGE_NAMES = (
    ("role", "content"),
    ("from", "value"),
    ("speaker", "utterance"),
    ("speaker", "text"),
)


# Separates the data folder from the path inside it, for a tokenizer that lies in the data.
_WITHIN = "/./"


def located(data: Path, path: str) -> str:
    """Return the path of a tokenizer in the form that `tokenizer_files` takes.

    Args:
        data: the data folder; each use of a tokenizer in it opens its files below that folder.
        path: path of the tokenizer, relative to `data`.

    Notes:
        The caller may name any folder (``/models/x``, ``../x``). A link inside the data folder
        belongs to the data: a link that leads out becomes a name that no file has.
    """
    place = data / path
    root = os.path.realpath(data)
    place = Path(os.path.realpath(place.parent), place.name)
    if place.name in {"", ".."} or not _below(str(place), root):
        return str(place.resolve())
    folder = place if place.is_dir() else place.parent
    files = [place, *(folder / name for name in FILES)]
    if all(_below(os.path.realpath(file), root) for file in files):
        return f"{root}{_WITHIN}{os.path.relpath(place, root)}"
    return f"{place} (a link out of the data folder)"


def _shown(path: str) -> str:
    return path.replace(_WITHIN, "/")


def _below(path: str, root: str) -> bool:
    return f"{path}/".startswith(f"{root.rstrip('/')}/")


def _place(path: str) -> AnyPath:
    """Return the file or folder of a tokenizer.

    Raises:
        OSError: the data folder is missing.
    """
    data, mark, inner = path.partition(_WITHIN)
    return File(ConfinedFolder(data), inner) if mark else Path(path)


def tokenizer_files(path: str) -> list[bytes | None]:
    """Return the contents of the files of a tokenizer (`FILES`), None for each absent file.

    Raises:
        OSError: a file is no regular file, leads out of the data folder that the tokenizer is in,
            or is too large.
    """
    place = _place(path)
    main_file = place / _FILE if place.is_dir() else place
    files = [main_file, *(main_file.with_name(name) for name in FILES[1:])]
    limits = (TOKENIZER_BYTES, *(SETTINGS_BYTES for _ in FILES[1:]))
    return [
        read_file(file, limit) if _is_there(file) else None
        for file, limit in zip(files, limits, strict=True)
    ]


def _is_there(file: AnyPath) -> bool:
    try:
        file.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def tokenizer_places(path: str) -> tuple[str, ...]:
    """Return the paths that a tokenizer is read from: its folder or file, and the targets of links.

    Notes:
        A snapshot in the cache of the Hugging Face Hub is a folder of links. A tokenizer inside the
        data folder gives ().
    """
    if _WITHIN in path:
        return ()
    # os.path, because the sandbox takes paths as text.
    folder = path if os.path.isdir(path) else os.path.dirname(path)  # noqa: PTH112, PTH120
    files = [path, *(os.path.join(folder, name) for name in FILES)]  # noqa: PTH118
    return (path, *(os.path.realpath(file) for file in files if os.path.islink(file)))  # noqa: PTH114


def tokenizer_digest(path: str | Path) -> str:
    """Return the digest of everything that decides how a tokenizer encodes a text.

    Raises:
        UsageError: there is no tokenizer, or its files cannot be read.

    Notes:
        The library is not used for this: it takes up to a hundred times the memory of a vocabulary
        file. The file is not decoded as a whole either: one emoji makes it four times as large.
    """
    raw, template, special, _ = _read(str(path))
    spellings = {
        token: {json.dumps(token).encode(), json.dumps(token, ensure_ascii=False).encode()}
        for token in special.values()
    }
    wanted = set[bytes]().union(*spellings.values())
    known = {match[1] for match in _CONTENT.finditer(raw) if match[1] in wanted}
    # earlier versions did not add these: caches with their ids are others
    added = [token for token in special.values() if not spellings[token] & known]
    settings = [template, special, *([added] if added else [])]
    return digest_bytes(raw + f"\0{json.dumps(settings, sort_keys=True)}".encode())


def _read(path: str) -> tuple[bytes, Any, dict[str, Any], frozenset[int]]:
    """Return a tokenizer's file (UTF-8), its chat template, and its special tokens by name.

    The last value holds the ids at which generation stops, as generation_config.json says.

    Raises:
        UsageError: there is no tokenizer, or its files cannot be read.
    """
    try:
        raw, *others = tokenizer_files(path)
        _check_utf8(raw or b"")
        config, template, generation = (
            None if content is None else content.decode() for content in others
        )
    except (OSError, UnicodeDecodeError) as error:
        msg = f"{_shown(path)}: cannot be read: {error}"
        raise UsageError(msg) from error
    if raw is None:
        msg = f"{_shown(path)}: no tokenizer there; it is a folder with {_FILE}, or that file"
        raise UsageError(msg)
    settings = _json(_shown(path), config or "{}")
    special = {
        n: t.get("content") if isinstance(t, Mapping) else t
        for n in _SPECIAL
        if (t := settings.get(n))
    }
    chat_template = _template_of(settings.get("chat_template")) or template
    for name, text in {**special, "chat_template": chat_template or ""}.items():
        if not isinstance(text, str) or not _is_unicode(text):
            msg = f"{_shown(path)}: {_CONFIG}: {name} is no text"
            raise UsageError(msg)
    return raw, chat_template, special, _stops(generation or "{}")


def _check_utf8(data: bytes) -> None:
    """Check bytes part by part, as a text may take four times their memory.

    Raises:
        UnicodeDecodeError: they are not UTF-8.
    """
    decoder = codecs.getincrementaldecoder("utf-8")()
    for start in range(0, len(data), MIB):
        decoder.decode(data[start : start + MIB])
    decoder.decode(b"", final=True)


def _stops(text: str) -> frozenset[int]:
    """Return the ids at which generation stops; none if the file is damaged."""
    try:
        stops = _json("", text, _GENERATION).get("eos_token_id")
    except UsageError:
        return frozenset()
    stops = stops if isinstance(stops, list) else [stops]
    return frozenset(i for i in stops if isinstance(i, int) and not isinstance(i, bool))


def _template_of(declared: Any) -> Any:
    """Return the chat template of a configuration, which may hold several by name."""
    named = [t for t in declared if isinstance(t, Mapping)] if isinstance(declared, list) else []
    if not named:
        return declared
    return next(
        (t.get("template") for t in named if t.get("name") == "default"), named[0].get("template")
    )


def _is_unicode(text: str) -> bool:
    """Return whether a text can be encoded: JSON can spell half of a UTF-16 surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


@dataclass(frozen=True)
class Rendered:
    """A conversation as one text.

    Shapes:
        generated: (first character, last + 1) of each part inside ``{% generation %}``
    """

    text: str
    generated: Sequence[tuple[int, int]] = ()


class Tokenizer:
    """A tokenizer: the folder with tokenizer.json, or that file.

    tokenizer_config.json, a template and generation_config.json are read from the same folder.

    Args:
        path: of the folder or file.

    Raises:
        MissingDependencyError: the extra ``text`` is not installed.
        UsageError: there is no tokenizer, or it is damaged.
    """

    def __init__(self, path: str | Path) -> None:
        tokenizers = require("tokenizers", "text")
        raw, self._template, self.special, self.stops = _read(str(path))
        self._path = _shown(str(path))
        with _library(f"{self._path}: not a tokenizer"):
            self._encoder = tokenizers.Tokenizer.from_str(raw.decode())
            # transformers does so with special tokens that the file does not hold
            self._encoder.add_special_tokens(list(self.special.values()))
        self._encoder.no_truncation()
        self._encoder.no_padding()

    @property
    def size(self) -> int:
        """Number of ids, including added tokens."""
        return int(self._encoder.get_vocab_size(with_added_tokens=True))

    def id_of(self, special: str) -> int | None:
        """Return the id of a special token ("bos_token"), or None."""
        name = self.special.get(special)
        token_id: int | None = None if name is None else self._encoder.token_to_id(name)
        return token_id

    def encode(self, texts: Sequence[str], *, around: bool = True) -> list[Array]:
        """Return the ids of each text: int64 (tokens).

        Args:
            texts: whole texts, or markers.
            around: whether to add the tokens that the tokenizer itself puts around a whole text
                (some put a bos token in front).

        Raises:
            UsageError: the tokenizer is damaged.
        """
        with _library(f"{self._path}: the tokenizer fails"):
            encodings = self._encoder.encode_batch(list(texts), add_special_tokens=around)
        return [np.array(encoding.ids, dtype=np.int64) for encoding in encodings]

    def placed(self, text: str, *, around: bool = False) -> tuple[Array, Array]:
        """Return the ids of a text, and the place of each in the text.

        Args:
            text: a whole text, or a part of one.
            around: whether to add the tokens that the tokenizer itself puts around a whole text.

        Returns:
            ids: int64 (tokens).
            places: int64 (tokens, 2) [first character, last + 1]; (0, 0) for added tokens.

        Raises:
            UsageError: the tokenizer is damaged.
        """
        with _library(f"{self._path}: the tokenizer fails"):
            encoding = self._encoder.encode(text, add_special_tokens=around)
        return np.array(encoding.ids, dtype=np.int64), np.array(
            encoding.offsets, dtype=np.int64
        ).reshape(-1, 2)

    def id_of_text(self, token: str) -> int | None:
        """Return the id of the token with exactly this text, or None."""
        token_id: int | None = self._encoder.token_to_id(token)
        return token_id

    @cached_property
    def added(self) -> frozenset[int]:
        """Ids of the added tokens, which no text is split into: special tokens and marks."""
        return frozenset(self._encoder.get_added_tokens_decoder())

    def with_special(self, names: Sequence[str], eos: str) -> Tokenizer:
        """Return a tokenizer that splits no text inside these tokens; unknown ones get new ids.

        Args:
            names: texts of the special tokens.
            eos: text of the end token in place of the present one.

        Raises:
            UsageError: the tokenizer is damaged.
        """
        changed = copy.copy(self)
        changed.__dict__.pop("added", None)
        changed.special = {**self.special, "eos_token": eos}
        with _library(f"{self._path}: the tokenizer fails"):
            encoder = type(self._encoder).from_str(self._encoder.to_str())
            encoder.add_special_tokens([*names, eos])
        changed.__dict__["_encoder"] = encoder
        return changed

    def decode(self, ids: Array) -> str:
        """Return the text of ids; ids that the tokenizer does not know are left out.

        Raises:
            UsageError: the tokenizer is damaged.
        """
        known_ids = ids[(ids >= 0) & (ids < self.size)]
        with _library(f"{self._path}: the tokenizer fails"):
            text: str = self._encoder.decode(known_ids.tolist(), skip_special_tokens=False)
        return text

    @cached_property
    def template(self) -> Any:
        """The compiled chat template.

        Raises:
            UsageError: there is no template, or it is broken.
        """
        if not self._template:
            msg = f"the tokenizer has no chat template (chat_template in {_CONFIG}, or {_TEMPLATE})"
            raise UsageError(msg)
        base = require("jinja2.sandbox", "text").ImmutableSandboxedEnvironment
        sandbox = type(
            "_Sandbox",
            (base,),
            {"intercepted_binops": frozenset({"*", "**"}), "call_binop": _times},
        )
        environment = sandbox(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=["jinja2.ext.loopcontrols", _generation_tag()],
        )
        environment.filters["tojson"] = lambda value, **kw: json.dumps(
            value, ensure_ascii=False, **kw
        )
        # Some templates print the date; a fixed one keeps the text a function of the chat.
        environment.globals |= {
            "raise_exception": _refuse,
            "strftime_now": lambda form: "2024-01-01",
        }
        try:
            with _limited_operators(0):  # compiling evaluates constant expressions
                return environment.from_string(self._template)
        except Exception as error:
            costly = isinstance(error, OutOfTimeError | MemoryError)
            why = "to compile it takes too much time or memory" if costly else ""
            why = why or " ".join(str(error).split())[:300] or type(error).__name__
            msg = f"the chat template of the tokenizer is broken: {why}"
            raise UsageError(msg) from error

    @property
    def marks_answers(self) -> bool:
        """Whether the chat template has ``{% generation %}`` parts."""
        return bool(re.search(r"\{%-?\s*generation\s*-?%\}", self._template or ""))

    def with_template(self) -> Tokenizer:
        """Return the tokenizer after checking that it has a chat template.

        Raises:
            UsageError: it has none, or a broken one.
        """
        assert self.template is not None
        return self

    def chats(self, chats: Iterable[Sequence[Mapping[str, Any]]]) -> Iterator[str | ValueError]:
        """Yield each conversation of a block as one text, or the error that `chat` raises for it.

        Notes:
            Costly chats are counted per block, independent of the number of workers. A template
            that takes too much for a short chat is not tried for the rest of the block. After five
            costly long chats, no other long one is tried: each takes a second.
        """
        costs = TemplateCosts()
        for messages in chats:
            try:
                yield self._text(messages, costs)
            except ValueError as error:
                yield error

    def chat(self, messages: Sequence[Mapping[str, Any]]) -> str:
        """Return a conversation as one text; parses tools and tool calls that are JSON text.

        Raises:
            ValueError: the template refuses it, or takes too much time, memory or text for it.
        """
        return self._text(messages, TemplateCosts())

    def _text(self, messages: Sequence[Mapping[str, Any]], costs: TemplateCosts) -> str:
        def variables() -> dict[str, Any]:
            tools = next(
                (m["tools"] for m in messages if m.get("role") == "system" and m.get("tools")), None
            )
            parsed = [
                {**m, "tool_calls": parsed_json(m["tool_calls"], "tool_calls")}
                if m.get("tool_calls")
                else m
                for m in messages
            ]
            return {"messages": parsed, "tools": parsed_json(tools, "tools")}

        return self._render(messages, variables, costs).text

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        costs: TemplateCosts,
        tools: Any = None,
        generation_prompt: bool = False,
        variables: Mapping[str, Any] | None = None,
    ) -> Rendered:
        """Return a conversation as the chat template writes it.

        Args:
            messages: as the template reads them.
            costs: counts costly chats of the block.
            tools: the tools that the model may call, or None.
            generation_prompt: whether to end with the start of an answer.
            variables: further variables of the template.

        Raises:
            ValueError: the template refuses it, or takes too much time, memory or text for it.
            UsageError: there is no template, or it is broken.
        """

        def given() -> dict[str, Any]:
            return {
                "messages": messages,
                "tools": tools,
                "add_generation_prompt": generation_prompt,
                **(variables or {}),
            }

        return self._render(messages, given, costs)

    def _render(
        self,
        messages: Sequence[Mapping[str, Any]],
        variables: Callable[[], dict[str, Any]],
        costs: TemplateCosts,
    ) -> Rendered:
        template = self.template
        letters = _SHORT + 1
        blocks: list[str] = []
        trace = _Trace()
        try:
            letters = len(str(messages))
            costs.check(letters)
            given = {"add_generation_prompt": False, **self.special, **variables()}
            with _limited_operators(letters):
                template.environment.trace = trace
                try:
                    for block in template.generate(**given):
                        blocks.append(block)
                        trace.length += len(block)
                finally:
                    template.environment.trace = None
                text = "".join(blocks)
        except CostlyTemplateError:
            raise
        except OutOfTimeError:
            why = f"took more than {_TEMPLATE_S:g} s"
            raise costs.refusal(why, letters) from None
        except (MemoryError, SystemError):  # parts of Python raise SystemError when memory runs out
            why = "took too much memory"
            raise costs.refusal(why, letters) from None
        except Exception as error:  # a template may raise anything; training would stop here
            msg = f"the chat template refuses it: {str(error)[:200] or type(error).__name__}"
            raise ValueError(msg) from error
        if len(text) > _TEMPLATE_LETTERS + _LETTERS_PER_LETTER * letters:
            msg = (
                f"the chat template makes a text of {len(text):,} letters of a chat of {letters:,}"
            )
            raise ValueError(msg)
        return Rendered(text, trace.generated)


class CostlyTemplateError(ValueError):
    """The chat template takes too much time or memory."""


class TemplateCosts:
    """Counts the chats of a block for which the template took too much time or memory."""

    def __init__(self) -> None:
        self._short, self._long = 0, 0
        self._why = ""

    def check(self, letters: int) -> None:
        """Refuse a chat of `letters` letters if the template must not be tried again.

        Raises:
            CostlyTemplateError: it must not.
        """
        if self._short or (self._long >= _MOST_LONG and letters > _SHORT):
            chats = "a short chat" if self._short else f"{self._long} other long chats"
            msg = f"the chat template {self._why} for {chats} beside it; {UNTRIED}"
            raise CostlyTemplateError(msg)

    def refusal(self, why: str, letters: int) -> CostlyTemplateError:
        """Count a chat, and return its refusal."""
        self._why = why
        if letters <= _SHORT:
            self._short += 1
        # A long chat may itself be at fault, so it must not make the template refuse short chats.
        else:
            self._long += 1
        return CostlyTemplateError(f"the chat template {why} for one chat")


@contextmanager
def _limited_operators(letters: int) -> Iterator[None]:
    """Limit the time and memory of a template for a chat of `letters` letters."""
    with ExitStack() as limits:
        limits.enter_context(limited_memory(_TEMPLATE_BYTES + _PER_LETTER * letters))
        limits.enter_context(limited_time(_TEMPLATE_S))
        yield


@contextmanager
def _library(what: str) -> Iterator[None]:
    """Turn any error of the library on a damaged tokenizer into a `UsageError`.

    The message starts with `what`.

    Notes:
        The library is written in Rust: its ``PanicException`` derives from BaseException only.
    """
    try:
        yield
    except (KeyboardInterrupt, SystemExit, GeneratorExit, MemoryError):
        raise
    except BaseException as error:
        msg = f"{what}: {' '.join(str(error).split())[:300] or type(error).__name__}"
        raise UsageError(msg) from error


def role_of(message: Mapping[str, Any]) -> str:
    """Return the speaker of a message, under the first of `MESSAGE_NAMES` found; else "None"."""
    return str(next((message[name] for name, _ in MESSAGE_NAMES if name in message), None))


def content_of(message: Mapping[str, Any]) -> Any:
    """Return the text of a message, under the first of `MESSAGE_NAMES` found; else None."""
    return next((message[name] for _, name in MESSAGE_NAMES if name in message), None)


def messages_of(value: Any) -> list[dict[str, Any]]:
    """Return the messages of a conversation, or of a single message; [] for any other value."""
    if isinstance(value, dict) and any(value.keys() >= set(names) for names in MESSAGE_NAMES):
        return [value]
    messages = (
        value.get("conversations", value.get("messages")) if isinstance(value, dict) else value
    )
    return [m for m in messages if isinstance(m, dict)] if isinstance(messages, list) else []


def _json(path: str, text: str, name: str = _CONFIG) -> dict[str, Any]:
    try:
        check_values(text.encode())
        settings = json.loads(text)
    except (ValueError, RecursionError) as error:
        msg = f"{path}: {name}: not valid JSON: {error}"
        raise UsageError(msg) from error
    return settings if isinstance(settings, dict) else {}


def _times(environment: Any, context: Any, operator: str, left: Any, right: Any) -> Any:
    """Multiply or raise to a power within a size limit.

    A time limit does not help here: it cannot interrupt a single call that takes hours.

    Raises:
        OverflowError: the result would have more digits or elements than any chat needs.
    """
    del context
    if isinstance(left, int) and isinstance(right, int):
        bits = (
            left.bit_length() * right
            if operator == "**"
            else left.bit_length() + right.bit_length()
        )
        large = bits > _DIGITS
    else:  # floats do not grow in digits
        count = math.prod(
            len(operand) if isinstance(operand, Sized) else operand for operand in (left, right)
        )
        large = (isinstance(left, Sized) or isinstance(right, Sized)) and count > _REPEATED
    if large:
        msg = f"the result of {operator} is too large"
        raise OverflowError(msg)
    return environment.binop_table[operator](left, right)


class _Trace:
    """The characters rendered so far, and the spans inside ``{% generation %}``."""

    def __init__(self) -> None:
        self.length = 0
        self.generated: list[tuple[int, int]] = []


def _generation_tag() -> type:
    """Return the extension of Jinja for ``{% generation %}``, which transformers introduced.

    Notes:
        `environment.trace` is a `_Trace` while a chat is rendered. A span begins after all finished
        blocks, as in transformers.
    """
    jinja2 = require("jinja2", "text")
    extension = require("jinja2.ext", "text").Extension

    def parse(self: Any, parser: Any) -> Any:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        call = self.call_method("_traced")
        return jinja2.nodes.CallBlock(call, [], [], body).set_lineno(line)

    def traced(self: Any, caller: Callable[[], str]) -> str:
        text = caller()
        trace = self.environment.trace
        if trace is not None:
            trace.generated.append((trace.length, trace.length + len(text)))
        return text

    members = {"tags": {"generation"}, "parse": parse, "_traced": traced}
    return type("_GenerationTag", (extension,), members)


def _refuse(message: str) -> None:
    raise ValueError(message)


def parsed_json(value: Any, name: str) -> Any:
    """Return the value of JSON text, None for empty text; any other value as it is.

    Raises:
        ValueError: the text is not valid JSON; the message begins with `name`.
    """
    if not isinstance(value, str):
        return value
    if not value.strip():
        return None
    try:
        return json.loads(value)
    except (ValueError, RecursionError) as error:
        msg = f"{name}: not valid JSON: {str(error)[:100]}"
        raise ValueError(msg) from error
