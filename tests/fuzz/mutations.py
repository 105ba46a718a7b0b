"""Inputs that are nearly right: values of every kind in every field, and damaged bytes.
Everything comes from a seed.
"""

import json
import os
import random
from typing import Any

CASES = int(os.environ.get("FUZZ_CASES", "1000"))
"""The number of inputs per format; set more by `FUZZ_CASES=30000`."""

ODD: list[Any] = [
    None, True, False, 0, 1, 2, -1, 3.7, 3.0, 1e308, -0.0, 2**31, 2**53 + 1, 2**63 - 1, 2**63, -(2**63) - 1,
    10**40, "", " ", "0", "3.7", "true",
    "nan", "inf", "1_000", "١", "2024-03-01T12:00:00Z", "2024-03-01T12:00:00", "2024-03-01",
    "9999-12-31T23:59:59.999999Z", "0001-01-01T00:00:00+14:00",
    "ä💥", "\x00", "\u2028", 'a"b', "a,b", "x" * 300, [], [1], [1.5], [None], ["x"], [[1]], {}, {"lat": 1},
    {"lat": "x"}, {"lat": None},
    {"lat": 1, "name": 5}, {"lat": 1.5, "name": "y"}, {"x": {"y": {}}},
]  # fmt: skip


def change(rng: random.Random, good: dict[str, Any]) -> dict[str, Any]:
    """An object with up to two fields changed, removed or added."""
    made = dict(good)
    for _ in range(rng.randrange(3)):
        name = rng.choice([*good, "unknown"])
        if rng.random() < 0.25:
            made.pop(name, None)
        else:
            made[name] = rng.choice(ODD)
    return made


def damage(rng: random.Random, data: bytes, share: float = 0.15) -> bytes:
    """The data, sometimes with bytes flipped, removed, repeated or inserted."""
    if rng.random() >= share or not data:
        return data
    at, length = rng.randrange(len(data)), rng.randrange(1, 9)
    how = rng.randrange(5)
    if how == 0:
        return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]
    if how == 1:
        return data[:at] + data[at + length :]
    if how == 2:
        return data[: at + length] + data[at:]
    if how == 3:
        return data[:at]
    return data[:at] + rng.randbytes(length) + data[at:]


def text_of(value: Any) -> bytes:
    """JSON, in which NaN is written as Python writes it."""
    return json.dumps(value, ensure_ascii=False).encode(errors="replace")
