"""Where plans and machine code of earlier compilations are kept, of this very code."""

from __future__ import annotations

import functools
import os
import time
from pathlib import Path

from tvm_tile import compat
from tvm_tile._version import __version__
from tvm_tile.options import Options
from tvm_tile.plan.store import Store, cache_folder, fingerprint

_IMPORTED = time.time()


def open_store(options: Options) -> Store | None:
    """Where plans and machine code are kept; None for nowhere."""
    folder = cache_folder(options.cache, os.environ)
    code = None if folder is None else _own_fingerprint()
    if folder is None or code is None:
        return None
    version = " ".join((__version__, *compat.installed_versions(), code))
    return Store(folder, version, options.cache_bytes)


@functools.cache
def _own_fingerprint() -> str | None:
    return fingerprint(Path(__file__).parent, _IMPORTED)
