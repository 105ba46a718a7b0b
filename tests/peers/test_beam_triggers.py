"""Random triggers, run by the model, by the engine and by Apache Beam's own trigger driver: all three fire
the same panes.

`PEER_CASES=5000 pytest tests/peers/test_beam_triggers.py` runs more of them. The cases keep to what Beam's
types allow (its Java types: inside of early, late, any, all and the end of or_finally, only triggers that
fire once) and to what both define:

- No processing time: Beam's Python driver fires it inside of composites whenever any timer fires.
- Panes that bring nothing new are left out on both sides, and with them the indices of the panes that follow:
  whether such a pane is due is a matter of `on_time` here and of the on-time behaviour in Beam, not of the
  trigger.
- Cases are left out, and counted, in which such a pane finishes the trigger in Beam: a timer that an earlier
  part of `each` set for the window's end then fires a later part, to which no row has come.
- Sessions that touch merge here, as in Flink; in Beam they have to overlap. The worker gives Beam a gap half
  a tick longer.
- Sessions have a long lateness, since Beam judges a late row by itself and not by the session that it joins;
  and triggers that do not ask whether the window was complete before it was merged: Beam's Python driver then
  calls the merged session late if one part was, while its Java runners, and millrace, wait for the end of the
  merged session. Their triggers repeat: a row that joins a finished session takes all rows of its chain with
  it in Beam; here only the row itself is refused.
"""

import json
import os
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from millrace.testing.script import On, Script
from millrace.testing.transcripts import documents
from millrace.testing.transcripts.subjects import TranscriptJob
from peers.environments import python_with

BEAM = "apache-beam==2.77.0"
CASES, SEED = int(os.environ.get("PEER_CASES", "700")), int(os.environ.get("PEER_SEED", "0"))
pytestmark = pytest.mark.long

Case = dict[str, Any]
Pane = dict[str, Any]


@pytest.fixture(scope="module")
def beam() -> Iterator["subprocess.Popen[str]"]:
    command = [str(python_with(BEAM)), "-W", "ignore", str(Path(__file__).parent / "beam_worker.py")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.kill()


def fires_once(chance: random.Random, depth: int, *, watermark: bool = True) -> Any:
    """A trigger that finishes when it fires."""
    if depth and chance.random() < 0.5:
        return {
            chance.choice(["any", "all"]): [
                fires_once(chance, depth - 1, watermark=watermark) for _ in range(chance.randint(1, 3))
            ]
        }
    return "watermark" if watermark and chance.random() < 0.3 else {"count": chance.randint(1, 4)}


def any_trigger(chance: random.Random, depth: int) -> Any:
    leaves, branches = (
        ["once", "default", "watermark", "watermark"],
        ["repeat", "repeat", "each", "or_finally", "watermark"],
    )
    match chance.choice(leaves if depth == 0 or chance.random() < 0.25 else branches):
        case "once":
            return fires_once(chance, 1)
        case "default":
            return "default"
        case "watermark":
            parts = {name: fires_once(chance, 1) for name in ("early", "late") if chance.random() < 0.6}
            return {"watermark": parts} if parts else "watermark"
        case "repeat":
            return {"repeat": any_trigger(chance, depth - 1)}
        case "or_finally":
            return {"or_finally": [any_trigger(chance, depth - 1), fires_once(chance, depth - 1)]}
        case _:
            return {"each": [any_trigger(chance, depth - 1) for _ in range(chance.randint(1, 3))]}


def by_counts(chance: random.Random, depth: int) -> Any:
    """A trigger that never asks for the watermark, for sessions."""
    if depth == 0:
        return fires_once(chance, 1, watermark=False)
    match chance.choice(["repeat", "repeat", "each"]):
        case "repeat":
            return {"repeat": by_counts(chance, depth - 1)}
        case _:
            return {"each": [by_counts(chance, depth - 1) for _ in range(chance.randint(1, 3))]}


def random_case(chance: random.Random) -> Case:
    steps: list[Any] = []
    at = 0
    for _ in range(chance.randint(3, 10)):
        if chance.random() < 0.6:
            steps.append(
                {"events": [max(0, chance.randint(at - 12, at + 15)) for _ in range(chance.randint(1, 4))]}
            )
        else:
            at += chance.randint(1, 9)
            steps.append({"watermark": at})
    steps.append({"watermark": "end"})
    case = {"output": chance.choice(["value", "delta"]), "steps": steps}
    if chance.random() < 0.3:
        return {
            **case,
            "window": {"session": chance.choice([3, 6])},
            "trigger": {"repeat": by_counts(chance, chance.randint(0, 2))},
            "lateness": 1000,
        }
    window = chance.choice(
        [
            {"fixed": 5},
            {"fixed": 10},
            {"sliding": {"size": 10, "every": 2}},
            {"sliding": {"size": 10, "every": 5}},
        ]
    )
    return {
        **case,
        "window": window,
        "trigger": any_trigger(chance, chance.randint(0, 3)),
        "lateness": chance.choice([0, 4, 1000]),
    }


def ask(beam: "subprocess.Popen[str]", case: Case) -> list[list[Pane]]:
    assert beam.stdin is not None
    assert beam.stdout is not None
    beam.stdin.write(json.dumps(case) + "\n")
    beam.stdin.flush()
    answer = json.loads(beam.stdout.readline())
    assert isinstance(answer, list), f"Beam refuses {case}: {answer}"
    return answer


def run(case: Case, on: On) -> list[list[Pane]]:
    transcript = documents.parse_document({**case, "value": "list"})
    subject = TranscriptJob(transcript)
    script = Script(subject.build_job(), on=on)
    panes = []
    for kind, content in transcript.steps:
        if kind == "events":
            script.events(*map(subject.to_event, content))
        elif content["at"] == "end":
            script.end()
        else:
            script.watermark(content["at"])
        panes.append(subject.read_panes(script))
    script.close()
    return panes


def that_bring_something(steps: list[list[Pane]], *, accumulating: bool) -> list[list[str]]:
    """The panes of each step but those that bring nothing new, as sorted text."""
    shown: dict[tuple[int, ...], list[Any]] = {}
    kept = []
    for step in steps:
        news = []
        for pane in sorted(step, key=lambda pane: (pane["window"], pane["index"])):
            window, values = tuple(pane["window"]), sorted(pane["values"])
            if values != (shown.get(window, []) if accumulating else []):
                news.append(json.dumps([window, values, pane["timing"]]))
            shown[window] = values
        kept.append(sorted(news))
    return kept


def is_finished_by_nothing(steps: list[list[Pane]], *, accumulating: bool) -> bool:
    """Whether Beam finished a trigger with a pane that brings nothing new, after one that did."""
    shown: dict[tuple[int, ...], list[Any]] = {}
    for pane in (pane for step in steps for pane in step):
        window, values = tuple(pane["window"]), sorted(pane["values"])
        if pane["finished"] and window in shown and values == (shown[window] if accumulating else []):
            return True
        shown[window] = values
    return False


@pytest.mark.parametrize("on", ["model", "engine"])
def test_random_triggers_fire_as_in_beam(beam: "subprocess.Popen[str]", on: On) -> None:
    """The last line of the output counts the cases and their panes."""
    panes = left_out = 0
    for seed in range(SEED, SEED + CASES):
        case = random_case(random.Random(seed))
        accumulating = case["output"] == "value"
        answer = ask(beam, case)
        if is_finished_by_nothing(answer, accumulating=accumulating):
            left_out += 1
            continue
        theirs = that_bring_something(answer, accumulating=accumulating)
        ours = that_bring_something(run(case, on), accumulating=accumulating)
        assert ours == theirs, f"seed {seed}: {json.dumps(case)}"
        panes += sum(map(len, theirs))
    print(f"{CASES - left_out} random triggers on {on}: {panes} panes, all as in Beam ({left_out} left out)")
    assert panes > CASES > 4 * left_out
