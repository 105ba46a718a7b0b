"""How a vehicle gets from one stop to the next: eight phases of constant acceleration.

    stand at the stop · accelerate · cruise · brake · stand in traffic · accelerate · cruise · brake

The first three of the drive lead to an interruption: a red light, or something that made the driver brake hard. Without one they take no time.
"""

from dataclasses import dataclass, fields
from typing import Self

import numpy as np

from millrace.ingest.connectors.simulator.chance import Flags, Floats, Ints, between

PHASES = 8
STANDING, BRAKING = 0, 3
"""Phases by number: at the stop, and before an interruption."""

ACCELERATION = 0.6, 1.2
SERVICE_BRAKE = 0.6, 0.9
"""Metres per second squared, least and most. From 10 m/s to a walk this takes 10 s or longer: nobody would call it an emergency."""
HARD_BRAKE = 3.0, 6.0
HARD_FROM = 11.5
"""Who brakes hard was at least this fast, in m/s."""
_OPENING, _CLOSING, _BOARDING = 1_500, 2_500, 45_000
"""Milliseconds that doors take to open after the arrival, that they are closed before the departure, and that they are open at most."""
_STEADY = 2.5
"""Seconds of cruising before a driver brakes hard."""


@dataclass(frozen=True, eq=False)
class Legs:
    """One leg in each row. Times are milliseconds since the epoch; phases are columns of the arrays of two dimensions."""

    vehicle: Ints
    trip: Ints
    way: Ints
    """Its number in `Routes`."""
    place: Ints
    """Which of its way's legs it is, from 0."""
    leg: Ints
    """Its number in `Routes`."""
    delay: Ints
    """Seconds behind the timetable when leaving the stop."""
    scheduled: Ints
    """When the trip should have left its first stop."""
    hard: Flags
    begin: Ints
    """Of each phase."""
    end: Ints
    speed: Floats
    """When the phase begins."""
    odometer: Floats
    """When the phase begins, from the first stop."""
    acceleration: Floats

    def __len__(self) -> int:
        return len(self.vehicle)

    def rows(self, which: Ints | Flags) -> Self:
        """Some of them."""
        return type(self)(**{field.name: getattr(self, field.name)[which] for field in fields(self)})

    def doors(self) -> tuple[Ints, Ints]:
        """When doors open after the arrival and close before the departure; at the end of a long stand, if it is one."""
        closed = self.end[:, STANDING] - _CLOSING
        return np.maximum(self.begin[:, STANDING] + _OPENING, closed - _BOARDING), closed

    def replaced(self, which: Ints, others: "Legs") -> None:
        """Puts others in the place of some."""
        for field in fields(self):
            getattr(self, field.name)[which] = getattr(others, field.name)


def joined(parts: "list[Legs]") -> Legs:
    """One below the other."""
    return Legs(
        **{
            field.name: np.concatenate([getattr(part, field.name) for part in parts])
            for field in fields(Legs)
        }
    )


@dataclass(frozen=True, eq=False)
class Drive:
    """What is decided by chance about a leg's drive. The draws are uniform numbers between 0 and 1."""

    distance: Floats
    cruise: Floats
    """The speed that the driver has in mind."""
    interrupted: Flags
    """By a red light."""
    hard: Flags
    """By something that makes the driver brake hard, where the distance allows for it."""
    where: Floats
    """The draw of where on the leg an interruption happens, from a third to two thirds."""
    wait: Floats
    """How long it lasts, in seconds."""
    pull: Floats
    """The draws of acceleration and braking."""
    brake: Floats


@dataclass(frozen=True, eq=False)
class Profile:
    """The phases of drives, the stand at the stop left out: a column for each of seven."""

    seconds: Floats
    speed: Floats
    distance: Floats
    """Covered since the stop when the phase begins."""
    acceleration: Floats
    hard: Flags
    """Where the driver did brake hard."""


def profile(drive: Drive) -> Profile:
    """Seven phases for each drive; the last ends at the next stop."""
    pull, brake = between(*ACCELERATION, drive.pull), between(*SERVICE_BRAKE, drive.brake)
    strong = between(*HARD_BRAKE, drive.brake)
    cruise = np.where(drive.hard, np.maximum(drive.cruise, HARD_FROM), drive.cruise)
    room = cruise**2 / (2 * pull) + cruise**2 / (2 * strong) + _STEADY * cruise
    hard = drive.hard & (room <= drive.distance)
    part = drive.distance * between(1 / 3, 2 / 3, drive.where)
    part = np.where(hard, np.maximum(part, room), np.where(drive.interrupted, part, 0.0))
    first = _hop(part, cruise, pull, np.where(hard, strong, brake))
    second = _hop(drive.distance - part, cruise, pull, brake)
    count, zero = len(part), np.zeros(len(part))
    wait = np.where(part > 0, drive.wait, 0.0)
    seconds = np.column_stack([first[0], first[1], first[2], wait, second[0], second[1], second[2]])
    speed = np.column_stack([zero, first[3], first[3], zero, zero, second[3], second[3]])
    acceleration = np.column_stack([pull, zero, -np.where(hard, strong, brake), zero, pull, zero, -brake])
    covered = speed * seconds + acceleration * seconds**2 / 2
    distance = np.concatenate([np.zeros((count, 1)), np.cumsum(covered, axis=1)[:, :-1]], axis=1)
    return Profile(seconds, speed, distance, acceleration, hard)


def _hop(
    distance: Floats, cruise: Floats, pull: Floats, brake: Floats
) -> tuple[Floats, Floats, Floats, Floats]:
    """From standing to standing: seconds of accelerating, cruising and braking, and the speed in between."""
    top = np.minimum(cruise, np.sqrt(2 * distance * pull * brake / (pull + brake)))
    rest = distance - top**2 / (2 * pull) - top**2 / (2 * brake)
    steady = np.divide(np.maximum(rest, 0), top, out=np.zeros_like(top), where=top > 0)
    return top / pull, steady, top / brake, top
