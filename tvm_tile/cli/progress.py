"""Show how far a compilation is: a bar on a terminal, one line a kernel anywhere else."""

from __future__ import annotations

import sys
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Column


class ConsoleProgress:
    """A ``progress`` argument for :func:`tvm_tile.compile` that writes to standard error.

    >>> with ConsoleProgress() as progress:  # doctest: +SKIP
    ...     model = tvm_tile.compile("detector.onnx", progress=progress)

    Args:
        lines: one a kernel on a terminal, too, instead of the bar.
    """

    def __init__(self, *, lines: bool = False) -> None:
        console = Console(stderr=True)
        self._bar: Progress | None = None
        if console.is_terminal and not lines:
            self._bar = Progress(
                BarColumn(bar_width=20),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                # Names of fused kernels can be longer than a terminal is wide.
                TextColumn(
                    "{task.description}", table_column=Column(no_wrap=True, overflow="ellipsis")
                ),
                console=console,
            )
            self._task = self._bar.add_task("kernels", total=None)

    def __enter__(self) -> ConsoleProgress:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, name: str, done: int, total: int) -> None:
        """One more kernel is built.

        Args:
            name: the kernel that was finished.
            done: number of kernels that are finished, this one included.
            total: number of all kernels.
        """
        if self._bar is not None:
            self._bar.update(self._task, description=name, completed=done, total=total)
        else:
            print(f"[{done}/{total}] {name}", file=sys.stderr, flush=True)
