"""The part of a compiled model that people read: reports, pages and verification."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from tvm_tile.build.program import Program
from tvm_tile.files.whole_file import replacing
from tvm_tile.report.detail import Detail, Sort
from tvm_tile.report.page.content import Content
from tvm_tile.report.shown import Profile, Report
from tvm_tile.report.verification import Verification
from tvm_tile.runtime.sources import record_of, sources_of


class ModelVerifier(Protocol):
    """Function that compares a compiled model with the one that it was compiled from."""

    def scripts(self) -> Mapping[str, str]:
        """The TensorIR of the kernels, by their names."""

    def __call__(self, compiled: Any, inputs: Sequence[Any] | None = None) -> Verification:
        """Compare a :class:`~tvm_tile.runtime.CompiledModel`, which has a method for that."""


class Explained:
    """A compiled model as far as people read about it.

    Args:
        program: the built program.
        device_name: the device's name, for people.
        report: report of the compilation.
        verifier: verifier as in :class:`~tvm_tile.runtime.CompiledModel`.
    """

    def __init__(
        self, program: Program, device_name: str, report: Report, verifier: ModelVerifier | None
    ) -> None:
        self.program = program
        self.device_name = device_name
        self.report = report
        self.verifier = verifier
        self._verified: Verification | None = None
        self._profile: Profile | None = None
        self._timing = 0.0, 0.0  # of the last measurement: median and spread

    def explain(self, detail: Detail = "summary", *, sort: Sort = "time") -> str:
        """Lines for people on a run's time and its causes, with the time that was last measured.

        Args:
            detail: ``"summary"``, the default, is a screen. The rest is ``"kernels"``,
                ``"joined"`` and ``"apart"`` for what was made one kernel and what was not,
                ``"memory"`` for how weights are kept, or ``"all"``.
            sort: kernels that take most ``"time"`` first, the default, those that move most
                ``"bytes"``, or by ``"name"``.

        Raises:
            OptionError: there is no such detail, or no such order.
        """
        return self.report.render(detail, sort=sort, timing=self._timing)

    def save_report(self, path: str | Path, *, title: str = "") -> None:
        """Write one HTML file that shows the model.

        It has the graph, with each kernel's time, tile, traffic and source; the roofline; memory
        over time; decisions; and what ``time()``, ``profile()`` and ``verify()`` found
        before. A browser needs no network for it. Saved models have no TensorIR, so that theirs
        shows none.

        Args:
            path: the file's path; an existing file is replaced only once the new one is complete.
            title: name of the model on the page; by default that of the file.

        Raises:
            OSError: the folder cannot be written.
        """
        from tvm_tile.report.page.html import render  # models run without a library for templates

        scripts = None if self.verifier is None else self.verifier.scripts()
        verified = None if self._verified is None else self._verified.for_page()
        content = Content(
            title or Path(path).stem,
            self.report,
            self._timing,
            sources_of(self.program, self.report, scripts),
            verified,
            record_of(self.device_name),
            self._profile,
        )
        with replacing(Path(path)) as file:
            file.write(render(content).encode())
