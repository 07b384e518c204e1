"""Identity of this code, and the store of plans and machine code that it made earlier."""

from __future__ import annotations

import functools
import os
import time
from pathlib import Path

from tvm_tile import compat
from tvm_tile._version import __version__
from tvm_tile.files.store import MODEL_FOLDER, Store, cache_folder, fingerprint
from tvm_tile.options import Options
from tvm_tile.report.origin import Origin

_IMPORTED = time.time()
_OF_PLANS = 4  # a quarter of the cache is plans and machine code, the rest whole models
_DIGITS = 8  # of the code's sum, for people


def open_store(options: Options) -> Store | None:
    """Store of plans and machine code; None for none."""
    return _opened(options, Path(), options.cache_bytes // _OF_PLANS)


def open_model_store(options: Options) -> Store | None:
    """Store of whole models, in a folder of its own; None for none."""
    most_bytes = options.cache_bytes - options.cache_bytes // _OF_PLANS
    return _opened(options, Path(MODEL_FOLDER), most_bytes)


def _opened(options: Options, inner: Path, most_bytes: int) -> Store | None:
    folder = cache_folder(options.cache, os.environ)
    code = None if folder is None else _own_fingerprint()
    if folder is None or code is None:
        return None
    version = " ".join((__version__, *compat.installed_versions(), code))
    return Store(folder / inner, version, most_bytes)


def origin_of(options: Options) -> Origin:
    """Code and options, for the report of a model."""
    code, (tvm, _) = _own_fingerprint() or "", compat.installed_versions()
    return Origin(__version__, code[:_DIGITS], tvm, options.told())


@functools.cache
def _own_fingerprint() -> str | None:
    """Fingerprint of this package; ``None`` where its files are newer than the import."""
    return fingerprint(Path(__file__).parents[1], _IMPORTED)
