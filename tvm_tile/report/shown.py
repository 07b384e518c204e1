"""Reports, profiles and comparisons as users hold them: data that show themselves."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tvm_tile.files.json_data import revived, text_of
from tvm_tile.files.whole_file import replacing
from tvm_tile.report.coded_weights import render_coded
from tvm_tile.report.comparison import Delta, changes_between
from tvm_tile.report.compiled import ModelReport
from tvm_tile.report.detail import DETAILS, SORTS, Detail, Sort, check_word
from tvm_tile.report.profile import ModelProfile
from tvm_tile.report.screen.comparison import comparison_screen
from tvm_tile.report.screen.cover_drawing import draw_cover
from tvm_tile.report.screen.cover_text import render_cover
from tvm_tile.report.screen.decision_text import render_apart, render_joined
from tvm_tile.report.screen.drawing import draw
from tvm_tile.report.screen.kernel_table import render_kernels, sorted_by
from tvm_tile.report.screen.persistent_text import render_plans
from tvm_tile.report.screen.profile import profile_screen
from tvm_tile.report.screen.profile_json import profile_json
from tvm_tile.report.screen.summary import screen
from tvm_tile.report.screen.table import Part, lines_of
from tvm_tile.report.screen.text import WIDTH
from tvm_tile.report.screen.trace_file import trace_text
from tvm_tile.report.skipped_zeros import render_zeros
from tvm_tile.report.turned_weights import render_turned


@dataclass(frozen=True, slots=True)
class Report(ModelReport):
    """The report of a compilation: kernels, decisions, predicted times; ``explain()`` shows it."""

    def render(
        self, detail: Detail = "all", *, sort: Sort = "time", timing: tuple[float, float] = (0, 0)
    ) -> str:
        """Lines for people; arguments and errors are those of :meth:`parts`."""
        return "\n".join(lines_of(self.parts(detail, sort=sort, timing=timing)))

    def parts(
        self,
        detail: Detail = "all",
        *,
        sort: Sort = "time",
        timing: tuple[float, float] = (0, 0),
        width: int = WIDTH,
    ) -> list[Part]:
        """Lines and tables for people.

        Args:
            detail: ``"summary"`` is a screen. The rest is ``"kernels"``, ``"joined"`` and
                ``"apart"`` for what was made one kernel and what was not, ``"memory"`` for how
                weights are kept, or ``"all"``.
            sort: kernels that take most ``"time"`` first, those that move most ``"bytes"``, or by
                ``"name"``.
            timing: measured seconds of a run, and their spread; 0 where none were measured.
            width: characters of the screen's lines.

        Raises:
            OptionError: there is no such detail, or no such order.
        """
        check_word("detail", detail, DETAILS)
        check_word("sort", sort, SORTS)
        if detail == "summary":
            return [*screen(self, sort, *timing, width)]
        joined, apart = tuple(render_joined(self.decisions)), tuple(render_apart(self.decisions))
        kernels = [
            *render_kernels(sorted_by(self.kernels, sort)),
            *(f"fell back: {k.name} ({k.operators}): {k.fallback}" for k in self.fallbacks),
        ]
        memory = [
            *render_turned(self.turned),
            *render_coded(self.coded),
            *render_zeros(self.zeros),
        ]
        cover = tuple(render_cover(self.cover, self.how))
        sections: dict[str, list[Part]] = {
            "kernels": [*kernels, *cover],
            "joined": [*joined, *render_plans(self.plans, ())],
            "apart": [*apart, *render_plans((), self.left_apart)],
            "memory": [*memory, *self._memory()],
        }
        if detail != "all":
            return sections[detail]
        groups = [*joined, *apart, *render_plans(self.plans, self.left_apart)]
        return [*kernels, *groups, *memory, *cover, *self._totals(), *self.notes]

    def _memory(self) -> Iterator[str]:
        """Lines about the device's memory."""
        yield f"constants: {self.weights / 1e6:.2f} MB"
        if self.planned:
            shared = f"{self.planned / 1e6:.2f} MB, shared by those that are not needed at once"
            yield f"between kernels, outputs included: {shared}"

    def _totals(self) -> Iterator[str]:
        """Lines about all kernels, and about how long they took to compile."""
        own = len(self.kernels) - len(self.fallbacks)
        yield (
            f"{len(self.kernels)} kernels for {self.device}: {own} scheduled by tiles, "
            f"{len(self.fallbacks)} fell back"
        )
        seconds = sum(kernel.seconds for kernel in self.kernels)
        traffic = sum(kernel.traffic for kernel in self.kernels)
        yield (
            f"each launched once: {seconds * 1e6:.1f} us {self.how} (without fallbacks), "
            f"{traffic / 1e6:.2f} MB of traffic"
        )
        run = f"{self.at_least}{self.predicted_seconds * 1e6:.1f} us {self.how}"
        yield f"one run: {self.launch_count} launches, {run}, with a warm cache"
        if self.launches is not None:
            yield self.launches.describe()
        if self.stages:
            spent = ", ".join(f"{stage.name} {stage.seconds:.2f}" for stage in self.stages)
            yield f"compiled in {sum(stage.seconds for stage in self.stages):.2f} s: {spent}"

    def draw(self) -> str:
        """The text of an SVG file that shows what was joined;
        see :mod:`tvm_tile.report.screen.drawing`."""
        return draw(self.decisions)

    def draw_extents(self) -> str:
        """The text of an SVG file of times over open extents: of all kernels that have tiles by
        these, then of each; see :mod:`tvm_tile.report.screen.cover_drawing`."""
        return draw_cover(self.cover, self.how)

    def to_json(self) -> str:
        """Text that :meth:`from_json` reads back."""
        return text_of(self)

    @classmethod
    def from_json(cls, text: str) -> Report:
        """The report that :meth:`to_json` wrote."""
        # Models that were saved before there were decisions, or plans, have none.
        report: Report = revived(cls, json.loads(text))
        return report


@dataclass(frozen=True, slots=True)
class Profile(ModelProfile):
    """Some runs of a model, one after another, each from an idle device.

    ``str()`` is a screen for people.

    Attributes:
        report: report of the compilation, with the predicted times.
        source: name of the profiler that measured the activities, for people.
        seconds: median of the runs that nothing watched.
        spread: their interquartile range, seconds.
        runs: activities of the device in each run that was watched, one at least; seconds of each
            activity count from when the host began its run.
        veus: when the rTasks of persistent kernels ran, if that was asked for.
    """

    report: Report

    def __str__(self) -> str:
        return "\n".join(self.screen())

    def screen(self, width: int = WIDTH) -> Iterator[str]:
        """Lines of at most ``width`` characters, 80 or more, for people."""
        return profile_screen(self, width)

    def to_json(self) -> str:
        """The profile as JSON, whose fields :mod:`tvm_tile.report.screen.profile_json` tells."""
        return profile_json(self)

    def trace(self) -> str:
        """The typical run as the text of a trace of Chrome's format."""
        return trace_text(self)

    def save_trace(self, path: str | Path) -> None:
        """Write :meth:`trace` to a file, which https://ui.perfetto.dev opens.

        Args:
            path: the file's path; an existing file is replaced only once the new one is complete.

        Raises:
            OSError: the file cannot be written.
        """
        with replacing(Path(path)) as file:
            file.write(self.trace().encode())


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two compilations side by side. ``str()`` is a screen for people.

    Attributes:
        first: the report of one of them; so is ``second``.
        seconds: seconds of a run of each side.
        is_measured: whether times are measured; else they are predicted.
        changes: changes, the largest first. Their seconds add up to those of all kernels.
    """

    first: Report
    second: Report
    seconds: tuple[float, float]
    is_measured: bool
    changes: tuple[Delta, ...]

    @property
    def gained(self) -> tuple[Delta, ...]:
        """Changes that take less time on the second side."""
        return tuple(change for change in self.changes if change.difference < 0)

    @property
    def lost(self) -> tuple[Delta, ...]:
        """Changes that take more time on the second side."""
        return tuple(change for change in self.changes if change.difference > 0)

    def __str__(self) -> str:
        return "\n".join(self.screen())

    def screen(self, width: int = WIDTH) -> Iterator[str]:
        """Lines of at most ``width`` characters, 80 or more, for people."""
        sides = self.first, self.second
        return comparison_screen(sides, self.seconds, self.is_measured, self.changes, width)


def compare_reports(first: Report, second: Report) -> Comparison:
    """Two compilations side by side, as predicted."""
    sides = [{k.name: k.run_seconds for k in report.kernels} for report in (first, second)]
    seconds = first.predicted_seconds, second.predicted_seconds
    return Comparison(first, second, seconds, False, changes_between(first, second, *sides))


def compare_profiles(first: Profile, second: Profile) -> Comparison:
    """Two compilations side by side, as measured."""
    sides = [{k.name: k.seconds for k in profile.kernels} for profile in (first, second)]
    changes = changes_between(first.report, second.report, *sides)
    return Comparison(first.report, second.report, (first.seconds, second.seconds), True, changes)
