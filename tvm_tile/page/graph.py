"""The graph of a page: each call of a kernel is a box, each tensor between two a line."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tvm_tile.graph.open_extents import variable
from tvm_tile.page.kernels import FELL_BACK, KernelView
from tvm_tile.page.layout import Layout, lay_out
from tvm_tile.page.numbers import bytes_text, share_text, time_text
from tvm_tile.plan.kernel_graph import KernelCall, KernelGraph
from tvm_tile.plan.report import Report
from tvm_tile.plan.short_names import SIGN, short, tail

BOX = (252.0, 62.0)
"""Width and height of a box in pixels."""

_TITLE, _LINE = 33, 40  # characters that a box has room for
_LABEL = 160  # those of what is heard, and of details
_APART = 70.0  # pixels between the graphs of two functions, with a heading
_INPUT, _OUTPUT, _ELSEWHERE = "input", "output", "elsewhere"


@dataclass(frozen=True, slots=True)
class Link:
    """A tensor that a box is given or makes, and the box at its other end.

    Attributes:
        box: number of that box.
        title: of that box.
        tensor: for people.
    """

    box: int
    title: str
    tensor: str


@dataclass(frozen=True, slots=True)
class Box:
    """A call, an input or an output.

    Attributes:
        number: of all boxes of the page.
        title: what the user calls it.
        names: all of that.
        lines: what else it says.
        kind: what bounds it, one of ``kernels.BOUNDS``; or ``"input"``, ``"output"``, or
            ``"elsewhere"`` of what no kernel of the report computes.
        kernel: number of the kernel that it calls; ``None`` where it calls none.
        heat: its time, as a part of the longest call's.
        place: its left upper corner.
        sizes: names and texts of what it is given besides, such as weights.
        takes: what it is given.
        gives: what it makes.
        find: all that a search looks into, in lower case.
    """

    number: int
    title: str
    names: tuple[str, ...]
    lines: tuple[str, ...]
    kind: str
    kernel: int | None
    heat: float
    place: tuple[float, float]
    sizes: tuple[tuple[str, str], ...]
    takes: tuple[Link, ...]
    gives: tuple[Link, ...]
    find: str

    @property
    def heading(self) -> str:
        """The title where there is more room."""
        return short(self.names, _LABEL) or self.title

    @property
    def label(self) -> str:
        """For those who hear the page."""
        *_, last = self.lines
        return f"{self.heading}, {last}"


@dataclass(frozen=True, slots=True)
class Line:
    """A tensor between two boxes.

    Attributes:
        maker, taker: numbers of the boxes.
        path: that it is drawn as, from ``top`` down.
        top: of its graph.
        tensor: for people.
    """

    maker: int
    taker: int
    path: str
    top: float
    tensor: str


@dataclass(frozen=True, slots=True)
class Shape:
    """The shape of a tensor, told below the box that makes it."""

    text: str
    place: tuple[float, float]


@dataclass(frozen=True, slots=True)
class GraphView:
    """The graphs of all functions of a model, one below the other.

    Attributes:
        boxes: by number.
        lines: between them.
        shapes: of what boxes make.
        headings: names of functions, and where they are told; none of a model of one.
        width, height: of all.
    """

    boxes: tuple[Box, ...]
    lines: tuple[Line, ...]
    shapes: tuple[Shape, ...]
    headings: tuple[tuple[str, float], ...]
    width: float
    height: float


def graph_view(report: Report, kernels: Sequence[KernelView]) -> GraphView:
    """The boxes and lines of a model; none where its graph is not known."""
    known = {kernel.report.name: kernel for kernel in kernels}
    extents = {variable(n, symbol.name): symbol.name for n, symbol in enumerate(report.symbols)}
    boxes: list[Box] = []
    lines: list[Line] = []
    shapes: list[Shape] = []
    headings, top, width = [], 0.0, 0.0
    for graph in report.graphs:
        if len(report.graphs) > 1:
            headings.append((graph.function, top + _APART / 2))
            top += _APART
        part = _Part(graph, known, extents, len(boxes), top)
        boxes += part.boxes()
        lines += part.lines()
        shapes += part.shapes()
        top, width = top + part.layout.height, max(width, part.layout.width)
    return GraphView(tuple(boxes), tuple(lines), tuple(shapes), tuple(headings), width, top)


class _Part:
    """The graph of one function: its inputs, then its calls, then its outputs are boxes."""

    def __init__(
        self,
        graph: KernelGraph,
        known: Mapping[str, KernelView],
        extents: Mapping[str, str],
        first: int,
        top: float,
    ) -> None:
        self._graph = graph
        self._known = known
        self._extents = extents
        self._first = first
        self._top = top
        self._calls = len(graph.inputs)
        self._outputs = self._calls + len(graph.calls)
        self._edges = sorted(self._all_edges(), key=lambda edge: (edge[1], edge[0]))
        count = self._outputs + len(graph.outputs)
        self.layout: Layout = lay_out(count, BOX, self._edges)
        self._longest = max((k.call_seconds for k in known.values()), default=0.0) or 1.0

    def _all_edges(self) -> Iterator[tuple[int, int, int]]:
        graph = self._graph
        makers = {tensor: n for n, (_, tensor) in enumerate(graph.inputs)}
        for number, call in enumerate(graph.calls):
            for tensor in filter(makers.__contains__, call.reads):
                yield makers[tensor], self._calls + number, tensor
            makers |= dict.fromkeys(call.writes, self._calls + number)
        for number, tensor in enumerate(graph.outputs):
            yield makers[tensor], self._outputs + number, tensor

    def boxes(self) -> list[Box]:
        graph, inputs = self._graph, [name for name, _ in self._graph.inputs]
        titles = [
            *inputs,
            *(self._title(call) for call in graph.calls),
            *(
                f"output {n}" if len(graph.outputs) > 1 else "output"
                for n in range(len(graph.outputs))
            ),
        ]
        takes: list[list[Link]] = [[] for _ in titles]
        gives: list[list[Link]] = [[] for _ in titles]
        for maker, taker, tensor in self._edges:
            text = self._text(tensor)
            takes[taker].append(Link(self._first + maker, titles[maker], text))
            gives[maker].append(Link(self._first + taker, titles[taker], text))
        ends = [*graph.inputs, *((_OUTPUT, tensor) for tensor in graph.outputs)]
        made = []
        for n, title in enumerate(titles):
            place = self.layout.corners[n]
            links = tuple(takes[n]), tuple(gives[n])
            at = self._first + n, (place[0], place[1] + self._top)
            if self._calls <= n < self._outputs:
                made.append(self._call(graph.calls[n - self._calls], title, *at, *links))
            else:
                end = n if n < self._calls else n - len(graph.calls)
                kind = _INPUT if n < self._calls else _OUTPUT
                lines = (self._text(ends[end][1]), kind)
                find = f"{title} {kind}".lower()
                made.append(Box(at[0], title, (), lines, kind, None, 0.0, at[1], (), *links, find))
        return made

    def _title(self, call: KernelCall) -> str:
        kernel = self._known.get(call.kernel)
        own = kernel.operators if kernel is not None else call.kernel
        return tail(call.names[0], _TITLE) if call.names else short((own,), _TITLE)

    def _call(
        self,
        call: KernelCall,
        title: str,
        number: int,
        place: tuple[float, float],
        takes: tuple[Link, ...],
        gives: tuple[Link, ...],
    ) -> Box:
        kernel = self._known.get(call.kernel)
        sizes = (("Constants", bytes_text(call.constant_bytes)),) if call.constant_bytes else ()
        find = " ".join((*call.names, call.kernel)).lower()
        if kernel is None:
            lines, own = (short((call.kernel,), _LINE), "no kernel of ours"), call.names
            return Box(
                number, title, own, lines, _ELSEWHERE, None, 0.0, place, sizes, takes, gives, find
            )
        find = f"{find} {kernel.report.operators} {kernel.report.rule}".lower()
        told = [time_text(kernel.call_seconds), share_text(kernel.share / kernel.report.calls)]
        timing = " · ".join([*(told if kernel.bound != FELL_BACK else []), kernel.bound])
        lines = (_rest(call.names) or short((kernel.operators,), _LINE), timing)
        heat = kernel.call_seconds / self._longest
        made = number, title, call.names, lines, kernel.bound, kernel.number, heat
        return Box(*made, place, sizes, takes, gives, find)

    def _shape(self, tensor: int) -> str:
        """Extents as the user calls them, and the type of an element."""
        own = self._graph.tensors[tensor]
        extents = "×".join(self._extents.get(extent, extent) for extent in own.shape)
        return f"{extents} {own.dtype}".strip()

    def _text(self, tensor: int) -> str:
        size = self._graph.tensors[tensor].size
        told = "of a size known in a call" if size is None else bytes_text(size)
        return f"{self._shape(tensor)}, {told}"

    def lines(self) -> Iterator[Line]:
        for (maker, taker, tensor), path in zip(self._edges, self.layout.lines, strict=True):
            text = self._text(tensor)
            yield Line(self._first + maker, self._first + taker, path, self._top, text)

    def shapes(self) -> Iterator[Shape]:
        """Once for each box that hands on tensors of one shape."""
        made: dict[int, set[str]] = {}
        for maker, _, tensor in self._edges:
            if maker >= self._calls:
                made.setdefault(maker, set()).add(self._shape(tensor))
        for maker, texts in made.items():
            x, y = self.layout.corners[maker]
            (text, *more) = sorted(texts)
            place = x + BOX[0] / 2 + 8, y + BOX[1] + self._top + 13
            yield Shape(f"{text} and {len(more)} more" if more else text, place)


def _output_names(count: int) -> list[str]:
    return [_OUTPUT] if count == 1 else [f"{_OUTPUT} {number}" for number in range(count)]


def _rest(names: Sequence[str]) -> str:
    """The names behind the first, without what they have in common with it."""
    _, *others = short(names, sys.maxsize).split(SIGN)
    return f"+ {short(others, _LINE)}" if others else ""
