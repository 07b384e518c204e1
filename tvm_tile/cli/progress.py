"""Show how far a compilation is: a line that stays in its place, on a terminal; else, its end."""

from __future__ import annotations

import sys
import time
from types import TracebackType

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Column


class ConsoleProgress:
    """A ``progress`` argument for :func:`tvm_tile.compile` that writes to standard error.

    On a terminal it is one line: what is done, for how long, how many kernels are built and, as the
    last of them tell, how long the others take. A log gets one line in the end.

    >>> with ConsoleProgress() as progress:  # doctest: +SKIP
    ...     model = tvm_tile.compile("detector.onnx", progress=progress)

    Args:
        lines: one a kernel instead.
    """

    def __init__(self, *, lines: bool = False) -> None:
        self._lines = lines
        self._start, self._built = time.perf_counter(), 0
        console = Console(stderr=True)
        # Names of fused kernels can be longer than a terminal is wide.
        rest = Column(no_wrap=True, overflow="ellipsis", ratio=1)
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("left  {task.fields[name]}", table_column=rest),
            console=console,
            disable=lines or not console.is_terminal,
            expand=True,
            transient=True,
        )
        self._task = self._bar.add_task("import and fuse", total=None, name="")

    def __enter__(self) -> ConsoleProgress:
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._bar.stop()
        if kind is None and not self._lines:
            seconds = time.perf_counter() - self._start
            print(f"built {self._built} kernels in {seconds:.1f} s", file=sys.stderr, flush=True)

    def __call__(self, name: str, done: int, total: int) -> None:
        """One more kernel is built.

        Args:
            name: the kernel that was finished.
            done: number of kernels that are finished, this one included.
            total: number of all kernels.
        """
        self._built += 1
        if self._lines:
            print(f"[{done}/{total}] {name}", file=sys.stderr, flush=True)
        what = "build kernels" if done < total else "join and link"
        self._bar.update(self._task, description=what, completed=done, total=total, name=name)
