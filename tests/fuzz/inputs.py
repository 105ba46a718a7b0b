"""Mutated inputs by seed: FUZZ_CASES is their number (a few hundred by default, for CI),
FUZZ_SEED the first seed.
"""

import os
import random
from collections.abc import Callable, Iterator

CASES = int(os.environ.get("FUZZ_CASES", "300"))
SEED = int(os.environ.get("FUZZ_SEED", "1"))
EDGES = [
    b"",
    b"\0",
    b"\xff",
    b"\x80" * 12,
    b"\xff" * 12 + b"\x01",
    b"\0\0\0\0\1",
    b"{",
    b"{}",
    b"null",
    b"[" * 2_000,
    b'"',
    b"\xed\xa0\x80",
    b"NaN",
    b"1e999",
]


def mutate(chance: random.Random, samples: list[bytes]) -> bytes:
    """One of the samples after a few changes, or an edge case."""
    if chance.random() < 0.1:
        return chance.choice(EDGES)
    data = bytearray(chance.choice(samples))
    for _ in range(chance.randint(0, 4)):
        _CHANGES[chance.randrange(len(_CHANGES))](chance, data)
    return bytes(data)


def batches(samples: list[bytes], size: int = 50) -> Iterator[tuple[int, list[bytes]]]:
    """Mutated inputs in batches, each with the seed that reproduces it."""
    for number in range(max(1, CASES // size)):
        chance = random.Random(SEED * 1_000_003 + number)
        yield SEED * 1_000_003 + number, [mutate(chance, samples) for _ in range(size)]


def _flip(chance: random.Random, data: bytearray) -> None:
    if data:
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)


def _cut(chance: random.Random, data: bytearray) -> None:
    del data[chance.randint(0, len(data)) :]


def _insert(chance: random.Random, data: bytearray) -> None:
    at = chance.randint(0, len(data))
    data[at:at] = chance.choice(EDGES)


def _repeat(chance: random.Random, data: bytearray) -> None:
    start, stop = sorted((chance.randint(0, len(data)), chance.randint(0, len(data))))
    data[stop:stop] = data[start:stop] * chance.randint(1, 5)


_CHANGES: list[Callable[[random.Random, bytearray], None]] = [_flip, _flip, _cut, _insert, _repeat]
