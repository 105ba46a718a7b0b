"""When panes fire: what can be said, and what is refused."""

import pytest

from millrace import triggers
from millrace.errors import DefinitionError


def test_only_a_trigger_without_late_panes_fires_once() -> None:
    assert triggers.at_watermark(late=triggers.never()).once
    assert not triggers.at_watermark().once
    assert not triggers.at_watermark(early=triggers.never()).once


def test_triggers_compare_by_value() -> None:
    assert triggers.at_watermark(late=triggers.never()) == triggers.at_watermark(late=triggers.never())
    assert triggers.at_watermark(late=triggers.never()) != triggers.at_watermark()
    assert triggers.at_watermark(early=triggers.never()) == triggers.at_watermark()


def test_triggers_read_as_they_are_written() -> None:
    assert str(triggers.at_watermark()) == "at_watermark()"
    assert str(triggers.at_watermark(late=triggers.never())) == "at_watermark(late=never())"


def test_what_is_not_available_yet_says_what_to_do_instead() -> None:
    with pytest.raises(DefinitionError, match=r"early=at_watermark\(\) is not available in this version; leave it out"):
        triggers.at_watermark(early=triggers.at_watermark())
    with pytest.raises(DefinitionError, match="late=never"):
        triggers.at_watermark(late=triggers.at_watermark())
