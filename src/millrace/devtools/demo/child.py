"""`python -m millrace.devtools.demo.child PARENT ARGUMENT...` runs `millrace ARGUMENT...`, and ends with its
parent.
"""

import os
import runpy
import sys

from millrace.runners.processes import die_with_parent

if __name__ == "__main__":
    die_with_parent()
    if os.getppid() != int(sys.argv[1]):
        sys.exit(1)
    sys.argv[:] = ["millrace", *sys.argv[2:]]
    runpy.run_module("millrace.cli.main", run_name="__main__")
