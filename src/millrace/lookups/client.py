"""The calls themselves: how long, how often, how many at once, and when not at all."""

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
"""How many times as long as at first it may take until the next retry."""


@dataclass(frozen=True)
class FailedLookup:
    """A key that could not be answered, and why."""

    reason: str
    is_refused: bool = False
    """Whether nobody was asked, because too many had failed before."""


class CircuitBreaker:
    """Counts keys that failed in a row, and refuses to ask for a while when there are too many."""

    def __init__(self, max_failures: int, reset: float, clock: Callable[[], float]) -> None:
        """`reset`: seconds by the `clock`."""
        self._max_failures, self._reset, self._clock = max_failures, reset, clock
        self._failures = 0
        self._closed_at: float | None = None
        self._is_probing = False

    @property
    def is_open(self) -> bool:
        """Whether nobody is asked now."""
        return self._closed_at is not None

    def allow_call(self) -> bool:
        """Whether one more key may be asked; once the time is over, a single one, which decides."""
        if self._closed_at is None:
            return True
        if self._is_probing or self._clock() < self._closed_at:
            return False
        self._is_probing = True
        return True

    def record_result(self, *, is_answered: bool) -> None:
        """What came of a key that was let through."""
        self._is_probing = False
        self._failures = 0 if is_answered else self._failures + 1
        if is_answered:
            self._closed_at = None
        elif self._failures >= self._max_failures:
            self._closed_at = self._clock() + self._reset


class LookupClient:
    """Asks for the keys of one lookup, in the loop of this process."""

    def __init__(self, lookup: LookupSpec, check: Callable[[Any], Any]) -> None:
        """`check` makes an answer of what the function returned, or raises."""
        self._lookup, self._check = lookup, check
        self._loop = _event_loop(os.getpid())
        self.breaker = CircuitBreaker(lookup.breaker, lookup.breaker_reset / 1000, self._loop.time)

    def ask(self, keys: Sequence[Key]) -> list[Any]:
        """An answer, None or `Failed` for each key, in their order."""
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
        """One key, tried again where it fails, later and later."""
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
    """What an asynchronous function answers. Nothing that it raises ends the loop, for which all others would wait for ever."""
    try:
        return await fn(*key)
    except (Exception, asyncio.CancelledError, GeneratorExit):
        raise
    except BaseException as error:
        raise to_ordinary_error(error) from error


def _run_in_thread(loop: asyncio.AbstractEventLoop, fn: Callable[..., Any], key: Key) -> asyncio.Future[Any]:
    """A plain function in a thread of its own, which is left behind if it never returns, and does not keep the process alive."""
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
    """The loop of this process, which lives as long, so that functions may keep their connections."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True, name="millrace-lookups").start()
    return loop
