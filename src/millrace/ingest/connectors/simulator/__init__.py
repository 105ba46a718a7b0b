"""A simulated city: vehicles on routes whose messages are as late, as many and as doubled as real ones.

    streets ──▶ routes ──▶ fleet ──▶ arrivals ──▶ connector
    from seed   stops and  legs from  when each    what is due
                timetable  stop to    message
                           stop       comes

Nothing in it remembers a random generator: whatever is random is a hash of the seed and of what it is about (`chance.py`). So where a
vehicle is depends on the seed and the time alone, and a city that is started again goes on where it would have been.
"""

from millrace.ingest.connectors.simulator.connector import Simulator

__all__ = ["Simulator"]
