"""Guards around a whole compilation: one runs at a time, and only errors of ours leave it."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tvm_tile.errors import BuildError, TileError
from tvm_tile.registered.errors import let_errors_through

Progress = Callable[[str, int, int], None]

# TVM's operators' tags, its builders' scopes and what importers do to standard output belong to the
# process. Kernels are compiled in threads of their own, within.
_COMPILING = threading.RLock()
_MORE_RARELY = 16


@contextmanager
def one_compilation() -> Iterator[None]:
    """Wait for other threads' compilations; afterwards let out no errors but typed ones.

    Raises:
        BuildError: TVM, or a pass of ours, raised something else.
    """
    let_errors_through()
    with _COMPILING, _former_objects_left_alone():
        try:
            yield
        except _Told as told:
            raise told.error from None
        except TileError:
            raise
        except Exception as error:
            text = str(error).strip().partition("\n")[0]
            raise BuildError(
                "TVM and tvm_tile must take the model through every stage",
                f"{type(error).__name__}: {text}",
                "report it, with the model",
            ) from error


@contextmanager
def _former_objects_left_alone() -> Iterator[None]:
    """Meanwhile Python's garbage collector looks at no object that was there before: to look at
    those of PyTorch, TVM and the model takes it tenths of a second. At what a compilation makes,
    most of which stays until it ends, it looks more rarely, or that takes a second of 30."""
    if gc.get_freeze_count():  # somebody else's, who may count on it
        yield
        return
    first, *others = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(_MORE_RARELY * first, *others)
    try:
        yield
    finally:
        gc.set_threshold(first, *others)
        gc.unfreeze()


def told_apart(progress: Progress | None) -> Progress | None:
    """``progress``, whose own errors leave :func:`one_compilation` as they are."""
    if progress is None:
        return None

    def tell(name: str, done: int, total: int) -> None:
        try:
            progress(name, done, total)
        except Exception as error:
            raise _Told(error) from error

    return tell


class _Told(BaseException):
    """An error of the caller's own function."""

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.error = error
