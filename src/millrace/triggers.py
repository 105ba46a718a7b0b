"""WHEN panes fire."""

from dataclasses import dataclass

from millrace.errors import DefinitionError


class Trigger:
    """Decides when a window's result is shown. Subclasses are frozen and compare by value."""


@dataclass(frozen=True)
class Never(Trigger):
    """Fires at no time."""

    def __str__(self) -> str:
        """As a user would write it."""
        return "never()"


@dataclass(frozen=True)
class AtWatermark(Trigger):
    """On time when the watermark passes the window's end; then by `late` (None: once per batch that brings late rows)."""

    early: Trigger | None = None
    late: Trigger | None = None

    @property
    def once(self) -> bool:
        """Whether the on-time pane is the last one, so that later rows are refused."""
        return isinstance(self.late, Never)

    def __str__(self) -> str:
        """As a user would write it."""
        given = [f"{name}={value}" for name, value in (("early", self.early), ("late", self.late)) if value is not None]
        return f"at_watermark({', '.join(given)})"


def never() -> Never:
    """A trigger that does not fire; `at_watermark(late=never())` gives one pane per window."""
    return Never()


def at_watermark(*, early: Trigger | None = None, late: Trigger | None = None) -> AtWatermark:
    """On time when the watermark passes the window's end, then once per batch that brings late rows."""
    if early is not None and not isinstance(early, Never):
        raise DefinitionError(f"early={early} is not available in this version; leave it out for one pane on time")
    if late is not None and not isinstance(late, Never):
        raise DefinitionError(f"late={late} is not available in this version; leave it out, or use late=never()")
    return AtWatermark(None, late)
