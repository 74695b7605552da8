"""Digests of tensors, batches, models, optimisers and random states of any library."""

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
    """Return a whole number of Python, NumPy or PyTorch; None for anything else.

    A bool and a list of one number are not whole numbers.
    """
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
    number = as_whole(value)
    if number is None or number < least:
        msg = f"{name}={value!r} is no whole number of {least} or more"
        raise UsageError(msg)
    return number


def whole_or_none(name: str, value: Any) -> int | None:
    """Return a whole number of any library as Python's; None stays None."""
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


_WORDS = 624  # words of a Mersenne twister


class RandomStates:
    """Digests the global generators of Python, NumPy and PyTorch at each step, without drawing."""

    def __init__(self) -> None:
        # NumPy's generator, its memory, and their digest
        self._told: tuple[Any, bytes, str] | None = None

    def digests(self) -> dict[str, str]:
        """Return a digest of the state of each generator."""
        torch = require("torch", "torch")
        version, words, gauss = random.getstate()
        state_digests = {
            "python": _digest(array("I", words), f"{version} {gauss}".encode()),
            "numpy": self._of_numpy(),
            "torch": _digest(torch.get_rng_state().numpy()),
        }
        if torch.cuda.is_initialized():
            state_digests["cuda"] = _digest(
                *(state.numpy() for state in torch.cuda.get_rng_state_all())
            )
        return state_digests

    def _of_numpy(self) -> str:
        """Return the digest of NumPy's state, cached while the generator's memory is unchanged.

        Notes:
            Reading this state takes longer than reading all others. A normal distribution keeps a
            second number for the next call outside the words; while there is one, the state is read
            each time. The only change that goes unseen is setting a state with such a number but
            the same words.
        """
        # The stubs leave it out.
        generator = np.random.get_bit_generator()  # type: ignore[attr-defined]
        if type(generator) is not np.random.MT19937:  # user code has replaced the generator
            # Transforms draw from the global generator.
            return _digest(repr(np.random.get_state(legacy=False)).encode())  # noqa: NPY002
        memory = ctypes.string_at(generator.ctypes.state_address, 4 * _WORDS + 4)
        if self._told is None or self._told[:2] != (generator, memory):
            state: Any = np.random.get_state(legacy=True)  # noqa: NPY002
            name, keys, place, has_gauss, number = state
            digest = _digest(keys, f"{name} {[place, has_gauss, number]}".encode())
            is_cacheable = not has_gauss and memory == keys.tobytes() + np.int32(place).tobytes()
            self._told = (generator, memory, digest) if is_cacheable else None
            return digest
        return self._told[2]


def _digest(*state: Any) -> str:
    return f"{digest64(b''.join(state)):016x}"


Array = np.ndarray[Any, Any]

_PIECE = 1 << 22  # elements folded at once: each needs 24 bytes on the device
_DEPTH = 32
_LARGE = 1 << 16  # elements from which several threads read a tensor faster than one
ODD = 0x9E3779B97F4A7C15
STEP = 0xC2B2AE3D27D4EB4F
MASK = (1 << 64) - 1
# First character of a digest of tensors on a device, which does not compare with one made in main
# memory.
FOLDED = "f"


def _signed(word: int) -> int:
    return (word & MASK) - (1 << 64 if word & (1 << 63) else 0)


def batch_leaves(
    value: Any, name: str = "", within: tuple[int, ...] = ()
) -> Iterator[tuple[str, Any]]:
    """Yield the leaves of a batch with their names, in an order that depends on the batch alone.

    Args:
        value: tensors, arrays, numbers, texts; in mappings (by sorted name), sequences,
            dataclasses, named tuples, attributes of objects; images of PIL, and other objects with
            an array interface.

    Notes:
        Any other value is a leaf of which only the type is known, and so is a value that contains
        itself.
    """
    # Checked first: nearly every leaf is one.
    if isinstance(value, np.ndarray) or hasattr(value, "untyped_storage"):
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
    contents = _attributes(value)
    if isinstance(contents, Mapping):
        # 1 and "1" are different keys.
        for key in sorted(contents, key=lambda key: (str(key), type(key).__qualname__)):
            yield from batch_leaves(contents[key], f"{name}.{key}", within)
    elif isinstance(contents, Sequence) and not isinstance(contents, str | bytes):
        for i, item in enumerate(contents):
            yield from batch_leaves(item, f"{name}[{i}]", within)
    else:
        yield name, contents


def _attributes(value: Any) -> Any:
    """Return the attributes of a dataclass or another plain object; any other value unchanged."""
    if isinstance(value, type | Mapping | Sequence) or callable(value):
        return value
    if (exposed_array := _exposed_array(value)) is not None:
        return exposed_array
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return getattr(value, "__dict__", None) or value


def _exposed_array(value: Any) -> dict[str, Any] | None:
    """Return the array of an object with an array interface, None for other objects.

    For an image, mode and palette are added: they give the numbers their meaning.
    """
    if isinstance(value, np.generic) or not hasattr(type(value), "__array_interface__"):
        return None
    try:
        palette = value.getpalette() if hasattr(value, "getpalette") else None
        return {
            "pixels": np.asarray(value),
            "mode": getattr(value, "mode", None),
            "palette": bytes(palette or ()),
        }
    # A truncated image, for instance: it fails when the user's code reads it.
    except Exception:  # noqa: BLE001
        return None


class Digest:
    """xxh3_64 over named values in sequence, each framed by name, dtype and shape."""

    def __init__(self) -> None:
        self._hasher = xxhash.xxh3_64()
        # All data from the first device tensor on; the words of such tensors are fetched together.
        self._waiting: list[Any] = []
        self._folded = False
        self.opaque: set[str] = set()  # types whose values are unknown

    def add(self, name: str, value: Any) -> None:
        """Add one value: a tensor, an array, a number, a text, bytes; for others only the type."""
        if isinstance(value, np.ndarray) and not value.dtype.hasobject:
            self._update(name, value.dtype.str, value.shape, np.ascontiguousarray(value))
        elif hasattr(value, "untyped_storage"):
            self.add_tensor(name, value)
        else:
            kind = value if isinstance(value, type) else type(value)
            self._take(f"{name}\0{kind.__qualname__}\0".encode())
            if (plain_bytes := _plain(value)) is not None:
                self._take(plain_bytes)
            elif kind is not value:
                self.opaque.add(kind.__qualname__)

    def add_tensor(self, name: str, tensor: Any) -> None:
        """Add a tensor of any layout, dtype and device; one without values adds only its type."""
        try:
            parts = [
                (
                    part,
                    strided_part,
                    in_memory(strided_part)
                    if in_main_memory(strided_part)
                    else folded(strided_part),
                )
                for part, strided_part in _strided(tensor)
            ]
        except NO_VALUES:
            parts = []
            self._take(f"{name}\0{type(tensor).__qualname__}\0{shape_of(tensor)}\0".encode())
            self.opaque.add(type(tensor).__qualname__)
        for part, part_values, data in parts:
            self._folded = self._folded or not in_main_memory(part_values)
            self._update(f"{name}{part}", str(part_values.dtype), tuple(part_values.shape), data)

    def _update(self, name: str, dtype: str, shape: Sequence[int], data: Any) -> None:
        self._take(f"{name}\0{dtype}\0{','.join(map(str, shape))}\0".encode())
        self._take(data)

    def _take(self, data: Any) -> None:
        if self._waiting or hasattr(data, "untyped_storage"):
            self._waiting.append(data)
        else:
            self._hasher.update(data)

    def text(self) -> str:
        """Return 16 hex digits, after an ``f`` if a tensor was folded on its device."""
        words = _fetch_folded([item for item in self._waiting if hasattr(item, "untyped_storage")])
        for item in self._waiting:
            self._hasher.update(next(words) if hasattr(item, "untyped_storage") else item)
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
    """Return the shape of a tensor or array; () for nested tensors and lazy parameters."""
    try:
        return tuple(map(int, value.shape))
    except (AttributeError, RuntimeError, TypeError, ValueError):
        return ()


def _strided(tensor: Any) -> Iterator[tuple[str, Any]]:
    """Yield the parts of a tensor as plain tensors of values.

    Raises:
        NotImplementedError, TypeError, RuntimeError, ValueError, AttributeError: the tensor has no
            values, or they cannot be read.
    """
    if is_simple(tensor):
        yield "", tensor.detach()
        return
    tensor = tensor.detach()
    if hasattr(tensor, "to_local"):  # the local part of a distributed tensor
        tensor = tensor.to_local()
    if tensor.device.type == "meta":
        msg = "a meta tensor has no values"
        raise NotImplementedError(msg)
    for part, piece in _pieces(tensor):
        if piece is tensor:
            yield part, piece
        else:
            yield from ((part + suffix, strided_part) for suffix, strided_part in _strided(piece))


def is_simple(tensor: Any) -> bool:
    """Return whether a tensor is plain, as nearly all are.

    Takes a tenth of the time of looking for the parts of others.
    """
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
    """Return the parts of a tensor; the only part of a plain tensor is itself."""
    layout = str(tensor.layout)
    if tensor.is_nested:
        return [(f"[{i}]", element) for i, element in enumerate(tensor.unbind())]
    if hasattr(tensor, "__tensor_flatten__"):  # a tensor subclass around plain tensors
        return [(f".{name}", getattr(tensor, name)) for name in tensor.__tensor_flatten__()[0]]
    if tensor.is_quantized:
        # dequantized: includes scale and zero point
        return [(".integers", tensor.int_repr()), (".values", tensor.dequantize())]
    if layout in {"torch.strided", "torch._mkldnn"}:
        return [("", tensor if layout == "torch.strided" else tensor.to_dense())]
    sparse = (
        tensor.coalesce() if layout == "torch.sparse_coo" else tensor.to_sparse_coo().coalesce()
    )
    return [(".indices", sparse.indices()), (".values", sparse.values())]


def in_main_memory(tensor: Any) -> bool:
    """Return whether a tensor is in main memory."""
    return bool(tensor.device.type == "cpu")


def in_memory(tensor: Any) -> Array:
    """Return a tensor in main memory as a C-contiguous array; copied only if not contiguous."""
    try:
        return np.ascontiguousarray(tensor.numpy())
    except (TypeError, RuntimeError):  # a dtype that NumPy lacks, or a conjugate view
        torch = require("torch", "torch")
        plain = tensor.resolve_conj().resolve_neg().contiguous()
        octets: Array = plain.reshape(-1).view(torch.uint8).numpy()
        return octets.reshape(*plain.shape, plain.element_size())


def folded(tensor: Any) -> Any:
    """Return 64 bits of a tensor as one number on its device.

    Notes:
        The sum of the tensor's words, each times an odd number that depends on its position.
        Integer sums modulo 2**64 are equal in every run, whatever the order of additions. One
        changed word always changes the sum. Words have at most four bytes: eight-byte words would
        lose their signs in pairs (2**63 times two odd numbers), and the conversion to int64 would
        not copy them before they are changed in place. Nothing waits for the device; `fold` fetches
        the number.
    """
    torch = require("torch", "torch")
    plain = tensor.detach().resolve_conj().resolve_neg().reshape(-1).contiguous()
    if plain.is_complex():
        plain = torch.view_as_real(plain).reshape(-1)
    kinds = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int32}
    words = plain.view(kinds[plain.element_size()])
    total = torch.zeros((), dtype=torch.int64, device=words.device)
    for offset in range(0, words.numel(), _PIECE):
        piece = words[offset : offset + _PIECE].to(torch.int64)
        place = torch.arange(offset, offset + len(piece), device=words.device)
        place.mul_(_signed(STEP)).bitwise_or_(1)
        total += piece.mul_(place).sum()
    return total


def fold(tensor: Any) -> int:
    """Return 64 bits of a tensor (`folded`); waits for its device."""
    return int.from_bytes(next(_fetch_folded([folded(tensor)])), "little")


def _fetch_folded(totals: Sequence[Any]) -> Iterator[bytes]:
    """Yield the folded words of tensors, fetched together: each fetch waits for the device."""
    if totals:
        together = require("torch", "torch").stack([total.to(totals[0].device) for total in totals])
        yield from ((word * ODD & MASK).to_bytes(8, "little") for word in together.tolist())


# ------------------------------------------------------------------------------ model and optimiser


def named_weights(model: Any) -> list[tuple[str, Any]]:
    """Return parameters and buffers by name, without the prefixes of DDP and `torch.compile`."""
    named_tensors = [*model.named_parameters(), *model.named_buffers()]
    return [
        (name.replace("_orig_mod.", "").removeprefix("module."), value)
        for name, value in named_tensors
    ]


def digest_tensors(tensors: Iterable[tuple[str, Any]]) -> str:
    """Return the digest of named tensors, in the order given."""
    digest = Digest()
    for name, tensor in tensors:
        digest.add_tensor(name, tensor)
    return digest.text()


def digest_each(tensors: Iterable[tuple[str, Any]]) -> dict[str, str]:
    """Return the digest of each tensor by name."""
    return {name: digest_tensors([("", tensor)]) for name, tensor in tensors}


def parameters_of(optimizer: Any) -> list[Any]:
    """Return the parameters of an optimiser, in its order."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def gradients_of(optimizer: Any) -> list[tuple[str, Any]]:
    """Return the gradients that exist, named by their positions in the optimiser's parameters."""
    return [(str(i), p.grad) for i, p in enumerate(parameters_of(optimizer)) if p.grad is not None]


def digest_state(optimizer: Any) -> str:
    """Return the digest of an optimiser's state."""
    digest = Digest()
    for i, parameter in enumerate(parameters_of(optimizer)):
        for name, value in batch_leaves(optimizer.state.get(parameter, {})):
            digest.add(f"{i}{name}", value)
    return digest.text()


def _is_of_rows(tensor: Any) -> bool:
    """Return whether rows follow one another in memory, or share it (`channels_last` counts)."""
    strides = tensor.stride()
    return len(strides) > 1 and strides[0] in {0, max(strides)}


def norm(tensors: Sequence[Any]) -> float:
    """Return the 2-norm over tensors, as `torch.nn.utils.clip_grad_norm_` up to rounding.

    Notes:
        Also works for float8. Large tensors in main memory are reduced row by row: PyTorch spreads
        the rows over its threads, each close to the memory that it wrote, while a whole tensor is
        read by one thread. One thread reduces a row, so the number of threads does not change the
        result.
    """
    torch = _torch()
    plain = []
    for tensor in tensors:
        if is_simple(tensor):
            plain.append(tensor)
        else:
            plain += [
                part_values
                for part, part_values in _strided(tensor)
                if not part.endswith(_NOT_SUMMED)
            ]
    plain = [
        part_values.float()
        if part_values.is_floating_point() and part_values.element_size() == 1
        else part_values
        for part_values in plain
    ]
    if not plain:
        return 0.0
    in_rows = [
        values.numel() >= _LARGE and _is_of_rows(values) and in_main_memory(values)
        for values in plain
    ]
    with torch.no_grad():
        large = itertools.compress(plain, in_rows)
        norms = [
            torch.linalg.vector_norm(values, dim=tuple(range(1, values.dim()))) for values in large
        ]
        small_tensors = [
            values for values, by_rows in zip(plain, in_rows, strict=True) if not by_rows
        ]
        if small_tensors:  # _foreach_norm takes twice as long on large tensors in main memory
            norms += [values.reshape(1) for values in torch._foreach_norm(small_tensors)]  # noqa: SLF001
        if len({values.device for values in norms}) > 1:
            norms = [values.to(norms[0].device) for values in norms]
        return float(torch.linalg.vector_norm(torch.cat(norms)))


_WIDE = 4096  # bytes of a row; for wider ones xxh3 is faster than a sum of words
_SIGNS = 512  # bytes of a row of float32, up to which `_sums` mixes the signs, too
_ROWS = 1024  # limit of wide rows: digesting one takes 0.3 us
_TURN = 0x165667B19E3779F9


def digest_batch(batch: Any, samples: int | None = None) -> tuple[Digest, int | None]:
    """Return the digest of a batch, and a number for its samples that ignores their order.

    Args:
        batch: as for `batch_leaves`.
        samples: their number; a tensor of that length along the first axis has a row for each.

    Returns:
        The digest; the sum of a number for each sample modulo 2**64, or None if it would leave out
        values: of a tensor or array without a row for each sample, or on a device.

    Notes:
        Numbers and texts count for each sample of their batch, since nothing assigns them to one.
        If the same samples come in another order, two sums are therefore equal only if the other
        values of their batches are equal, too.
    """
    digest = Digest()
    rows = None
    complete = True
    batch_values: list[tuple[str, Any]] = []
    for place, (name, value) in enumerate(batch_leaves(batch)):
        array = None if samples is None else _in_rows(value, samples)
        if array is None:
            digest.add(name, value)
            if _has_values(value):
                complete = False
            else:
                batch_values.append((name, value))
            continue
        wide_rows = array.nbytes > _WIDE * len(array)
        row_digests = digests64(array.reshape(len(array), -1)) if wide_rows else _sums(array)
        digest.add(
            f"{name} {value.dtype} {tuple(value.shape)}", row_digests if wide_rows else array
        )
        weighted = row_digests * np.uint64((_TURN * (2 * place + 1)) & MASK)
        rows = weighted if rows is None else rows ^ weighted
    if rows is None or not complete:
        return digest, None
    if batch_values:
        rest_digest = Digest()
        for name, value in batch_values:
            rest_digest.add(name, value)
        rows = rows ^ np.uint64(int(rest_digest.text()[-16:], 16))
    mixed = (rows ^ (rows >> np.uint64(29))) * np.uint64(ODD)
    return digest, int(mixed.sum(dtype=np.uint64))


def _in_rows(value: Any, samples: int) -> Array | None:
    """Return a value as an array with one row per sample; None if it has none or is on a device."""
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
    """Return whether a tensor or array holds more than one number."""
    shape = shape_of(value)
    if isinstance(value, np.ndarray):
        return bool(shape) and bool(value.nbytes)
    return (
        hasattr(value, "untyped_storage")
        and 0 not in shape
        and (bool(shape) or not _is_plain(value))
    )


def _is_plain(tensor: Any) -> bool:
    """Return whether a tensor is strided, in main memory, and not a subclass with parts."""
    of_its_own = any(hasattr(tensor, name) for name in ("to_local", "__tensor_flatten__"))
    is_strided = str(tensor.layout) == "torch.strided" and not (
        tensor.is_nested or tensor.is_quantized or of_its_own
    )
    return is_strided and in_main_memory(tensor)


def _many(array: Array) -> bool:
    return len(array) > _ROWS and array.nbytes > _WIDE * len(array)


def _sums(array: Array) -> Array:
    """Return a number for each row, uint64 (rows): the sum of its words times odd weights.

    Notes:
        Without mixing, the highest bits of two words cancel out (2**63 times two odd numbers): the
        signs of float64 (half a turn about an axis flips two of each point) and every second sign
        of float32 (in a long row, few flip alone).
    """
    octets = array.reshape(len(array), -1).view(np.uint8)
    width = octets.shape[1]
    weights = _weights(-(-width // 8))
    full_words = width // 8
    words = octets[:, : 8 * full_words].view(np.uint64)
    if array.dtype.kind in "fc" and (array.itemsize > 4 or width <= _SIGNS):
        words = words ^ (words >> np.uint64(29))
    # Equals words @ weights, in half the time.
    sums: Array = np.einsum("ij,j->i", words, weights[:full_words])
    if width % 8:
        tail_word = np.zeros((len(array), 8), np.uint8)
        tail_word[:, : width % 8] = octets[:, 8 * full_words :]
        sums = sums + tail_word.view(np.uint64)[:, 0] * weights[full_words]
    return sums


@functools.cache
def _weights(count: int) -> Array:
    words = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(ODD)
    words = (words ^ (words >> np.uint64(31))) * np.uint64(STEP)
    return (words ^ (words >> np.uint64(29))) | np.uint64(1)
