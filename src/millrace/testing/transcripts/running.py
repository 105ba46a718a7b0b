"""Runs transcripts and reports where results differ from expectations."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import yaml

from millrace.durations import END_OF_STREAM
from millrace.errors import MillraceError
from millrace.testing.model.values import Row
from millrace.testing.script import MakeBackend, On, Script, backend
from millrace.testing.transcripts import patterns
from millrace.testing.transcripts.documents import Transcript, parse_document
from millrace.testing.transcripts.lanes import LaneFailed, run_lanes
from millrace.testing.transcripts.patterns import PatternTranscript
from millrace.testing.transcripts.subjects import TranscriptJob
from millrace.testing.transcripts.words import Unavailable, is_row_transcript, to_canonical_text, to_text

if TYPE_CHECKING:
    from millrace.testing.transcripts.rows import RowTranscript


@dataclass
class Findings:
    """The differences between a run and its transcript: `missing` or `unexpected`, and a description."""

    problems: list[tuple[str, str]] = field(default_factory=list)

    def add(self, kind: str, where: str, subject: str, values: Sequence[Any]) -> None:
        """Notes what is missing or unexpected, if anything is."""
        if values:
            self.problems.append((kind, f"{where}: {kind} {subject} {', '.join(map(to_text, values))}"))


NamedDocument = tuple[str, Any]
"""The name of a transcript, and its document or the reason why it cannot be read."""

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The loader in C, if it was built: ten times as fast."""

MAX_LANES = 150
"""How many transcripts share a query at most."""


def run_files(paths: Sequence[str | Path], on: On = "engine", *, say: Callable[[str], object] = print) -> int:
    """Runs every transcript of every file and prints a line for each, and a last one.

    Returns the number that failed.
    """
    passed = failed = 0
    for name, reason in run_documents([Path(path) for path in paths], on):
        passed, failed = passed + (reason is None), failed + (reason is not None)
        say(f"ok {name}" if reason is None else f"FAIL {name}: {reason}")
    say(f"{passed} passed, {failed} failed")
    return failed


def run_documents(paths: Path | Sequence[Path], on: On) -> Iterator[tuple[str, str | None]]:
    """The name of each transcript of some files, and why it failed, if it did."""
    found = [each for path in ([paths] if isinstance(paths, Path) else paths) for each in _documents(path)]
    shared = _run_together([document for _, document in found], on) if on == "spark" else {}
    for number, (name, document) in enumerate(found):
        if isinstance(document, Unreadable):
            yield name, document.reason
        else:
            yield name, shared[number] if number in shared else find_failure(document, on)


@dataclass(frozen=True)
class Unreadable:
    """A file that holds no transcript."""

    reason: str


def _documents(path: Path) -> Iterator[NamedDocument]:
    try:
        documents = [
            document
            for document in yaml.load_all(path.read_text(encoding="utf-8"), Loader=_LOADER)
            if document is not None
        ]
    except (OSError, ValueError, yaml.YAMLError) as error:
        yield path.name, Unreadable(f"cannot be read: {' '.join(str(error).split())}")
        return
    if not documents:
        yield path.name, Unreadable("holds no transcript")
    for number, document in enumerate(documents, start=1):
        name = document.get("name") if isinstance(document, dict) else None
        yield " ".join(str(name or f"{path.name} no. {number}").split()), document


def _run_together(documents: Sequence[Any], on: On) -> dict[int, str | None]:
    """The outcomes of transcripts that can share a query; where that fails, each runs by itself."""
    by_clock_steps: dict[Any, list[int]] = defaultdict(list)
    for number, document in enumerate(documents):
        if (clocks := _clock_steps(document)) is not None:
            by_clock_steps[clocks].append(number)
    outcomes_by_number: dict[int, str | None] = {}
    for group in by_clock_steps.values():
        for start in range(0, len(group), MAX_LANES):
            numbers = group[start : start + MAX_LANES]
            runs = [partial(_run_in_lane, documents[number], number) for number in numbers]
            answers = run_lanes(lambda jobs, partitions: backend(jobs, partitions, on), runs)
            outcomes_by_number |= {
                number: outcome
                for number, outcome in zip(numbers, answers, strict=True)
                if not isinstance(outcome, LaneFailed)
            }
    return outcomes_by_number


def _run_in_lane(document: Any, number: int, lane: MakeBackend) -> str | None:
    return find_failure(document, lane, number)


def _clock_steps(document: Any) -> tuple[tuple[int, int], ...] | None:
    """The clock settings of a transcript: those with the same settings can run together.

    None if it cannot run or must fail.
    """
    try:
        if isinstance(document, dict) and "pattern" in document:
            return None if "error" in patterns.parse_document(document).expect else ()
        if is_row_transcript(document):
            from millrace.testing.transcripts import rows  # it needs an extra

            return () if rows.can_share_query(rows.parse_document(document)) else None
        steps = [
            step for step in parse_document(document).steps if step[0] in ("events", "watermark", "clock")
        ]
    except MillraceError:
        return None
    return tuple((turn, payload) for turn, (kind, payload) in enumerate(steps) if kind == "clock")


def find_failure(document: Any, on: On | MakeBackend, number: int = 0) -> str | None:
    """What is wrong with one transcript, or None."""
    try:
        transcript: Transcript | PatternTranscript | RowTranscript
        if is_row_transcript(document):
            from millrace.testing.transcripts import rows  # it needs an extra

            transcript = rows.parse_document(document)
            problems = rows.run_transcript(transcript, on, number)
        elif isinstance(document, dict) and "pattern" in document:
            transcript = patterns.parse_document(document)
            problems = patterns.run_transcript(transcript, on, number)
        else:
            transcript = parse_document(document)
            problems = run_transcript(transcript, on, number)
    except Unavailable as missing:
        return f"not available in this version: {missing}"
    except LaneFailed:
        raise
    except Exception as error:  # noqa: BLE001 - whatever happens in one transcript, the others are still run
        return str(error) if isinstance(error, MillraceError) else f"{type(error).__name__}: {error}"
    if transcript.must_fail is None:
        return problems[0][1] if problems else None
    if any(kind == transcript.must_fail for kind, _ in problems):
        return None
    found = f"found only: {problems[0][1]}" if problems else "everything was as expected"
    return f"must fail because something is {transcript.must_fail}, but {found}"


def run_transcript(transcript: Transcript, on: On | MakeBackend, number: int = 0) -> list[tuple[str, str]]:
    """Every difference between results and expectations.

    `number` tells transcripts apart that run together.
    """
    subject = TranscriptJob(transcript, number)
    watermark_source: Literal["scripted", "own"] = "scripted" if transcript.watermark is None else "own"
    script = Script(subject.build_job(), on=on, partitions=transcript.partitions, watermarks=watermark_source)
    findings = Findings()
    try:
        for place, (kind, payload) in enumerate(transcript.steps, start=1):
            _run_step(script, kind, payload, subject, f"step {place}", findings)
        findings.add("unexpected", "at the end", "panes", subject.read_panes(script))
    finally:
        script.close()
    return findings.problems


def _run_step(
    script: Script, kind: str, payload: Any, subject: TranscriptJob, where: str, findings: Findings
) -> None:
    match kind:
        case "events":
            script.events(
                *map(subject.to_event, payload), partition=[event["partition"] for event in payload]
            )
        case "watermark":
            if payload == {"at": "end", "partition": None}:
                script.end()
            else:
                script.watermark(
                    END_OF_STREAM if payload["at"] == "end" else payload["at"], partition=payload["partition"]
                )
        case "clock":
            script.clock(payload)
        case "restart":
            script.restart()
        case "expect":
            _compare(payload, subject.read_panes(script), _matches_expectation, where, "panes", findings)
        case "expect_dropped":
            expected = [{name: event[name] for name in ("t", "key", "value")} for event in payload]
            _compare(
                expected,
                list(map(subject.to_dropped, script.late())),
                lambda a, b: to_canonical_text(a) == to_canonical_text(b),
                where,
                "dropped events",
                findings,
            )


def _compare(
    expected: Sequence[Any],
    actual_values: Sequence[Any],
    is_match: Callable[[Any, Any], bool],
    where: str,
    subject: str,
    findings: Findings,
) -> None:
    """Pairs as many as possible, since a short expectation may fit several panes."""
    partner: dict[int, int] = {}

    def pair(number: int, visited: set[int]) -> bool:
        for i, actual in enumerate(actual_values):
            if i not in visited and is_match(expected[number], actual):
                visited.add(i)
                if i not in partner or pair(partner[i], visited):
                    partner[i] = number
                    return True
        return False

    missing = [expected[number] for number in range(len(expected)) if not pair(number, set())]
    findings.add("missing", where, subject, missing)
    findings.add(
        "unexpected", where, subject, [actual for i, actual in enumerate(actual_values) if i not in partner]
    )


def _matches_expectation(expected: Row, pane: Row) -> bool:
    """Whether a pane fits an expectation, which compares only the keys that it has.

    Lists of values have no order.
    """
    for key, value in expected.items():
        if key not in pane:
            return False
        if key == "timing" and isinstance(value, list):
            if pane[key] not in value:
                return False
        elif _to_comparable(key, pane[key]) != _to_comparable(key, value):
            return False
    return True


def _to_comparable(key: str, value: Any) -> Any:
    return (
        sorted(map(to_canonical_text, value))
        if key in ("values", "retracts") and isinstance(value, list)
        else to_canonical_text(value)
    )
