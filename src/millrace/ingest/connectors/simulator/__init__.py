"""A simulated city: vehicles on routes. Volume, lateness and duplicates of their messages are like real ones.

    streets ──▶ routes ──▶ fleet ──▶ arrivals ──▶ connector
    from seed   stops and  legs from  when each    what is due
                timetable  stop to    message
                           stop       comes

There is no state of a random generator: each random number is a hash of the seed and its subject
(`chance.py`). So the position of a vehicle depends only on seed and time, and a city that is started again
continues as if it had never stopped.
"""

from millrace.ingest.connectors.simulator.connector import Simulator

__all__ = ["Simulator"]
