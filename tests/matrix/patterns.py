"""The matrix of patterns: link × quantifier × skip, each with a bound, without, with a group, after either
`not`, and with a look back.

    PYTHONPATH=tests python -m matrix.patterns [--page]

writes docs/reference/pattern-coverage.md and, unless only the page is asked for, transcripts with the answers
of the definition (`tests/transcripts/patterns/woven-*.yaml`): after a change of a rule, run it and read what
changed.
"""

import itertools
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from millrace.testing.transcripts import patterns as transcripts

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "tests" / "transcripts" / "patterns"
PAGE = ROOT / "docs" / "reference" / "pattern-coverage.md"

LINKS = ("next", "followed_by", "followed_by_any")
QUANTIFIERS = ("once", "optional", "times(n)", "times(a, b)", "one_or_more", "zero_or_more", "greedy")
SKIPS = ("none", "to_next", "past_last", "to_first", "to_last")
MARKS = ("within", "not_next", "not_followed_by", "group", "earlier", "strict", "any")
"""Further features that a transcript may cover; the last two are contiguities inside of loops."""
TIMES: dict[str, Any] = {
    "times(n)": 2,
    "times(a, b)": "1..2",
    "one_or_more": "1..",
    "zero_or_more": "0..",
    "greedy": "1..",
}
MIXES = (
    ("within", "not_next", "earlier", "strict"),
    ("not_followed_by", "group", "any"),
    ("within", "not_followed_by", "earlier"),
)
"""The features of woven transcripts; together all of them."""


class Cell(NamedTuple):
    """The combination that a step of a pattern covers."""

    link: str
    quantifier: str
    skip: str


def cells_of(document: Any) -> Iterator[tuple[Cell, frozenset[str]]]:
    """The cells of a transcript, one per positive step after the first, with its marks."""
    skip = document.get("skip", "none")
    name = next(word for word in skip if word != "on_miss") if isinstance(skip, dict) else skip
    steps = [inner for part in document["pattern"] for inner in (part, *part.get("group", ()))]
    marks = {
        word for word in ("not_next", "not_followed_by") if any(step.get("link") == word for step in steps)
    }
    marks |= {"within"} if document.get("within") else set()
    marks |= {"group"} if any("group" in step for step in steps) else set()
    looks = ("first(", "last(", "sum(", "count(", "avg(", "min(", "max(", "previous(")
    marks |= (
        {"earlier"} if any(word in str(step.get("where", "")) for step in steps for word in looks) else set()
    )
    for step in steps:
        if step.get("link") in LINKS:
            inner = {step["inner"]} & set(MARKS) if "inner" in step else set()
            yield Cell(step["link"], _quantifier(step), name), frozenset(marks | inner)


def _quantifier(step: Any) -> str:
    times = str(step.get("times", 1))
    if step.get("greedy"):
        return "greedy"
    if times == "1":
        return "optional" if step.get("optional") else "once"
    if ".." not in times:
        return "times(n)"
    return (
        "times(a, b)"
        if not times.endswith("..")
        else "zero_or_more"
        if times.startswith("0")
        else "one_or_more"
    )


def documents(folder: Path = FOLDER) -> list[Any]:
    """All transcripts of patterns."""
    return [
        document
        for path in sorted(folder.glob("*.yaml"))
        for document in yaml.safe_load_all(path.read_text())
    ]


def marks_by_cell() -> dict[Cell, list[frozenset[str]]]:
    """For each cell the marks of its transcripts."""
    made: dict[Cell, list[frozenset[str]]] = {
        Cell(*at): [] for at in itertools.product(LINKS, QUANTIFIERS, SKIPS)
    }
    for document in documents():
        for cell, marks in cells_of(document):
            made[cell].append(marks)
    return made


def senseless(cell: Cell, mark: str) -> bool:
    """Whether a mark has no meaning in a cell: a step without repetitions has nothing between them."""
    return mark in ("strict", "any") and cell.quantifier in ("once", "optional")


def missing_cells() -> list[tuple[Cell, str]]:
    """Cells that make sense and have no transcript, with the mark that is missing."""
    return [
        (cell, mark)
        for cell, marks in marks_by_cell().items()
        for mark in MARKS
        if not senseless(cell, mark) and not any(mark in one for one in marks)
    ]


def weave(link: str) -> Iterator[Any]:
    """The transcripts whose matches the definition computes: for each cell of a link,
    some with each mix of marks.
    """
    for quantifier, skip, marks in itertools.product(QUANTIFIERS, SKIPS, MIXES):
        yield _weave_cell(Cell(link, quantifier, skip), marks)


def _weave_cell(cell: Cell, marks: tuple[str, ...]) -> Any:
    """The first of some random sequences with one to six matches."""
    document: dict[str, Any] = {}
    for seed in range(400):
        chance = random.Random(f"{cell} {marks} {seed}")
        kinds = ["a", *chance.choices("bbbcd", k=6), "c"]
        events = [
            {"id": n, "t": n, "kind": kind, "value": chance.randint(0, 3)} for n, kind in enumerate(kinds)
        ]
        document = {
            "name": f"{cell.link}, {cell.quantifier}, skip {cell.skip}; {', '.join(marks)}",
            "events": events,
            **_document(cell, marks),
        }
        matches, _ = transcripts.match_by_definition(transcripts.parse_document({**document, "expect": {}}))
        if 1 <= len(matches) <= 6:
            return {**document, "expect": {"matches": [[int(id) for _, id in match] for match in matches]}}
    raise ValueError(f"nothing to find for {document['name']}")


def _document(cell: Cell, marks: tuple[str, ...]) -> dict[str, Any]:
    where = "kind == 'b'" + (" and value >= first(a.value)" if "earlier" in marks else "")
    step: dict[str, Any] = {"step": "b", "where": where}
    if cell.quantifier in TIMES:
        step["times"] = TIMES[cell.quantifier]
        step |= (
            {"inner": inner}
            if (inner := next((mark for mark in marks if mark in ("strict", "any")), None))
            else {}
        )
    step |= {"greedy": True} if cell.quantifier == "greedy" else {}
    step |= {"optional": True} if cell.quantifier == "optional" else {}
    step["link"] = cell.link
    middle = [step]
    if "group" in marks:
        middle = [{"group": [{"step": "g", "where": "kind == 'b'"}, step], "link": "followed_by"}]
    steps = [{"step": "a", "where": "kind == 'a'"}]
    steps += [
        {"step": "no", "link": mark, "where": "kind == 'd'"} for mark in marks if mark.startswith("not")
    ]
    pattern = [*steps, *middle, {"step": "c", "link": "followed_by", "where": "kind == 'c'"}]
    skip: Any = {cell.skip: "c"} if cell.skip in ("to_first", "to_last") else cell.skip
    return {"pattern": pattern, "skip": skip} | ({"within": 7} if "within" in marks else {})


def dump(link: str) -> str:
    """The file of a link."""
    return "---\n".join(
        yaml.safe_dump(document, sort_keys=False, default_flow_style=None, width=160)
        for document in weave(link)
    )


HEAD = """\
# What the transcripts of patterns cover

Written by `make docs` from `tests/transcripts/patterns/`. Each number counts the steps with a link, a quantifier, and a skip
strategy. In each cell some have a bound (`within`), follow `not_next` and `not_followed_by`, are in a group, have a condition on earlier events, and, if they are
repeated, are strict or allow combinations between repetitions. A test fails if one is missing. Those written by hand show where rules differ, above all `next` from `followed_by` and `not_next` from `not_followed_by` (`contiguity.yaml`, `not.yaml`); the others
(`woven-*.yaml`) are computed by the definition, which tries every choice of events.
`millrace transcript --on model|engine|spark tests/transcripts/patterns/*.yaml` runs them.
"""  # noqa: E501 - the text of a page


def page() -> str:
    """The matrix as text."""
    cells = marks_by_cell()
    parts = [HEAD]
    for link in LINKS:
        rows = [
            (
                f"| {quantifier} | "
                f"{' | '.join(str(len(cells[Cell(link, quantifier, skip)])) for skip in SKIPS)} |"
            )
            for quantifier in QUANTIFIERS
        ]
        parts.append(
            f"## {link}\n\n| quantifier | {' | '.join(SKIPS)} |\n|---|{'---|' * len(SKIPS)}\n"
            + "\n".join(rows)
            + "\n"
        )
    return "\n".join([*parts, f"{len(documents())} transcripts.\n"])


if __name__ == "__main__":
    for each in LINKS if "--page" not in sys.argv else ():
        (FOLDER / f"woven-{each}.yaml").write_text(dump(each))
    PAGE.write_text(page())
