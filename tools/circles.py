"""Fail when files of the package import each other in a circle, in functions or for types, too.

Usage: python -m tools.circles

Import-linter's contract of acyclic siblings finds circles of folders, and of files beside each
other; this finds those through a package's ``__init__``, too.
"""

from __future__ import annotations

import sys
from graphlib import CycleError, TopologicalSorter

import grimp

PACKAGE = "tvm_tile"


def main() -> int:
    """Print a circle; 1 where there is one."""
    graph = grimp.build_graph(PACKAGE, cache_dir=None)
    imported = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    try:
        TopologicalSorter(imported).prepare()
    except CycleError as error:
        print(" imports ".join(reversed(error.args[1])))
        return 1
    print(f"{len(imported)} files without a circle")
    return 0


if __name__ == "__main__":
    sys.exit(main())
