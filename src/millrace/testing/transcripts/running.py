"""Runs transcripts, and says where what came differs from what was to come."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import yaml

from millrace.engine.trigger_state import END
from millrace.errors import MillraceError
from millrace.testing.model.values import Row
from millrace.testing.script import Making, On, Script, backend
from millrace.testing.transcripts import patterns
from millrace.testing.transcripts.documents import Transcript, understand
from millrace.testing.transcripts.lanes import LaneFailed, run_together
from millrace.testing.transcripts.patterns import PatternTranscript
from millrace.testing.transcripts.subjects import Subject
from millrace.testing.transcripts.words import Unavailable, is_row_transcript, plain, text

if TYPE_CHECKING:
    from millrace.testing.transcripts.rows import RowTranscript


@dataclass
class Findings:
    """Where a run differs from its transcript: `missing` or `unexpected`, and what."""

    problems: list[tuple[str, str]] = field(default_factory=list)

    def add(self, kind: str, where: str, what: str, things: Sequence[Any]) -> None:
        """Notes what is missing or unexpected, if anything is."""
        if things:
            self.problems.append((kind, f"{where}: {kind} {what} {', '.join(map(text, things))}"))


Named = tuple[str, Any]
"""A transcript's name, and its document, or the reason why there is none."""

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The one in C, where it was built: ten times as fast."""

LANES = 150
"""How many transcripts share a query at most."""


def run_files(paths: Sequence[str | Path], on: On = "engine", *, say: Callable[[str], object] = print) -> int:
    """Runs every transcript of every file, says a line for each and a last one; the number that failed."""
    passed = failed = 0
    for name, why in outcomes([Path(path) for path in paths], on):
        passed, failed = passed + (why is None), failed + (why is not None)
        say(f"ok {name}" if why is None else f"FAIL {name}: {why}")
    say(f"{passed} passed, {failed} failed")
    return failed


def outcomes(paths: Path | Sequence[Path], on: On) -> Iterator[tuple[str, str | None]]:
    """The name of each transcript of some files, and why it failed, if it did."""
    found = [each for path in ([paths] if isinstance(paths, Path) else paths) for each in _documents(path)]
    together = _together([document for _, document in found], on) if on == "spark" else {}
    for number, (name, document) in enumerate(found):
        if isinstance(document, Unreadable):
            yield name, document.why
        else:
            yield name, together[number] if number in together else why_failed(document, on)


@dataclass(frozen=True)
class Unreadable:
    """A file that holds no transcript."""

    why: str


def _documents(path: Path) -> Iterator[Named]:
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


def _together(documents: Sequence[Any], on: On) -> dict[int, str | None]:
    """The outcomes of those that can share a query; where that fails, each is left to run by itself."""
    alike: dict[Any, list[int]] = defaultdict(list)
    for number, document in enumerate(documents):
        if (clocks := _clocks(document)) is not None:
            alike[clocks].append(number)
    done: dict[int, str | None] = {}
    for able in alike.values():
        for start in range(0, len(able), LANES):
            numbers = able[start : start + LANES]
            runs = [partial(_in_lane, documents[number], number) for number in numbers]
            answers = run_together(lambda jobs, partitions: backend(jobs, partitions, on), runs)
            done |= {
                number: said
                for number, said in zip(numbers, answers, strict=True)
                if not isinstance(said, LaneFailed)
            }
    return done


def _in_lane(document: Any, number: int, lane: Making) -> str | None:
    return why_failed(document, lane, number)


def _clocks(document: Any) -> tuple[tuple[int, int], ...] | None:
    """When a transcript sets the clock, and to what: those that do so alike can run together. None: it cannot run, or is to fail."""
    try:
        if isinstance(document, dict) and "pattern" in document:
            return None if "error" in patterns.understand(document).expect else ()
        if is_row_transcript(document):
            from millrace.testing.transcripts import rows  # it needs an extra

            return () if rows.shares(rows.understand(document)) else None
        steps = [step for step in understand(document).steps if step[0] in ("events", "watermark", "clock")]
    except MillraceError:
        return None
    return tuple((turn, what) for turn, (kind, what) in enumerate(steps) if kind == "clock")


def why_failed(document: Any, on: On | Making, number: int = 0) -> str | None:
    """What is wrong with one transcript, or None."""
    try:
        transcript: Transcript | PatternTranscript | RowTranscript
        if is_row_transcript(document):
            from millrace.testing.transcripts import rows  # it needs an extra

            transcript = rows.understand(document)
            problems = rows.run(transcript, on, number)
        elif isinstance(document, dict) and "pattern" in document:
            transcript = patterns.understand(document)
            problems = patterns.run(transcript, on, number)
        else:
            transcript = understand(document)
            problems = run(transcript, on, number)
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


def run(transcript: Transcript, on: On | Making, number: int = 0) -> list[tuple[str, str]]:
    """Every difference between what came and what was expected; `number` keeps transcripts apart that run together."""
    subject = Subject(transcript, number)
    told: Literal["scripted", "own"] = "scripted" if transcript.watermark is None else "own"
    script = Script(subject.job(), on=on, partitions=transcript.partitions, watermarks=told)
    findings = Findings()
    try:
        for place, (kind, what) in enumerate(transcript.steps, start=1):
            _do(script, kind, what, subject, f"step {place}", findings)
        findings.add("unexpected", "at the end", "panes", subject.panes(script))
    finally:
        script.close()
    return findings.problems


def _do(script: Script, kind: str, what: Any, subject: Subject, where: str, findings: Findings) -> None:
    match kind:
        case "events":
            script.events(*map(subject.event, what), partition=[event["partition"] for event in what])
        case "watermark":
            if what == {"at": "end", "partition": None}:
                script.end()
            else:
                script.watermark(END if what["at"] == "end" else what["at"], partition=what["partition"])
        case "clock":
            script.clock(what)
        case "restart":
            script.restart()
        case "expect":
            _compare(what, subject.panes(script), _fits, where, "panes", findings)
        case "expect_dropped":
            expected = [{name: event[name] for name in ("t", "key", "value")} for event in what]
            _compare(
                expected,
                list(map(subject.dropped, script.late())),
                lambda a, b: plain(a) == plain(b),
                where,
                "dropped events",
                findings,
            )


def _compare(
    expected: Sequence[Any],
    came: Sequence[Any],
    fits: Callable[[Any, Any], bool],
    where: str,
    what: str,
    findings: Findings,
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
    return (
        sorted(map(plain, value))
        if key in ("values", "retracts") and isinstance(value, list)
        else plain(value)
    )
