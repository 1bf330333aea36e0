"""Which partition a key belongs to: the same one in every process, on every platform, in every version."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from workbench.errors import InvalidKey

_Hashes = npt.NDArray[np.uint64]

_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_BASE = 0x9E3779B97F4A7C15
_BASE_INVERSE = pow(_BASE, -1, 2**64)
_STRINGS_AT_ONCE = 1 << 16
_MOST_PARTITIONS = 2**31 - 1


def partition_of(column: pa.Array | pa.ChunkedArray, partitions: int, name: str = "key") -> npt.NDArray[np.int32]:
    """The partition, 0 to `partitions` - 1, of every key in `column`; nulls go to partition 0.

    Keys that are equal go to the same partition whatever their width, unit or encoding: int8 7 as uint64 7, float32 as
    float64, 0.0 as -0.0, timestamps of any unit, decimals of any scale, dictionaries as their values. Keys of
    different kinds (1, 1.0, "1") need not meet. Raises `InvalidKey` for nested types, naming the column.
    """
    if partitions == 1 or pa.types.is_null(column.type):
        return np.zeros(len(column), dtype=np.int32)
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
        if isinstance(column, pa.ChunkedArray):
            parts = [partition_of(chunk, partitions, name) for chunk in column.chunks]
            return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int32)
    if pa.types.is_dictionary(column.type):
        of_values = partition_of(column.dictionary, partitions, name)
        return _taken(of_values, column.indices)
    if _is_text(column.type) or pa.types.is_decimal(column.type):
        encoded = column.dictionary_encode()
        if _is_text(column.type):
            hashes = _of_text(encoded.dictionary)
        else:
            hashes = _of_text(pa.array([_plain(value) for value in encoded.dictionary.to_pylist()], pa.string()))
        return _taken(_placed(hashes, partitions), encoded.indices)
    valid = None
    if column.null_count:
        valid = np.asarray(column.is_valid())
    placed = _placed(_of_numbers(column, name), partitions)
    return placed if valid is None else np.where(valid, placed, np.int32(0))


def _is_text(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_string_view(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_binary_view(kind)
        or pa.types.is_fixed_size_binary(kind)
    )


def _taken(of_values: npt.NDArray[np.int32], indices: pa.Array) -> npt.NDArray[np.int32]:
    if not len(of_values):
        return np.zeros(len(indices), dtype=np.int32)
    if indices.null_count:
        valid = np.asarray(indices.is_valid())
        return np.where(valid, of_values[np.asarray(indices.fill_null(0))], np.int32(0))
    taken: npt.NDArray[np.int32] = of_values[np.asarray(indices)]
    return taken


def _placed(hashes: _Hashes, partitions: int) -> npt.NDArray[np.int32]:
    return (hashes % np.uint64(partitions)).astype(np.int32)


def _of_numbers(column: pa.Array, name: str) -> _Hashes:
    kind = column.type
    if pa.types.is_boolean(kind):
        return _mixed(np.asarray(column.cast(pa.uint8()).fill_null(0)).astype(np.uint64))
    if pa.types.is_integer(kind):
        values = np.asarray(column.fill_null(0))
        # Two's complement: a negative number is the same 64 bits whatever width it came in.
        return _mixed(values.astype(np.int64).view(np.uint64) if values.dtype.kind == "i" else values.astype(np.uint64))
    if pa.types.is_floating(kind):
        floats = np.asarray(column.fill_null(0)).astype(np.float64)
        floats = np.where(np.isnan(floats), np.float64("nan"), floats + 0.0)
        return _mixed(floats.view(np.uint64))
    if pa.types.is_date(kind):
        days = np.asarray(column.cast(pa.date32()).cast(pa.int32()).fill_null(0))
        return _mixed(days.astype(np.int64).view(np.uint64))
    if pa.types.is_timestamp(kind) or pa.types.is_duration(kind) or pa.types.is_time(kind):
        per_second = _PER_SECOND[kind.unit]
        ticks = np.asarray(column.cast(pa.int32() if kind.bit_width == 32 else pa.int64()).fill_null(0))
        seconds = np.floor_divide(ticks.astype(np.int64), per_second)
        nanoseconds = (ticks - seconds * per_second) * (1_000_000_000 // per_second)
        return _mixed(_mixed(seconds.view(np.uint64)) + nanoseconds.astype(np.uint64))
    raise InvalidKey.wrong_type(name, str(kind))


def _mixed(values: _Hashes) -> _Hashes:
    """Spread 64 bits over 64 bits (a bijection: two rounds of shift, xor and multiply, as in SplitMix64)."""
    mixed = values + np.uint64(_BASE)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def _of_text(values: pa.Array) -> _Hashes:
    """Hash every string of `values` at once: a polynomial in its bytes, modulo 2^64, then mixed with its length.

    With C the running sum of byte[i] · B^i over the whole buffer, the polynomial of bytes a to b is
    (C[b] - C[a]) · B^-a, so no string needs a loop of its own.
    """
    values = values.cast(pa.binary()) if not pa.types.is_large_binary(values.type) else values
    parts = [
        _of_some_text(values.slice(start, _STRINGS_AT_ONCE).cast(pa.large_binary()))
        for start in range(0, len(values), _STRINGS_AT_ONCE)
    ]
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.uint64)


def _of_some_text(values: pa.Array) -> _Hashes:
    offsets = np.frombuffer(values.buffers()[1], dtype=np.int64)[values.offset : values.offset + len(values) + 1]
    first, last = int(offsets[0]), int(offsets[-1])
    starts, ends = offsets[:-1] - first, offsets[1:] - first
    data = values.buffers()[2]
    length = last - first
    content = np.zeros(0, dtype=np.uint8) if data is None else np.frombuffer(data, np.uint8, length, first)
    powers = _powers(_BASE, length)
    sums = np.zeros(length + 1, dtype=np.uint64)
    # Bytes count from 1, so that trailing zero bytes count too.
    np.cumsum((content.astype(np.uint64) + np.uint64(1)) * powers, out=sums[1:])
    inverses = _powers(_BASE_INVERSE, length + 1)
    polynomials = (sums[ends] - sums[starts]) * inverses[starts]
    return _mixed(polynomials ^ _mixed((ends - starts).astype(np.uint64)))


def _powers(base: int, count: int) -> _Hashes:
    factors = np.full(count, np.uint64(base))
    factors[:1] = 1
    return np.cumprod(factors)


def _plain(value: Decimal | None) -> str | None:
    if value is None:
        return None
    # Not normalize(): that rounds to the context's 28 digits, and a decimal256 has 76.
    text = format(value, "f")
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text in ("", "-0") else text


def partition_of_keys(
    columns: Sequence[pa.Array | pa.ChunkedArray], partitions: int, names: Sequence[str]
) -> npt.NDArray[np.int32]:
    """The partition of every combination of keys; for one column the same as `partition_of`."""
    if len(columns) == 1:
        return partition_of(columns[0], partitions, names[0])
    combined = np.zeros(len(columns[0]), dtype=np.uint64)
    for column, name in zip(columns, names, strict=True):
        combined = _mixed(combined) + partition_of(column, _MOST_PARTITIONS, name).astype(np.uint64)
    return _placed(_mixed(combined), partitions)
