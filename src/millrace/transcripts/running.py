"""Runs transcripts, and says where what came differs from what was to come."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from millrace import aggregates, stream, watermarks
from millrace.aggregates import Reduction
from millrace.errors import MillraceError
from millrace.plain_values import Row
from millrace.testing import On, Script
from millrace.topics import Topic
from millrace.transcripts.documents import Transcript, understand
from millrace.transcripts.words import Unavailable, Wrong, plain, text
from millrace.trigger_machines import END


@dataclass(frozen=True)
class Texts:
    """An event whose value is kept as JSON."""

    key: str
    value: str


@dataclass(frozen=True)
class Lists:
    """All values of a key and window, as JSON."""

    key: str
    value: list[str]


@dataclass(frozen=True)
class WholeNumber:
    """An event with a whole number, or the sum of some."""

    key: str
    value: int | None


@dataclass(frozen=True)
class Number:
    """An event with any number, or the sum of some."""

    key: str
    value: float | None


@dataclass
class Findings:
    """Where a run differs from its transcript: `missing` or `unexpected`, and what."""

    problems: list[tuple[str, str]] = field(default_factory=list)

    def add(self, kind: str, where: str, what: str, things: Sequence[Any]) -> None:
        """Notes what is missing or unexpected, if anything is."""
        if things:
            self.problems.append((kind, f"{where}: {kind} {what} {', '.join(map(text, things))}"))


def run_files(paths: Sequence[str | Path], on: On = "engine", *, say: Callable[[str], object] = print) -> int:
    """Runs every transcript of every file, says a line for each and a last one; the number that failed."""
    passed = failed = 0
    for path in paths:
        for name, why in outcomes(Path(path), on):
            passed, failed = passed + (why is None), failed + (why is not None)
            say(f"ok {name}" if why is None else f"FAIL {name}: {why}")
    say(f"{passed} passed, {failed} failed")
    return failed


def outcomes(path: Path, on: On) -> Iterator[tuple[str, str | None]]:
    """The name of each transcript of a file, and why it failed, if it did."""
    try:
        documents = [document for document in yaml.safe_load_all(path.read_text(encoding="utf-8")) if document is not None]
    except (OSError, ValueError, yaml.YAMLError) as error:
        yield path.name, f"cannot be read: {' '.join(str(error).split())}"
        return
    if not documents:
        yield path.name, "holds no transcript"
    for number, document in enumerate(documents, start=1):
        name = document.get("name") if isinstance(document, dict) else None
        yield " ".join(str(name or f"{path.name} no. {number}").split()), why_failed(document, on)


def why_failed(document: Any, on: On) -> str | None:
    """What is wrong with one transcript, or None."""
    try:
        transcript = understand(document)
        problems = run(transcript, on)
    except Unavailable as missing:
        return f"not available in this version: {missing}"
    except Exception as error:  # noqa: BLE001 - whatever happens in one transcript, the others are still run
        return str(error) if isinstance(error, MillraceError) else f"{type(error).__name__}: {error}"
    if transcript.must_fail is None:
        return problems[0][1] if problems else None
    if any(kind == transcript.must_fail for kind, _ in problems):
        return None
    found = f"found only: {problems[0][1]}" if problems else "everything was as expected"
    return f"must fail because something is {transcript.must_fail}, but {found}"


def run(transcript: Transcript, on: On) -> list[tuple[str, str]]:
    """Every difference between what came and what was expected."""
    script = Script(_job(transcript), on=on)
    findings = Findings()
    try:
        for number, (kind, what) in enumerate(transcript.steps, start=1):
            _do(script, kind, what, transcript.listed, f"step {number}", findings)
        findings.add("unexpected", "at the end", "panes", _panes(script, listed=transcript.listed))
    finally:
        script.close()
    return findings.problems


def _do(script: Script, kind: str, what: Any, listed: bool, where: str, findings: Findings) -> None:
    match kind:
        case "events":
            script.events(*(_row(event, listed=listed) for event in what))
        case "watermark":
            script.watermark(END if what == "end" else what)
        case "clock":
            script.clock(what)
        case "restart":
            script.restart()
        case "expect":
            _compare(what, _panes(script, listed=listed), _fits, where, "panes", findings)
        case "expect_dropped":
            dropped = [_event(row, listed=listed) for row in script.late()]
            _compare(what, dropped, lambda a, b: plain(a) == plain(b), where, "dropped events", findings)


def _compare(
    expected: Sequence[Any], came: Sequence[Any], fits: Callable[[Any, Any], bool], where: str, what: str, findings: Findings
) -> None:
    """Pairs as many as can be paired, since an expectation that says little may fit several."""
    partner: dict[int, int] = {}

    def pair(wanted: int, tried: set[int]) -> bool:
        for i, actual in enumerate(came):
            if i not in tried and fits(expected[wanted], actual):
                tried.add(i)
                if i not in partner or pair(partner[i], tried):
                    partner[i] = wanted
                    return True
        return False

    missing = [expected[wanted] for wanted in range(len(expected)) if not pair(wanted, set())]
    findings.add("missing", where, what, missing)
    findings.add("unexpected", where, what, [actual for i, actual in enumerate(came) if i not in partner])


def _fits(expected: Row, pane: Row) -> bool:
    """Only what the expectation says is compared; lists of values have no order."""
    for key, value in expected.items():
        if key not in pane:
            return False
        if key == "timing" and isinstance(value, list):
            if pane[key] not in value:
                return False
        elif _unordered(key, pane[key]) != _unordered(key, value):
            return False
    return True


def _unordered(key: str, value: Any) -> Any:
    return sorted(map(plain, value)) if key in ("values", "retracts") and isinstance(value, list) else plain(value)


def _panes(script: Script, *, listed: bool) -> list[Row]:
    """The panes since last asked, in the words of transcripts; a withdrawn value is part of the pane that takes its place."""
    came = script.panes()
    panes = []
    for row in (row for row in came if row["op"] == "+"):
        said = {"key": json.loads(row["key"]), "window": [row["window_start"], row["window_end"]]}
        said["values" if listed else "value"] = _value(row, listed=listed)
        said |= {name: row[name] for name in ("timing", "index", "settled_index", "final")} | {"at": row["event_time"]}
        gone = [_value(other, listed=listed) for other in came if other["op"] == "-" and _replaces(row, other)]
        panes.append({**said, "retracts": sum(gone, [] if listed else 0)} if gone else said)
    return panes


def _value(row: Row, *, listed: bool) -> Any:
    """The value of a pane; the sum of nothing is 0."""
    return [json.loads(one) for one in row["value"]] if listed else row["value"] or 0


def _replaces(new: Row, old: Row) -> bool:
    """Whether one pane takes the place of another: of the same window, or of one that grew into it."""
    within = new["window_start"] <= old["window_start"] and old["window_end"] <= new["window_end"]
    return within and (new["key"], new["index"]) == (old["key"], old["index"])


def _row(event: Row, *, listed: bool) -> Row:
    return {"key": plain(event["key"]), "value": plain(event["value"]) if listed else event["value"], "event_time": event["t"]}


def _event(row: Row, *, listed: bool) -> Row:
    return {"t": row["event_time"], "key": json.loads(row["key"]), "value": json.loads(row["value"]) if listed else row["value"]}


def _job(transcript: Transcript) -> stream.Job:
    kind, result, aggregate = _types(transcript)
    rows = stream.read(Topic("input.transcript", kind), watermark=watermarks.bounded(0))
    windowed = rows.window(
        transcript.window,
        trigger=transcript.trigger,
        lateness=transcript.lateness,
        output=transcript.output,
        on_time=transcript.on_time,
        closing=transcript.closing,
        time=transcript.time,
    )
    return stream.Job("transcript", windowed.by("key").aggregate(value=aggregate).write(Topic("analytics.transcript", result)))


def _types(transcript: Transcript) -> tuple[type, type, Reduction]:
    if transcript.listed:
        return Texts, Lists, aggregates.collect("value")
    numbers = [event["value"] for kind, events in transcript.steps if kind == "events" for event in events]
    for number in numbers:
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise Wrong(f"`value: sum` needs numbers, but an event's value is {text(number)}; use `value: list`")
    kind = WholeNumber if all(isinstance(number, int) for number in numbers) else Number
    return kind, kind, aggregates.sum("value")
