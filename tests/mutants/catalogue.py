"""All wrong changes, in the order in which they are tried."""

from mutants.aggregates import AGGREGATES
from mutants.cells import CELLS
from mutants.chained import CHAINED
from mutants.frames import FRAMES
from mutants.keyed import KEYED
from mutants.machines import MACHINES
from mutants.own import OWN
from mutants.patterns import PATTERNS
from mutants.rows import ROWS
from mutants.slices import SLICES

MUTANTS = [*SLICES, *CELLS, *MACHINES, *PATTERNS, *ROWS, *KEYED, *FRAMES, *OWN, *AGGREGATES, *CHAINED]
