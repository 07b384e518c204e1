"""Two pictures of each GPU: speed-ups over more and more vectors, and shares of the floor."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench.low_bit.formats import FORMATS
from bench.low_bit.products import PREFILL, VECTORS, family_of
from bench.low_bit.record import CUBLAS
from bench.low_bit.summary import Results
from bench.report.plots.style import INK, SPARE, styled, titles

_FAMILIES = (*map(family_of, VECTORS), PREFILL)
_LABELS = (*map(str, VECTORS), "prefill")
_COLOURS = dict(zip(FORMATS, ("#0072B2", "#E69F00", "#D55E00", *SPARE), strict=False))
_MARKS = dict(zip(FORMATS, "osD^vPXh*<>", strict=True))
_WIDTH, _ROW, _TOP, _GAP = 9.5, 3.2, 0.8, 0.75
_LEFT, _BETWEEN, _RIGHT = 0.8, 0.75, 1.45
_SHARE = 0.75  # of the floor, that is asked for


def draw(found: Mapping[str, Results], path: Path) -> Path | None:
    """Speed over cuBLAS beside the floor's share, a row for each GPU; ``None`` without any."""
    shown = {gpu: own for gpu, own in found.items() if own.right}
    if not shown:
        return None
    # Its bytes depend on nothing but the picture.
    with styled(), matplotlib.rc_context({"svg.hashsalt": "low_bit", "svg.fonttype": "none"}):
        height = _TOP + len(shown) * (_ROW + _GAP)
        figure = Figure(figsize=(_WIDTH, height))
        note = "Left: cuBLAS's float16 time over ours, geometric means. "
        note += f"Right: the floor's share of our time with one vector. Dashed: 1 and {_SHARE}."
        titles(figure, "Weights of a few bits", note)
        wide = (_WIDTH - _LEFT - _BETWEEN - _RIGHT) / 2 / _WIDTH
        for place, (gpu, own) in enumerate(shown.items()):
            bottom = 1 - (_TOP + (place + 1) * _ROW + place * _GAP) / height
            tall = (_ROW - 0.15) / height
            second = (_LEFT + _BETWEEN) / _WIDTH + wide
            _speed_ups(figure.add_axes((_LEFT / _WIDTH, bottom, wide, tall)), own, gpu)
            _floors(figure.add_axes((second, bottom, wide, tall)), own)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, format="svg", facecolor="white", metadata={"Date": None})
    return path


def _speed_ups(axes: Axes, results: Results, gpu: str) -> None:
    places = range(len(_FAMILIES))
    for form in FORMATS:
        means = [results.speed_up(family, form, CUBLAS) for family in _FAMILIES]
        _line(axes, form, {p: own.mean for p, own in zip(places, means, strict=True) if own})
    axes.axhline(1, color=INK, linewidth=0.8, linestyle="--")
    axes.set_xticks(list(places), _LABELS)
    axes.set_yscale("log", base=2)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_title(gpu)
    axes.set_xlabel("vectors")
    axes.set_ylabel("cuBLAS / ours")


def _floors(axes: Axes, results: Results) -> None:
    names = results.names("V")
    for form in FORMATS:
        own = results.reached("V", form)
        values = own.values if own else {}
        _line(axes, form, {p: values[name] for p, name in enumerate(names) if name in values})
    axes.axhline(_SHARE, color=INK, linewidth=0.8, linestyle="--")
    axes.set_xticks(range(len(names)), [name.removeprefix("V") for name in names])
    axes.set_xlabel("number of Ladder's V")
    axes.set_ylim(0, 1)
    axes.set_ylabel("floor / ours")
    if axes.lines[1:]:
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.02))


def _line(axes: Axes, form: str, points: Mapping[int, float]) -> None:
    if points:
        axes.plot(list(points), list(points.values()), color=_COLOURS[form], label=form,
                  marker=_MARKS[form], markersize=3.5, linewidth=0.8)  # fmt: skip
