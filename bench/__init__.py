"""Benchmarks and fault injection: what `millrace bench`,
`make chaos` and `make memory` run, in a checkout.
"""

import os
from pathlib import Path

ROOT = Path(__file__).parents[1]

# The child processes of benchmarks, Spark's workers among them, unpickle jobs that are defined here: they
# have to find this package.
_found = os.environ.get("PYTHONPATH", "").split(os.pathsep)
if str(ROOT) not in _found:
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, _found)])
