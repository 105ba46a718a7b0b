"""A clock that only moves when someone waits."""


class FakeClock:
    def __init__(self, now: int = 1_000_000) -> None:
        self.time = now
        self.waited: list[int] = []

    def now(self) -> int:
        return self.time

    def sleep(self, duration: int) -> None:
        self.waited.append(duration)
        self.time += duration
