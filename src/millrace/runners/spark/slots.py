"""Grouping keys that Spark's own hash spreads evenly over the shuffle partitions."""

_WORD = 0xFFFFFFFF


def make_slot_labels(slots: int, partitions: int) -> tuple[int, ...]:
    """For each slot a label; slot `i` lands in partition `i % partitions`, so that no task gets more slots than another."""
    found: dict[int, int] = {}
    waiting = {
        remainder: [slot for slot in range(slots) if slot % partitions == remainder]
        for remainder in range(partitions)
    }
    label = 0
    while len(found) < slots:
        slot = next(iter(waiting[murmur3(label) % partitions]), None)
        if slot is not None:
            waiting[slot % partitions].pop(0)
            found[slot] = label
        label += 1
    return tuple(found[slot] for slot in range(slots))


def murmur3(value: int, seed: int = 42) -> int:
    """Spark's hash of an `int` column, by which it shuffles (mod the number of partitions, never negative)."""
    k = _rotate(((value & _WORD) * 0xCC9E2D51) & _WORD, 15) * 0x1B873593 & _WORD
    h = (_rotate(seed ^ k, 13) * 5 + 0xE6546B64) & _WORD
    h ^= 4
    h = ((h ^ h >> 16) * 0x85EBCA6B) & _WORD
    h = ((h ^ h >> 13) * 0xC2B2AE35) & _WORD
    h ^= h >> 16
    return h - (1 << 32) if h >> 31 else h


def _rotate(word: int, bits: int) -> int:
    return (word << bits | word >> (32 - bits)) & _WORD
