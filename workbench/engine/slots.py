"""Group keys for tasks, chosen so that Spark's hash partitioning spreads the tasks evenly over the containers."""

from __future__ import annotations

_SEED = 42
_C1, _C2, _MASK = 0xCC9E2D51, 0x1B873593, 0xFFFFFFFF


def slots(tasks: int, containers: int) -> list[int]:
    """One distinct group key for each task; task *i* lands in container *i* mod `containers`.

    Spark places the group of an int key in partition `murmur3(key) mod containers`, so the keys are searched, not computed.
    """
    wanted: list[list[int]] = [[] for _ in range(containers)]
    for task in range(tasks):
        wanted[task % containers].append(task)
    chosen = [0] * tasks
    open_tasks, key = tasks, 0
    while open_tasks:
        queue = wanted[container_of(key, containers)]
        if queue:
            chosen[queue.pop(0)] = key
            open_tasks -= 1
        key += 1
    return chosen


def container_of(key: int, containers: int) -> int:
    """The shuffle partition in which Spark puts an int key: Murmur3 (x86, 32 bit, seed 42), non-negative modulo."""
    signed = _murmur3(key)
    return signed % containers


def _murmur3(key: int) -> int:
    mixed = (key * _C1) & _MASK
    mixed = _rotated(mixed, 15)
    mixed = (mixed * _C2) & _MASK
    hashed = _rotated(_SEED ^ mixed, 13)
    hashed = (hashed * 5 + 0xE6546B64) & _MASK
    hashed ^= 4  # the length of the key in bytes
    hashed ^= hashed >> 16
    hashed = (hashed * 0x85EBCA6B) & _MASK
    hashed ^= hashed >> 13
    hashed = (hashed * 0xC2B2AE35) & _MASK
    hashed ^= hashed >> 16
    return hashed - (1 << 32) if hashed & (1 << 31) else hashed


def _rotated(value: int, by: int) -> int:
    return ((value << by) | (value >> (32 - by))) & _MASK
