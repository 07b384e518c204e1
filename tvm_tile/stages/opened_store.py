"""Identity of this code, and the store of plans and machine code that it made earlier."""

from __future__ import annotations

import functools
import os
import time
from pathlib import Path

from tvm_tile import compat
from tvm_tile._version import __version__
from tvm_tile.files.store import Store, cache_folder, fingerprint
from tvm_tile.options import Options
from tvm_tile.report.origin import Origin

_IMPORTED = time.time()
_DIGITS = 8  # of the code's sum, for people


def open_store(options: Options) -> Store | None:
    """Store of plans and machine code; None for none."""
    folder = cache_folder(options.cache, os.environ)
    code = None if folder is None else _own_fingerprint()
    if folder is None or code is None:
        return None
    version = " ".join((__version__, *compat.installed_versions(), code))
    return Store(folder, version, options.cache_bytes)


def origin_of(options: Options) -> Origin:
    """Code and options, for the report of a model."""
    code, (tvm, _) = _own_fingerprint() or "", compat.installed_versions()
    return Origin(__version__, code[:_DIGITS], tvm, options.told())


@functools.cache
def _own_fingerprint() -> str | None:
    """Fingerprint of this package; ``None`` where its files are newer than the import."""
    return fingerprint(Path(__file__).parents[1], _IMPORTED)
