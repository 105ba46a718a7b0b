"""A leg is the drive of a vehicle from one stop to the next: eight phases of constant acceleration.

    stand at the stop · accelerate · cruise · brake · stand in traffic · accelerate · cruise · brake

The first three phases of the drive lead to an interruption: a red light, or an obstacle that makes the driver
brake hard. Without an interruption they take no time.
"""

from dataclasses import dataclass, fields
from typing import Self

import numpy as np

from millrace.ingest.connectors.simulator.chance import Flags, Floats, Ints, interpolate

PHASES = 8
STANDING, BRAKING = 0, 3
"""Phases by number: at the stop, and before an interruption."""

ACCELERATION = 0.6, 1.2
SERVICE_BRAKE = 0.6, 0.9
"""Least and greatest usual deceleration, in m/s². From 10 m/s to walking speed it takes 10 s: not an
emergency stop."""
HARD_BRAKE = 3.0, 6.0
MIN_HARD_BRAKE_SPEED = 11.5
"""The least speed before a hard stop, in m/s."""
_DOOR_OPENING, _DOOR_CLOSING, _MAX_BOARDING = 1_500, 2_500, 45_000
"""Milliseconds that doors take to open after the arrival, that they are closed before the departure, and that
they are open at most."""
_CRUISE_BEFORE_HARD_BRAKE = 2.5
"""Seconds of cruising before a driver brakes hard."""


@dataclass(frozen=True, eq=False)
class Legs:
    """One leg in each row. Times are milliseconds since the epoch; phases are columns of the arrays of two
    dimensions.
    """

    vehicle: Ints
    trip: Ints
    directed_route: Ints
    """The number of the way in `Routes`."""
    leg_index: Ints
    """The position of the leg on its way, from 0."""
    leg: Ints
    """The number of the leg in `Routes`."""
    delay: Ints
    """Seconds behind the timetable at the departure."""
    scheduled: Ints
    """The scheduled departure of the trip from its first stop."""
    has_hard_brake: Flags
    begin: Ints
    """By phase."""
    end: Ints
    speed: Floats
    """The beginning of each phase."""
    odometer: Floats
    """When the phase begins, from the first stop."""
    acceleration: Floats

    def __len__(self) -> int:
        return len(self.vehicle)

    def select(self, selection: Ints | Flags) -> Self:
        """Some of them."""
        return type(self)(**{field.name: getattr(self, field.name)[selection] for field in fields(self)})

    def doors(self) -> tuple[Ints, Ints]:
        """When doors open after the arrival, and close before the departure. In a long stand they open at its
        end.
        """
        closed = self.end[:, STANDING] - _DOOR_CLOSING
        return np.maximum(self.begin[:, STANDING] + _DOOR_OPENING, closed - _MAX_BOARDING), closed

    def replace_rows(self, selection: Ints, others: "Legs") -> None:
        """Replaces the legs at these rows."""
        for field in fields(self):
            getattr(self, field.name)[selection] = getattr(others, field.name)


def concat_legs(parts: "list[Legs]") -> Legs:
    """Concatenates legs."""
    return Legs(
        **{
            field.name: np.concatenate([getattr(part, field.name) for part in parts])
            for field in fields(Legs)
        }
    )


@dataclass(frozen=True, eq=False)
class Drive:
    """The random parts of a drive. Draws are uniform numbers between 0 and 1."""

    distance: Floats
    cruise: Floats
    """The speed that the driver aims at."""
    is_interrupted: Flags
    """Whether a red light interrupts the drive."""
    wants_hard_brake: Flags
    """Whether the driver brakes hard, if the distance allows it."""
    interruption_draw: Floats
    """The draw for the place of an interruption, between one and two thirds of the leg."""
    wait: Floats
    """The length of an interruption, in seconds."""
    acceleration_draw: Floats
    """The draws for acceleration and braking."""
    braking_draw: Floats


@dataclass(frozen=True, eq=False)
class DriveProfile:
    """The seven phases of drives, without the stand at the stop: a column each."""

    seconds: Floats
    speed: Floats
    distance: Floats
    """Metres since the stop at the beginning of the phase."""
    acceleration: Floats
    has_hard_brake: Flags
    """Whether the driver braked hard."""


def build_profile(drive: Drive) -> DriveProfile:
    """The seven phases of each drive. The last one ends at the next stop."""
    rate = interpolate(*ACCELERATION, drive.acceleration_draw)
    brake = interpolate(*SERVICE_BRAKE, drive.braking_draw)
    hard_brake = interpolate(*HARD_BRAKE, drive.braking_draw)
    cruise = np.where(drive.wants_hard_brake, np.maximum(drive.cruise, MIN_HARD_BRAKE_SPEED), drive.cruise)
    needed = cruise**2 / (2 * rate) + cruise**2 / (2 * hard_brake) + _CRUISE_BEFORE_HARD_BRAKE * cruise
    has_hard_brake = drive.wants_hard_brake & (needed <= drive.distance)
    interruption = _interruption_distance(drive, has_hard_brake, needed)
    first_brake = np.where(has_hard_brake, hard_brake, brake)
    first = _drive_and_stop(interruption, cruise, rate, first_brake)
    second = _drive_and_stop(drive.distance - interruption, cruise, rate, brake)
    zero = np.zeros(len(interruption))
    wait = np.where(interruption > 0, drive.wait, 0.0)
    seconds = np.column_stack([first[0], first[1], first[2], wait, second[0], second[1], second[2]])
    speed = np.column_stack([zero, first[3], first[3], zero, zero, second[3], second[3]])
    acceleration = np.column_stack([rate, zero, -first_brake, zero, rate, zero, -brake])
    covered = speed * seconds + acceleration * seconds**2 / 2
    distance = np.concatenate([zero[:, None], np.cumsum(covered, axis=1)[:, :-1]], axis=1)
    return DriveProfile(seconds, speed, distance, acceleration, has_hard_brake)


def _interruption_distance(drive: Drive, has_hard_brake: Flags, needed: Floats) -> Floats:
    """Metres from the stop to the interruption; 0 without one. A hard stop is not before `needed` metres."""
    place = drive.distance * interpolate(1 / 3, 2 / 3, drive.interruption_draw)
    without_hard_brake = np.where(drive.is_interrupted, place, 0.0)
    return np.where(has_hard_brake, np.maximum(place, needed), without_hard_brake)


def _drive_and_stop(
    distance: Floats, cruise: Floats, acceleration: Floats, brake: Floats
) -> tuple[Floats, Floats, Floats, Floats]:
    """Between two stands: seconds of accelerating, cruising and braking, and the cruising speed."""
    top_speed = np.minimum(cruise, np.sqrt(2 * distance * acceleration * brake / (acceleration + brake)))
    cruise_distance = distance - top_speed**2 / (2 * acceleration) - top_speed**2 / (2 * brake)
    cruise_seconds = np.divide(
        np.maximum(cruise_distance, 0), top_speed, out=np.zeros_like(top_speed), where=top_speed > 0
    )
    return top_speed / acceleration, cruise_seconds, top_speed / brake, top_speed
