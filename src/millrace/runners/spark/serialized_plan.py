"""A plan on its way to the workers: bytes that each process unpacks once."""

from __future__ import annotations

import gc
import hashlib
import pickle
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from millrace.engine.plan import Plan

_UNPACKED: dict[str, Plan] = {}


@dataclass(frozen=True)
class SerializedPlan:
    """A plan as bytes. Copying it about costs nothing; unpacking it imports the job's modules."""

    body: bytes
    digest: str

    @staticmethod
    def pack(plan: Plan) -> SerializedPlan:
        """Pickles a plan."""
        body = pickle_by_value(plan)
        return SerializedPlan(body, hashlib.sha256(body).hexdigest())

    def unpack(self) -> Plan:
        """The plan; it is unpickled once per process."""
        plan = _UNPACKED.get(self.digest)
        if plan is None:
            plan = _UNPACKED[self.digest] = pickle.loads(self.body)  # noqa: S301 - our own bytes, sent by our own driver
            gc.collect()
            gc.freeze()
        return plan


def pickle_by_value(value: object) -> bytes:
    """By cloudpickle, as jobs hold lambdas.
    Polars looks for it under its own name; Spark brings it along under another.
    """
    from pyspark import cloudpickle

    sys.modules.setdefault("cloudpickle", cloudpickle)
    return cast(bytes, cloudpickle.dumps(value))  # type: ignore[no-untyped-call] # pyspark has not typed it
