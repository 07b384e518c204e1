"""Builders of functions that failed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from tvm import relax

from tvm_tile import compat


@contextlib.contextmanager
def ending_blocks(builder: relax.BlockBuilder) -> Iterator[None]:
    """Where what is within fails, end the builder's open blocks, all of them.

    TVM would print on standard error that there are some, once nobody has the builder any more.
    """
    try:
        yield
    except BaseException:
        with contextlib.suppress(*compat.TVM_ERRORS):  # there is none left
            while True:
                builder._end_block()
        raise
