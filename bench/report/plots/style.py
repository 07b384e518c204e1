"""What the pictures share: one colour and one mark for each system, type sizes, saving."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator
from PIL import Image

from bench.report.data import Column, Suite

# Told apart by people who confuse red and green: Okabe and Ito, "Color Universal Design", 2008.
_COLOURS = {
    "tvm_tile top1": "#0072B2",
    "tvm_tile top10": "#56B4E9",
    "torch": "#E69F00",
    "torch_graph": "#8C5A00",
    "torch_compile": "#D55E00",
    "dlight": "#009E73",
    "metaschedule": "#CC79A7",
    "jax": "#000000",
}
# For what comes later, from Paul Tol's "muted" scheme.
SPARE = ("#332288", "#999933", "#882255", "#44AA99", "#AA4499", "#DDCC77", "#117733", "#BBBBBB")
_MARKS = {
    "tvm_tile top1": "o",
    "tvm_tile top10": "o",
    "torch": "s",
    "torch_graph": "P",
    "torch_compile": "D",
    "dlight": "^",
    "metaschedule": "v",
    "jax": "X",
}
_SETTINGS: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 9.0,
    "axes.titlesize": 10.0,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.grid.axis": "both",
    "axes.edgecolor": "#666666",
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "savefig.dpi": 150.0,
}
_PALETTE = 192
INK = "#222222"
# Inches of an average letter and of a line of the legend, at the size of the text.
_LETTER = 0.07
_LINE = 0.195


@contextmanager
def styled() -> Iterator[None]:
    """Draw and save inside: the caller's own settings stay as they are."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_SETTINGS)
        yield


def colours(columns: Iterable[Column]) -> dict[Column, str]:
    """A colour for each; unknown systems share out the spare ones in the order given."""
    own = list(columns)
    unknown = [column for column in own if str(column) not in _COLOURS]
    spare = {column: SPARE[i % len(SPARE)] for i, column in enumerate(unknown)}
    return {column: _COLOURS.get(str(column)) or spare[column] for column in own}


def mark(column: Column) -> str:
    """Its marker, so that colour does not have to tell systems apart alone."""
    return _MARKS.get(str(column), "h")


def gpu(suite: Suite) -> str:
    """The name of the GPU, or the names."""
    return ", ".join(sorted({record.gpu for record in suite.records if record.gpu}))


@dataclass(frozen=True, slots=True)
class Header:
    """Title, explanation and legend at the top left, in sizes that do not depend on the figure's.

    Attributes:
        title: in bold.
        note: one line, how to read the picture.
        columns: systems in the legend, each with trials and version.
        suite: whose columns they are.
    """

    title: str
    note: str
    columns: Sequence[Column]
    suite: Suite

    def height(self, width: float) -> float:
        """Inches that it takes from the top of a figure of this many inches."""
        return 0.65 + _LINE * -(-len(self.columns) // self._entries(width))

    def draw(self, figure: Figure) -> None:
        """Write it."""
        width, height = figure.get_size_inches()
        titles(figure, self.title, self.note)
        paint = colours(self.suite.columns)
        handles = [
            Line2D([], [], color=paint[c], marker=mark(c), linestyle="", label=self.suite.label(c))
            for c in self.columns
        ]
        figure.legend(handles=handles, ncols=self._entries(width), loc="upper left",
                      bbox_to_anchor=(0, 1 - 0.58 / height), borderpad=0.3, handletextpad=0.2,
                      columnspacing=1.5, labelspacing=0.4)  # fmt: skip

    def _entries(self, width: float) -> int:
        """How many entries of the legend are side by side."""
        longest = max(len(self.suite.label(column)) for column in self.columns)
        fitting = int((width - 0.2) / (0.45 + _LETTER * longest))
        return max(1, min(fitting, len(self.columns)))


def titles(figure: Figure, title: str, note: str) -> None:
    """A title in bold and one line of explanation, at the top left."""
    width, height = figure.get_size_inches()
    left = 0.12 / width
    figure.text(left, 1 - 0.1 / height, title, fontsize=13, fontweight="bold", color=INK,
                va="top")  # fmt: skip
    figure.text(left, 1 - 0.39 / height, note, color="#555555", va="top")


def ratio_axis(axes: Axes, low: float, high: float) -> None:
    """A logarithmic x axis with ticks such as 0.5, 1, 2 and 5 where there is room for them."""
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    span = high / low
    steps: tuple[float, ...] = (1.0,) if span > 300 else (1.0, 2.0, 5.0)
    steps = (1.0, 1.5, 2.0, 3.0, 5.0, 7.0) if span < 10 else steps
    decades = [10.0**exponent for exponent in range(-6, 7)]
    ticks = [tick for d in decades for step in steps if low <= (tick := d * step) <= high]
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def save(figure: Figure, path: Path) -> Path:
    """Write a PNG whose bytes depend on nothing but the picture.

    A palette makes it a third as large: these files are committed again and again.
    """
    with io.BytesIO() as memory:
        figure.savefig(memory, format="png", facecolor="white")
        with Image.open(memory) as image:
            palette = image.convert("RGB").quantize(_PALETTE, dither=Image.Dither.NONE)
    palette.save(path, optimize=True)
    return path
