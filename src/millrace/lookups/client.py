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

from millrace.lookups.settings import Lookup
from millrace.values.calls import ended, told

Key = tuple[Any, ...]
LONGEST = 32
"""How many times as long as at first it may take until the next retry."""


@dataclass(frozen=True)
class Failed:
    """A key that could not be answered, and why."""

    reason: str
    refused: bool = False
    """Whether nobody was asked, because too many had failed before."""


class Breaker:
    """Counts keys that failed in a row, and refuses to ask for a while when there are too many."""

    def __init__(self, most: int, reset: float, clock: Callable[[], float]) -> None:
        """`reset`: seconds by the `clock`."""
        self._most, self._reset, self._clock = most, reset, clock
        self._failed = 0
        self._until: float | None = None
        self._trying = False

    @property
    def open(self) -> bool:
        """Whether nobody is asked now."""
        return self._until is not None

    def lets_through(self) -> bool:
        """Whether one more key may be asked; once the time is over, a single one, which decides."""
        if self._until is None:
            return True
        if self._trying or self._clock() < self._until:
            return False
        self._trying = True
        return True

    def told(self, *, answered: bool) -> None:
        """What came of a key that was let through."""
        self._trying = False
        self._failed = 0 if answered else self._failed + 1
        if answered:
            self._until = None
        elif self._failed >= self._most:
            self._until = self._clock() + self._reset


class Asker:
    """Asks for the keys of one lookup, in the loop of this process."""

    def __init__(self, lookup: Lookup, check: Callable[[Any], Any]) -> None:
        """`check` makes an answer of what the function returned, or raises."""
        self._lookup, self._check = lookup, check
        self._loop = _loop(os.getpid())
        self.breaker = Breaker(lookup.breaker, lookup.breaker_reset / 1000, self._loop.time)

    def ask(self, keys: Sequence[Key]) -> list[Any]:
        """An answer, None or `Failed` for each key, in their order."""
        asked = asyncio.run_coroutine_threadsafe(self._all(keys), self._loop)
        try:
            return asked.result()
        except BaseException:
            asked.cancel()
            raise

    async def _all(self, keys: Sequence[Key]) -> list[Any]:
        free = asyncio.Semaphore(self._lookup.concurrency)

        async def one(key: Key) -> Any:
            async with free:
                if not self.breaker.lets_through():
                    return Failed(f"not asked: {self._lookup.breaker} keys in a row had failed", refused=True)
                answer = await self._patiently(key)
                self.breaker.told(answered=not isinstance(answer, Failed))
                return answer

        return list(await asyncio.gather(*map(one, keys)))

    async def _patiently(self, key: Key) -> Any:
        """One key, tried again where it fails, later and later."""
        failed = Failed("")
        for attempt in range(self._lookup.retries + 1):
            if attempt:
                longest = self._lookup.backoff / 1000 * min(2 ** (attempt - 1), LONGEST)
                await asyncio.sleep(longest * random.uniform(0.5, 1))  # noqa: S311 - so that many do not come back at the same moment
            try:
                return self._check(await asyncio.wait_for(self._call(key), self._lookup.timeout / 1000))
            except TimeoutError as error:
                failed = Failed(str(error) or f"no answer within {self._lookup.timeout} ms")
            except Exception as error:  # noqa: BLE001 - whatever the function raises, it is no answer
                failed = Failed(told(error).partition("\n")[0])
        return failed

    def _call(self, key: Key) -> Awaitable[Any]:
        if self._lookup.asynchronous:
            return _awaited(self._lookup.fn, key)
        return _in_thread(self._loop, self._lookup.fn, key)


async def _awaited(fn: Callable[..., Any], key: Key) -> Any:
    """What an asynchronous function answers. Nothing that it raises ends the loop, for which all others would wait for ever."""
    try:
        return await fn(*key)
    except (Exception, asyncio.CancelledError, GeneratorExit):
        raise
    except BaseException as error:
        raise ended(error) from error


def _in_thread(loop: asyncio.AbstractEventLoop, fn: Callable[..., Any], key: Key) -> asyncio.Future[Any]:
    """A plain function in a thread of its own, which is left behind if it never returns, and does not keep the process alive."""
    future: asyncio.Future[Any] = loop.create_future()

    def settle(answer: Any, error: Exception | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(answer)
        else:
            future.set_exception(error)

    def call() -> None:
        try:
            answer, error = fn(*key), None
        except Exception as raised:  # noqa: BLE001 - it is raised where it is awaited
            answer, error = None, raised
        except BaseException as raised:  # noqa: BLE001 - the thread would end without an answer
            answer, error = None, ended(raised)
        loop.call_soon_threadsafe(settle, answer, error)

    threading.Thread(target=call, daemon=True, name="millrace-lookup").start()
    return future


@lru_cache(maxsize=1)
def _loop(process: int) -> asyncio.AbstractEventLoop:  # noqa: ARG001 - a forked process needs one of its own
    """The loop of this process, which lives as long, so that functions may keep their connections."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True, name="millrace-lookups").start()
    return loop
