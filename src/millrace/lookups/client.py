"""Calls of a lookup function, with timeout, retries, a limit of concurrency and a circuit breaker.

Each process that reads has one event loop, in a thread, which lives as long as the process. So functions may
keep their connections. A key is tried up to `retries + 1` times, with a delay that doubles from `backoff` to
32 times that. After `breaker` keys in a row have failed, the circuit breaker is open: for `breaker_reset` no
key is asked. Then one key is tried, and its result closes the breaker or keeps it open. With `breaker=2`,
`breaker_reset="30s"`:

    t=0 s  key a fails      t=1 s  key b fails: open until t=31 s
    t=5 s  key c            refused without a call
    t=31 s key d            tried; if it is answered, the breaker is closed
"""

from __future__ import annotations

import asyncio
import os
import random
import threading
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from millrace.lookups.settings import LookupSpec
from millrace.values.calls import describe_error, to_ordinary_error

Key = tuple[Any, ...]
MAX_BACKOFF_FACTOR = 32
"""The greatest delay before a retry, as a multiple of the first."""


@dataclass(frozen=True)
class FailedLookup:
    """The result for a key whose calls failed."""

    reason: str
    is_refused: bool = False
    """Whether the open circuit breaker prevented the call."""


class CircuitBreaker:
    """Counts failures in a row, and refuses calls for a while after too many."""

    def __init__(self, max_failures: int, reset: float, clock: Callable[[], float]) -> None:
        """`reset` is in seconds of the `clock`."""
        self._max_failures, self._reset, self._clock = max_failures, reset, clock
        self._failures = 0
        self._open_until: float | None = None
        self._is_probing = False

    @property
    def is_open(self) -> bool:
        """Whether calls are refused."""
        return self._open_until is not None

    def allow_call(self) -> bool:
        """Whether a key may be asked. After the reset time a single key may, and its result decides."""
        if self._open_until is None:
            return True
        if self._is_probing or self._clock() < self._open_until:
            return False
        self._is_probing = True
        return True

    def record_result(self, *, is_answered: bool) -> None:
        """Counts the result of a key for which `allow_call` was true."""
        self._is_probing = False
        self._failures = 0 if is_answered else self._failures + 1
        if is_answered:
            self._open_until = None
        elif self._failures >= self._max_failures:
            self._open_until = self._clock() + self._reset


class LookupClient:
    """Calls the function of one lookup, in the event loop of this process."""

    def __init__(self, lookup: LookupSpec, check: Callable[[Any], Any]) -> None:
        """`check` converts what the function returned to an answer, or raises."""
        self._lookup, self._check = lookup, check
        self._loop = _event_loop(os.getpid())
        self.breaker = CircuitBreaker(lookup.breaker, lookup.breaker_reset / 1000, self._loop.time)

    def ask(self, keys: Sequence[Key]) -> list[Any]:
        """An answer, None or `FailedLookup` for each key, in their order."""
        pending = asyncio.run_coroutine_threadsafe(self._ask_all(keys), self._loop)
        try:
            return pending.result()
        except BaseException:
            pending.cancel()
            raise

    async def _ask_all(self, keys: Sequence[Key]) -> list[Any]:
        permits = asyncio.Semaphore(self._lookup.concurrency)

        async def ask_one(key: Key) -> Any:
            async with permits:
                if not self.breaker.allow_call():
                    return FailedLookup(
                        f"not asked: {self._lookup.breaker} keys in a row had failed", is_refused=True
                    )
                answer = await self._ask_with_retries(key)
                self.breaker.record_result(is_answered=not isinstance(answer, FailedLookup))
                return answer

        return list(await asyncio.gather(*map(ask_one, keys)))

    async def _ask_with_retries(self, key: Key) -> Any:
        """Calls the function until it answers or the retries are used up."""
        failure = FailedLookup("")
        for attempt in range(self._lookup.retries + 1):
            if attempt:
                backoff = self._lookup.backoff / 1000 * min(2 ** (attempt - 1), MAX_BACKOFF_FACTOR)
                await asyncio.sleep(backoff * random.uniform(0.5, 1))  # noqa: S311 - so that many do not come back at the same moment
            try:
                return self._check(await asyncio.wait_for(self._call(key), self._lookup.timeout / 1000))
            except TimeoutError as error:
                failure = FailedLookup(str(error) or f"no answer within {self._lookup.timeout} ms")
            except Exception as error:  # noqa: BLE001 - whatever the function raises, it is no answer
                failure = FailedLookup(describe_error(error).partition("\n")[0])
        return failure

    def _call(self, key: Key) -> Awaitable[Any]:
        if self._lookup.is_async:
            return _await_answer(self._lookup.fn, key)
        return _run_in_thread(self._loop, self._lookup.fn, key)


async def _await_answer(fn: Callable[..., Any], key: Key) -> Any:
    """Awaits the function. Errors that would end the event loop,
    and so block all other keys, become ordinary ones.
    """
    try:
        return await fn(*key)
    except (Exception, asyncio.CancelledError, GeneratorExit):
        raise
    except BaseException as error:
        raise to_ordinary_error(error) from error


def _run_in_thread(loop: asyncio.AbstractEventLoop, fn: Callable[..., Any], key: Key) -> asyncio.Future[Any]:
    """Runs a plain function in a daemon thread.
    One that never returns neither blocks others nor keeps the process alive.
    """
    future: asyncio.Future[Any] = loop.create_future()

    def settle(answer: Any, error: Exception | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(answer)
        else:
            future.set_exception(error)

    def run() -> None:
        try:
            answer, error = fn(*key), None
        except Exception as raised:  # noqa: BLE001 - it is raised where it is awaited
            answer, error = None, raised
        except BaseException as raised:  # noqa: BLE001 - the thread would end without an answer
            answer, error = None, to_ordinary_error(raised)
        loop.call_soon_threadsafe(settle, answer, error)

    threading.Thread(target=run, daemon=True, name="millrace-lookup").start()
    return future


@lru_cache(maxsize=1)
def _event_loop(process: int) -> asyncio.AbstractEventLoop:  # noqa: ARG001 - a forked process needs one of its own
    """The event loop of this process, started with its first lookup."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True, name="millrace-lookups").start()
    return loop
