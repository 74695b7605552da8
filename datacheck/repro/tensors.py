"""Numbers of any library as Python's."""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import itertools
import operator
import random
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import xxhash

from datacheck.errors import UsageError
from datacheck.plugins import require
from datacheck.runtime.hashing import digest64, digests64


def as_whole(value: Any) -> int | None:
    """Return a whole number of Python, NumPy or PyTorch; None: it is none, as a bool and a list of one number are."""
    if (
        isinstance(value, bool | np.bool_)
        or getattr(value, "shape", None)
        or "bool" in str(getattr(value, "dtype", ""))
    ):
        return None
    try:
        return operator.index(value)
    except (TypeError, ValueError, RuntimeError):
        return None


def whole(name: str, value: Any, least: int = 0) -> int:
    """Return a whole number of any library as Python's."""
    found = as_whole(value)
    if found is None or found < least:
        msg = f"{name}={value!r} is no whole number of {least} or more"
        raise UsageError(msg)
    return found


def whole_or_none(name: str, value: Any) -> int | None:
    """Return a whole number of any library as Python's, None as it is."""
    return None if value is None else whole(name, value)


def hex_of(value: Any, name: str) -> str:
    """Return a number as the hex digits of a float64."""
    try:
        return float(value.detach() if hasattr(value, "detach") else value).hex()
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        kind = (
            f"of shape {tuple(value.shape)}"
            if hasattr(value, "shape")
            else f"a {type(value).__name__}"
        )
        msg = f"{name} is {kind}; one number is wanted"
        raise UsageError(msg) from error


_WORDS = 624  # of a Mersenne twister


class RandomStates:
    """Tells the states of the global generators of Python, NumPy and PyTorch, step by step; nothing is drawn."""

    def __init__(self) -> None:
        self._told: tuple[Any, bytes, str] | None = (
            None  # NumPy's generator, its memory, their digest
        )

    def digests(self) -> dict[str, str]:
        """Return a digest of the state of each generator."""
        torch = require("torch", "torch")
        version, words, gauss = random.getstate()
        found = {
            "python": _digest(array("I", words), f"{version} {gauss}".encode()),
            "numpy": self._of_numpy(),
            "torch": _digest(torch.get_rng_state().numpy()),
        }
        if torch.cuda.is_initialized():
            found["cuda"] = _digest(*(state.numpy() for state in torch.cuda.get_rng_state_all()))
        return found

    def _of_numpy(self) -> str:
        """Return the digest of NumPy's; it takes longer to tell than all others, so only where it can be another.

        Notes:
            A number of a normal distribution is kept beside its words, for the next call: while one
            is, it is asked. Unseen is only a state that is set, with such a number, to the words
            that it has.
        """
        generator = np.random.get_bit_generator()  # type: ignore[attr-defined]  # its stubs leave it out
        if type(generator) is not np.random.MT19937:  # somebody has set another
            return _digest(repr(np.random.get_state(legacy=False)).encode())  # noqa: NPY002  transforms draw from it
        now = ctypes.string_at(generator.ctypes.state_address, 4 * _WORDS + 4)
        if self._told is None or self._told[:2] != (generator, now):
            state: Any = np.random.get_state(legacy=True)  # noqa: NPY002
            name, keys, place, kept, number = state
            told = _digest(keys, f"{name} {[place, kept, number]}".encode())
            sure = not kept and now == keys.tobytes() + np.int32(place).tobytes()
            self._told = (generator, now, told) if sure else None
            return told
        return self._told[2]


def _digest(*state: Any) -> str:
    return f"{digest64(b''.join(state)):016x}"


Array = np.ndarray[Any, Any]

_PIECE = 1 << 22  # elements that are folded at once: a fold needs 24 bytes of the device for each
_DEPTH = 32
_LARGE = 1 << 16  # numbers of a tensor that several threads read sooner than one
ODD, STEP = 0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F
MASK = (1 << 64) - 1
FOLDED = "f"  # begins the digest of tensors on a device: it says nothing to one made in main memory


def _signed(word: int) -> int:
    return (word & MASK) - (1 << 64 if word & (1 << 63) else 0)


def batch_leaves(
    value: Any, name: str = "", within: tuple[int, ...] = ()
) -> Iterator[tuple[str, Any]]:
    """Yield the leaves of a batch with their names, in an order that depends on the batch alone.

    Args:
        value: tensors, arrays, numbers, texts; in mappings (by sorted name), sequences,
            dataclasses, named tuples, attributes of objects; images of PIL, and what else shows
            NumPy its memory.

    Notes:
        What has none of these is a leaf of which only the type is known, as is what lies within
        itself.
    """
    if isinstance(value, np.ndarray) or hasattr(
        value, "untyped_storage"
    ):  # nearly every leaf is one
        yield name, value
        return
    if (
        id(value) in within
        or len(within) > _DEPTH
        or (isinstance(value, Mapping | list | tuple) and not value)
    ):
        yield name, type(value)
        return
    within = (*within, id(value))
    held = _attributes(value)
    if isinstance(held, Mapping):
        for key in sorted(
            held, key=lambda key: (str(key), type(key).__qualname__)
        ):  # 1 and "1" stand apart
            yield from batch_leaves(held[key], f"{name}.{key}", within)
    elif isinstance(held, Sequence) and not isinstance(held, str | bytes):
        for i, item in enumerate(held):
            yield from batch_leaves(item, f"{name}[{i}]", within)
    else:
        yield name, held


def _attributes(value: Any) -> Any:
    """Return the attributes of what is a dataclass or another plain object; anything else as it is."""
    if isinstance(value, type | Mapping | Sequence) or callable(value):
        return value
    if (shown := _exposed_array(value)) is not None:
        return shown
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return getattr(value, "__dict__", None) or value


def _exposed_array(value: Any) -> dict[str, Any] | None:
    """Return the array that an object shows NumPy, of an image with what its numbers stand for; None: it shows none."""
    if isinstance(value, np.generic) or not hasattr(type(value), "__array_interface__"):
        return None
    try:
        palette = value.getpalette() if hasattr(value, "getpalette") else None
        return {
            "pixels": np.asarray(value),
            "mode": getattr(value, "mode", None),
            "palette": bytes(palette or ()),
        }
    except Exception:  # noqa: BLE001  of an image that is cut off, say: it is its owner's to fail, when he uses it
        return None


class Digest:
    """xxh3_64 of named values one behind the other, each framed by name, dtype and shape."""

    def __init__(self) -> None:
        self._hasher = xxhash.xxh3_64()
        self._waiting: list[
            Any
        ] = []  # from the first tensor of a device on: its word is fetched with those of others
        self._folded = False
        self.opaque: set[str] = set()  # types of which nothing else is known

    def add(self, name: str, value: Any) -> None:
        """Take one value: a tensor, an array, a number, a text, bytes; of anything else its type."""
        if isinstance(value, np.ndarray) and not value.dtype.hasobject:
            self._update(name, value.dtype.str, value.shape, np.ascontiguousarray(value))
        elif hasattr(value, "untyped_storage"):
            self.add_tensor(name, value)
        else:
            kind = value if isinstance(value, type) else type(value)
            self._take(f"{name}\0{kind.__qualname__}\0".encode())
            if (said := _plain(value)) is not None:
                self._take(said)
            elif kind is not value:
                self.opaque.add(kind.__qualname__)

    def add_tensor(self, name: str, tensor: Any) -> None:
        """Take one tensor of any layout, dtype and device; of one that holds no values its type."""
        try:
            found = [
                (part, one, in_memory(one) if in_main_memory(one) else folded(one))
                for part, one in _strided(tensor)
            ]
        except NO_VALUES:
            found = []
            self._take(f"{name}\0{type(tensor).__qualname__}\0{shape_of(tensor)}\0".encode())
            self.opaque.add(type(tensor).__qualname__)
        for part, held, data in found:
            self._folded = self._folded or not in_main_memory(held)
            self._update(f"{name}{part}", str(held.dtype), tuple(held.shape), data)

    def _update(self, name: str, dtype: str, shape: Sequence[int], data: Any) -> None:
        self._take(f"{name}\0{dtype}\0{','.join(map(str, shape))}\0".encode())
        self._take(data)

    def _take(self, data: Any) -> None:
        if self._waiting or hasattr(data, "untyped_storage"):
            self._waiting.append(data)
        else:
            self._hasher.update(data)

    def text(self) -> str:
        """Return 16 hex digits, with an ``f`` in front where a tensor was folded on its device."""
        words = _fetch_folded([held for held in self._waiting if hasattr(held, "untyped_storage")])
        for held in self._waiting:
            self._hasher.update(next(words) if hasattr(held, "untyped_storage") else held)
        self._waiting.clear()
        return FOLDED * self._folded + self._hasher.hexdigest()


def _plain(value: Any) -> bytes | None:
    if isinstance(value, bytes):
        return value
    if isinstance(value, float):
        return value.hex().encode()
    if value is None or isinstance(value, bool | int | str):
        return str(value).encode("utf-8", "surrogatepass")
    if isinstance(value, np.generic) and not value.dtype.hasobject:
        return value.tobytes()
    return None


_NOT_SUMMED = (".indices", ".integers")
NO_VALUES = (NotImplementedError, TypeError, RuntimeError, ValueError, AttributeError)


def shape_of(value: Any) -> tuple[int, ...]:
    """Return the shape of a tensor or array, () where it has none: nested ones, parameters of lazy modules."""
    try:
        return tuple(map(int, value.shape))
    except (AttributeError, RuntimeError, TypeError, ValueError):
        return ()


def _strided(tensor: Any) -> Iterator[tuple[str, Any]]:
    """Yield what a tensor is made of as plain tensors of values.

    Raises:
        NotImplementedError, TypeError, RuntimeError, ValueError, AttributeError: it has no values,
        or none can be had.
    """
    if is_simple(tensor):
        yield "", tensor.detach()
        return
    tensor = tensor.detach()
    if hasattr(tensor, "to_local"):  # a part of a tensor that several ranks have
        tensor = tensor.to_local()
    if tensor.device.type == "meta":
        msg = "a meta tensor has no values"
        raise NotImplementedError(msg)
    for part, held in _pieces(tensor):
        if held is tensor:
            yield part, held
        else:
            yield from ((part + more, plain) for more, plain in _strided(held))


def is_simple(tensor: Any) -> bool:
    """Tell the tensor that nearly all are: a tenth of the time of looking for what others are made of."""
    torch = _torch()
    if type(tensor) is not torch.Tensor and type(tensor) is not torch.nn.Parameter:
        return False
    return tensor.layout is torch.strided and not (
        tensor.is_nested or tensor.is_quantized or tensor.is_meta
    )


@functools.cache
def _torch() -> Any:
    return require("torch", "torch")


def _pieces(tensor: Any) -> list[tuple[str, Any]]:
    """Return what a tensor is made of; a plain one is made of itself."""
    layout = str(tensor.layout)
    if tensor.is_nested:
        return [(f"[{i}]", one) for i, one in enumerate(tensor.unbind())]
    if hasattr(tensor, "__tensor_flatten__"):  # a class of its own around plain ones
        return [(f".{name}", getattr(tensor, name)) for name in tensor.__tensor_flatten__()[0]]
    if tensor.is_quantized:
        return [
            (".integers", tensor.int_repr()),
            (".values", tensor.dequantize()),
        ]  # with scale and zero point
    if layout in {"torch.strided", "torch._mkldnn"}:
        return [("", tensor if layout == "torch.strided" else tensor.to_dense())]
    sparse = (
        tensor.coalesce() if layout == "torch.sparse_coo" else tensor.to_sparse_coo().coalesce()
    )
    return [(".indices", sparse.indices()), (".values", sparse.values())]


def in_main_memory(tensor: Any) -> bool:
    """Tell whether a tensor lies in main memory."""
    return bool(tensor.device.type == "cpu")


def in_memory(tensor: Any) -> Array:
    """Return a tensor of main memory as a C-contiguous array; a copy only where it is not contiguous."""
    try:
        return np.ascontiguousarray(tensor.numpy())
    except (TypeError, RuntimeError):  # a dtype that NumPy does not have; a view that is conjugate
        torch = require("torch", "torch")
        plain = tensor.resolve_conj().resolve_neg().contiguous()
        octets: Array = plain.reshape(-1).view(torch.uint8).numpy()
        return octets.reshape(*plain.shape, plain.element_size())


def folded(tensor: Any) -> Any:
    """Return 64 bits of a tensor as one number of its device: a sum of its words, each times an odd one of its place.

    Notes:
        Integer sums modulo 2**64: equal on every run whatever the order of additions. One changed
            word always changes
        it. Words have four bytes at most: those of eight would lose their signs in pairs (2**63
            times two odd numbers),
        and are no copies when they become int64. Nothing waits for the device; `fold` fetches the
        number.
    """
    torch = require("torch", "torch")
    plain = tensor.detach().resolve_conj().resolve_neg().reshape(-1).contiguous()
    if plain.is_complex():
        plain = torch.view_as_real(plain).reshape(-1)
    kinds = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int32}
    words = plain.view(kinds[plain.element_size()])
    total = torch.zeros((), dtype=torch.int64, device=words.device)
    for first in range(0, words.numel(), _PIECE):
        piece = words[first : first + _PIECE].to(torch.int64)
        place = torch.arange(first, first + len(piece), device=words.device)
        place.mul_(_signed(STEP)).bitwise_or_(1)
        total += piece.mul_(place).sum()
    return total


def fold(tensor: Any) -> int:
    """Return 64 bits of a tensor (`folded`), when its device is done."""
    return int.from_bytes(next(_fetch_folded([folded(tensor)])), "little")


def _fetch_folded(totals: Sequence[Any]) -> Iterator[bytes]:
    """Yield what tensors were folded to, fetched at once: each fetch waits until the device is done."""
    if totals:
        together = require("torch", "torch").stack([one.to(totals[0].device) for one in totals])
        yield from ((word * ODD & MASK).to_bytes(8, "little") for word in together.tolist())


# ------------------------------------------------------------------------------ model and optimiser


def named_weights(model: Any) -> list[tuple[str, Any]]:
    """Return parameters and buffers by name; what DDP and `torch.compile` put before a name is left out."""
    found = [*model.named_parameters(), *model.named_buffers()]
    return [
        (name.replace("_orig_mod.", "").removeprefix("module."), value) for name, value in found
    ]


def digest_tensors(tensors: Iterable[tuple[str, Any]]) -> str:
    """Return the digest of named tensors, in the order given."""
    digest = Digest()
    for name, tensor in tensors:
        digest.add_tensor(name, tensor)
    return digest.text()


def digest_each(tensors: Iterable[tuple[str, Any]]) -> dict[str, str]:
    """Return the digest of each of named tensors."""
    return {name: digest_tensors([("", tensor)]) for name, tensor in tensors}


def parameters_of(optimizer: Any) -> list[Any]:
    """Return the parameters of an optimiser, in its order."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def gradients_of(optimizer: Any) -> list[tuple[str, Any]]:
    """Return the gradients that are there, named by their places among the optimiser's parameters."""
    return [(str(i), p.grad) for i, p in enumerate(parameters_of(optimizer)) if p.grad is not None]


def digest_state(optimizer: Any) -> str:
    """Return the digest of what an optimiser remembers of its parameters."""
    digest = Digest()
    for i, parameter in enumerate(parameters_of(optimizer)):
        for name, value in batch_leaves(optimizer.state.get(parameter, {})):
            digest.add(f"{i}{name}", value)
    return digest.text()


def _is_of_rows(tensor: Any) -> bool:
    """Tell a tensor whose rows lie one behind the other, or in one place, whatever their order (`channels_last`)."""
    strides = tensor.stride()
    return len(strides) > 1 and strides[0] in {0, max(strides)}


def norm(tensors: Sequence[Any]) -> float:
    """Return the 2-norm of tensors together, as `torch.nn.utils.clip_grad_norm_` but for rounding; also of float8.

    Notes:
        Large ones in main memory are normed row by row, which PyTorch does on all its threads, each
        of which finds near what it wrote; a whole tensor would be read by one. A row is one
        thread's: their number changes nothing.
    """
    torch, plain = _torch(), []
    for tensor in tensors:
        if is_simple(tensor):
            plain.append(tensor)
        else:
            plain += [held for part, held in _strided(tensor) if not part.endswith(_NOT_SUMMED)]
    plain = [
        held.float() if held.is_floating_point() and held.element_size() == 1 else held
        for held in plain
    ]
    if not plain:
        return 0.0
    in_rows = [one.numel() >= _LARGE and _is_of_rows(one) and in_main_memory(one) for one in plain]
    with torch.no_grad():
        large = itertools.compress(plain, in_rows)
        each = [torch.linalg.vector_norm(one, dim=tuple(range(1, one.dim()))) for one in large]
        rest = [one for one, apart in zip(plain, in_rows, strict=True) if not apart]
        if rest:  # that function takes twice as long in main memory
            each += [one.reshape(1) for one in torch._foreach_norm(rest)]  # noqa: SLF001
        if len({one.device for one in each}) > 1:
            each = [one.to(each[0].device) for one in each]
        return float(torch.linalg.vector_norm(torch.cat(each)))


_WIDE = 4096  # bytes of a row; xxh3 of each takes less time then than a sum of words
_SIGNS = 512  # bytes of a row of float32 whose signs are told in pairs, too
_ROWS = 1024  # of more wide rows none is digested: it takes 0.3 us for each
_TURN = 0x165667B19E3779F9


def digest_batch(batch: Any, samples: int | None = None) -> tuple[Digest, int | None]:
    """Return the digest of a batch, and a number that stands for its samples whatever their order.

    Args:
        batch: as `batch_leaves`.
        samples: how many it has; tensors of that length along the first axis have a row for each.

    Returns:
        The digest; the sum of what stands for each sample modulo 2**64, or None where it would
        leave out values: those of a tensor or array that has no row for each sample, or lies on a
            device.

    Notes:
        Numbers and texts stand beside each sample of their batch, since nothing says whose they
        are: two sums are equal where the same samples came in another order only if what their
            batches hold besides is equal, too.
    """
    digest, rows, whole = Digest(), None, True
    besides: list[tuple[str, Any]] = []
    for place, (name, value) in enumerate(batch_leaves(batch)):
        array = None if samples is None else _in_rows(value, samples)
        if array is None:
            digest.add(name, value)
            if _has_values(value):
                whole = False
            else:
                besides.append((name, value))
            continue
        wide = array.nbytes > _WIDE * len(array)
        each = digests64(array.reshape(len(array), -1)) if wide else _sums(array)
        digest.add(f"{name} {value.dtype} {tuple(value.shape)}", each if wide else array)
        turned = each * np.uint64((_TURN * (2 * place + 1)) & MASK)
        rows = turned if rows is None else rows ^ turned
    if rows is None or not whole:
        return digest, None
    if besides:
        other = Digest()
        for name, value in besides:
            other.add(name, value)
        rows = rows ^ np.uint64(int(other.text()[-16:], 16))
    mixed = (rows ^ (rows >> np.uint64(29))) * np.uint64(ODD)
    return digest, int(mixed.sum(dtype=np.uint64))


def _in_rows(value: Any, samples: int) -> Array | None:
    """Return a tensor or array with a row for each sample; None where it has none, or lies on a device."""
    if hasattr(value, "untyped_storage"):
        if not (is_simple(value) and in_main_memory(value)) and not (
            shape_of(value) and _is_plain(value)
        ):
            return None
        try:
            array = in_memory(value.detach())
        except NO_VALUES:
            return None
    elif isinstance(value, np.ndarray) and not value.dtype.hasobject:
        array = np.ascontiguousarray(value)
    else:
        return None
    if not value.shape or len(array) != samples or not array.nbytes or _many(array):
        return None
    return array


def _has_values(value: Any) -> bool:
    """Tell a tensor or array that holds more than one number by itself."""
    shape = shape_of(value)
    if isinstance(value, np.ndarray):
        return bool(shape) and bool(value.nbytes)
    return (
        hasattr(value, "untyped_storage")
        and 0 not in shape
        and (bool(shape) or not _is_plain(value))
    )


def _is_plain(tensor: Any) -> bool:
    """Tell a tensor in main memory whose rows lie there as they are."""
    of_its_own = any(hasattr(tensor, name) for name in ("to_local", "__tensor_flatten__"))
    plain = str(tensor.layout) == "torch.strided" and not (
        tensor.is_nested or tensor.is_quantized or of_its_own
    )
    return plain and in_main_memory(tensor)


def _many(array: Array) -> bool:
    return len(array) > _ROWS and array.nbytes > _WIDE * len(array)


def _sums(array: Array) -> Array:
    """Return a number for each row: uint64 (rows); the sum of its words, each times an odd number of its place.

    Notes:
        The highest bits of two words cancel out (2**63 times two odd numbers): signs of float64
        (half a turn about an axis changes two of each point) and every second of float32 (few
        change alone in a long row).
    """
    octets = array.reshape(len(array), -1).view(np.uint8)
    width = octets.shape[1]
    weights, whole = _weights(-(-width // 8)), width // 8
    words = octets[:, : 8 * whole].view(np.uint64)
    if array.dtype.kind in "fc" and (array.itemsize > 4 or width <= _SIGNS):
        words = words ^ (words >> np.uint64(29))
    found: Array = np.einsum(
        "ij,j->i", words, weights[:whole]
    )  # as words @ weights, in half the time
    if width % 8:
        last = np.zeros((len(array), 8), np.uint8)
        last[:, : width % 8] = octets[:, 8 * whole :]
        found = found + last.view(np.uint64)[:, 0] * weights[whole]
    return found


@functools.cache
def _weights(count: int) -> Array:
    words = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(ODD)
    words = (words ^ (words >> np.uint64(31))) * np.uint64(STEP)
    return (words ^ (words >> np.uint64(29))) | np.uint64(1)
