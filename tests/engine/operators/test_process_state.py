"""The state of a key as bytes and back, and what time takes away of it."""

import pytest

from millrace.engine.operators.process_state import dump, expires_at, load, trim
from millrace.state import NO_EXPIRY, KeyState


def some_state() -> KeyState:
    values = {
        "one": (5, 200),
        "list": [("a", 100), ("b", NO_EXPIRY)],
        "map": {1: ("x", 100), "two": ("y", 300)},
    }
    return KeyState(values, {"timer": 400}, {"clock": 500}, 50)


def test_state_comes_back_from_bytes_as_it_was() -> None:
    assert load(dump(some_state())) == some_state()


def test_state_of_another_version_is_refused() -> None:
    data = bytearray(dump(KeyState()))
    data[1] = 9
    with pytest.raises(ValueError, match="version 9"):
        load(bytes(data))


def test_what_is_too_old_is_forgotten() -> None:
    state = some_state()
    state.last_time = 250
    trim(state)
    assert state.values == {"list": [("b", NO_EXPIRY)], "map": {"two": ("y", 300)}}


def test_state_ends_with_the_last_of_its_values_and_not_while_a_timer_waits() -> None:
    assert expires_at(some_state()) == NO_EXPIRY
    assert expires_at(KeyState({"one": (5, 200), "map": {1: ("x", 300)}}, {}, {}, 50)) == 300
    assert expires_at(KeyState({}, {}, {}, 50)) == 51
