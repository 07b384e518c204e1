"""The graph of a page: each call of a kernel is a box, each tensor between two a line."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tvm_tile.graph.open_extents import variable
from tvm_tile.report.compiled import ModelReport
from tvm_tile.report.kernel_graph import KernelCall, KernelGraph
from tvm_tile.report.page.kernels import BoxKind, KernelView
from tvm_tile.report.page.layout import Plane, lay_out
from tvm_tile.report.page.numbers import bytes_text, share_text, time_text
from tvm_tile.report.screen.short_names import CUT, SIGN, cut, short

BOX = (252.0, 62.0)
"""Width and height of a box in pixels."""

_TITLE, _LINE = 33, 38  # characters that a box has room for
_LABEL = 160  # those of what is heard, and of details
_APART = 70.0  # pixels between the graphs of two functions, with a heading


@dataclass(frozen=True, slots=True)
class Link:
    """A tensor that a box is given or makes, and the box at its other end.

    Attributes:
        box: number of that box.
        title: title of that box.
        tensor: shape and dtype of the tensor, for people.
    """

    box: int
    title: str
    tensor: str


@dataclass(frozen=True, slots=True)
class Box:
    """A call, an input or an output.

    Attributes:
        number: number among all boxes of the page.
        title: name in the user's model.
        names: all of its names in the user's model.
        told: all of its names, and its operators, for who points at it.
        lines: further lines of text.
        kind: kind of the box.
        kernel: number of the kernel that it calls; ``None`` where it calls none.
        heat: its time, as a share of the longest call's.
        place: its left upper corner.
        sizes: names and texts of its other inputs, such as weights.
        takes: tensors that it is given.
        gives: tensors that it makes.
        find: all that a search looks into, in lower case.
        inside: place where its own graph begins, if it calls a function of the model.
    """

    number: int
    title: str
    names: tuple[str, ...]
    told: str
    lines: tuple[str, ...]
    kind: BoxKind
    kernel: int | None
    heat: float
    place: tuple[float, float]
    sizes: tuple[tuple[str, str], ...]
    takes: tuple[Link, ...]
    gives: tuple[Link, ...]
    find: str
    inside: tuple[Link, ...] = ()

    @property
    def is_cut(self) -> bool:
        """Whether its texts leave something out."""
        shown = self.title, *self.lines
        return any(sign in text for text in shown for sign in (CUT, " more"))

    @property
    def heading(self) -> str:
        """The title where there is more room."""
        return short(self.names, _LABEL) or self.title

    @property
    def label(self) -> str:
        """The text that is read out to who hears the page."""
        *_, last = self.lines
        return f"{self.heading}, {last}"


@dataclass(frozen=True, slots=True)
class Arrow:
    """A tensor between two boxes.

    Attributes:
        maker, taker: numbers of the boxes.
        path: path that it is drawn as, from ``top`` down.
        top: top of its graph.
        tensor: shape and dtype of the tensor, for people.
    """

    maker: int
    taker: int
    path: str
    top: float
    tensor: str


@dataclass(frozen=True, slots=True)
class Label:
    """The shape of a tensor, told below the box that makes it."""

    text: str
    place: tuple[float, float]


@dataclass(frozen=True, slots=True)
class GraphView:
    """The graphs of all functions of a model, one below the other.

    Attributes:
        boxes: boxes by number.
        lines: between them.
        shapes: shapes of the tensors that boxes make.
        headings: names of functions, and where they are told; none of a model of one.
        width, height: of all.
    """

    boxes: tuple[Box, ...]
    lines: tuple[Arrow, ...]
    shapes: tuple[Label, ...]
    headings: tuple[tuple[str, float], ...]
    width: float
    height: float

    @property
    def calls(self) -> Mapping[int, tuple[Link, ...]]:
        """Number of a kernel -> all boxes that call it."""
        found: dict[int, list[Link]] = {}
        for box in self.boxes:
            if box.kernel is not None:
                found.setdefault(box.kernel, []).append(Link(box.number, box.heading, ""))
        return {kernel: tuple(links) for kernel, links in found.items()}


def graph_view(report: ModelReport, kernels: Sequence[KernelView]) -> GraphView:
    """The boxes and lines of a model; none where its graph is not known."""
    known = {kernel.report.name: kernel for kernel in kernels}
    extents = {variable(n, symbol.name): symbol.name for n, symbol in enumerate(report.symbols)}
    functions = _beginnings(report.graphs)
    boxes: list[Box] = []
    lines: list[Arrow] = []
    shapes: list[Label] = []
    headings, top, width = [], 0.0, 0.0
    for graph in report.graphs:
        if len(report.graphs) > 1:
            headings.append((graph.function, top + _APART / 2))
            top += _APART
        part = _Drawing(graph, known, functions, extents, len(boxes), top)
        boxes += part.boxes()
        lines += part.lines()
        shapes += part.shapes()
        top, width = top + part.layout.height, max(width, part.layout.width)
    return GraphView(tuple(boxes), tuple(lines), tuple(shapes), tuple(headings), width, top)


def _beginnings(graphs: Sequence[KernelGraph]) -> Mapping[str, Link]:
    """Name of a function of the model -> its first box."""
    found, number = {}, 0
    for graph in graphs:
        found[graph.function] = Link(number, f"the graph of {graph.function}", "")
        number += len(graph.inputs) + len(graph.calls) + len(graph.outputs)
    return found


class _Drawing:
    """The graph of one function: its inputs, then its calls, then its outputs are boxes."""

    def __init__(
        self,
        graph: KernelGraph,
        known: Mapping[str, KernelView],
        functions: Mapping[str, Link],
        extents: Mapping[str, str],
        first: int,
        top: float,
    ) -> None:
        self._graph = graph
        self._known = known
        self._functions = functions
        self._extents = extents
        self._first = first
        self._top = top
        self._calls = len(graph.inputs)
        self._outputs = self._calls + len(graph.calls)
        self._edges = sorted(self._all_edges(), key=lambda edge: (edge[1], edge[0], edge[2]))
        count = self._outputs + len(graph.outputs)
        self.layout: Plane = lay_out(count, BOX, self._edges)
        self._longest = max((k.call_seconds for k in known.values()), default=0.0) or 1.0

    def _all_edges(self) -> Iterator[tuple[int, int, int]]:
        """Edges of the graph: maker, taker and tensor, the ends of the graph included."""
        graph = self._graph
        makers = {tensor: n for n, (_, tensor) in enumerate(graph.inputs)}
        for number, call in enumerate(graph.calls):
            for tensor in filter(makers.__contains__, call.reads):
                yield makers[tensor], self._calls + number, tensor
            makers |= dict.fromkeys(call.writes, self._calls + number)
        for number, tensors in enumerate(graph.outputs):
            for tensor in filter(makers.__contains__, tensors):
                yield makers[tensor], self._outputs + number, tensor

    def boxes(self) -> Iterator[Box]:
        """Boxes: for each input, then for each call, then for each output."""
        graph, texts = self._graph, self._text
        ends = [(name, texts(tensor), BoxKind.INPUT) for name, tensor in graph.inputs]
        several = len(graph.outputs) > 1
        for number, tensors in enumerate(graph.outputs):
            name = f"output {number}" if several else "output"
            told = " or ".join(dict.fromkeys(map(texts, tensors))) or "a constant"
            ends.append((name, told, BoxKind.OUTPUT))
        inputs, outputs = ends[: self._calls], ends[self._calls :]
        titles = [
            *(name for name, _, _ in inputs),
            *map(self._title, graph.calls),
            *(name for name, _, _ in outputs),
        ]
        ways = self._links(titles)
        for number, end in enumerate(inputs):
            yield self._end(number, *end, ways[number])
        for number, call in enumerate(graph.calls, self._calls):
            yield self._call(number, titles[number], call, ways[number])
        for number, end in enumerate(outputs, self._outputs):
            yield self._end(number, *end, ways[number])

    def _links(self, titles: Sequence[str]) -> list[tuple[tuple[Link, ...], tuple[Link, ...]]]:
        """Links of each box to the boxes that it takes from and gives to."""
        takes: list[list[Link]] = [[] for _ in titles]
        gives: list[list[Link]] = [[] for _ in titles]
        for maker, taker, tensor in self._edges:
            text = self._text(tensor)
            takes[taker].append(Link(self._first + maker, titles[maker], text))
            gives[maker].append(Link(self._first + taker, titles[taker], text))
        return [(tuple(own), tuple(other)) for own, other in zip(takes, gives, strict=True)]

    def _place(self, number: int) -> tuple[float, float]:
        """Left upper corner of a box on the page."""
        x, y = self.layout.corners[number]
        return x, y + self._top

    def _end(
        self,
        number: int,
        title: str,
        told: str,
        kind: BoxKind,
        ways: tuple[tuple[Link, ...], tuple[Link, ...]],
    ) -> Box:
        """The box of an input or an output."""
        return Box(
            number=self._first + number,
            title=cut(title, _TITLE),
            names=(),
            told=title,
            lines=(told, kind.value),
            kind=kind,
            kernel=None,
            heat=0.0,
            place=self._place(number),
            sizes=(),
            takes=ways[0],
            gives=ways[1],
            find=f"{title} {kind.value}".lower(),
        )

    def _title(self, call: KernelCall) -> str:
        """Title of a call: its value's name in the user's model, or its operators."""
        kernel = self._known.get(call.kernel)
        own = kernel.operators if kernel is not None else call.kernel
        return cut(call.names[0] if call.names else own, _TITLE)

    def _call(
        self,
        number: int,
        title: str,
        call: KernelCall,
        ways: tuple[tuple[Link, ...], tuple[Link, ...]],
    ) -> Box:
        """The box of a call."""
        kernel = self._known.get(call.kernel)
        made = self._end(number, title, cut(call.kernel, _LINE), self._kind(call), ways)
        find = " ".join((*call.names, call.kernel)).lower()
        told = "\n".join((*call.names, call.kernel if kernel is None else kernel.operators))
        constants = (("Constants", bytes_text(call.constant_bytes)),)
        sizes = constants if call.constant_bytes else ()
        made = replace(made, names=call.names, told=told, find=find, sizes=sizes)
        if kernel is None:
            own = self._functions.get(call.kernel)
            return made if own is None else replace(made, inside=(own,))
        each = [time_text(kernel.call_seconds), share_text(kernel.share / kernel.report.calls)]
        timing = [*(each if kernel.kind is not BoxKind.FELL_BACK else []), kernel.kind.value]
        return replace(
            made,
            lines=(_rest(call.names) or cut(kernel.operators, _LINE), " · ".join(timing)),
            kernel=kernel.number,
            heat=kernel.call_seconds / self._longest,
            find=f"{find} {kernel.report.operators} {kernel.report.rule}".lower(),
        )

    def _kind(self, call: KernelCall) -> BoxKind:
        """Kind of a call: a kernel by its bottleneck, a function of the model, or the host."""
        kernel = self._known.get(call.kernel)
        if kernel is not None:
            return kernel.kind
        return BoxKind.FUNCTION if call.kernel in self._functions else BoxKind.HOST

    def _shape(self, tensor: int) -> str:
        """Extents as the user calls them, and the type of an element."""
        own = self._graph.tensors[tensor]
        extents = "×".join(self._extents.get(extent, extent) for extent in own.shape)
        return f"{extents} {own.dtype}".strip()

    def _text(self, tensor: int) -> str:
        """Shape, type and size of a tensor, for people."""
        size = self._graph.tensors[tensor].size
        told = "of a size known in a call" if size is None else bytes_text(size)
        return f"{self._shape(tensor)}, {told}"

    def lines(self) -> Iterator[Arrow]:
        """Lines between the boxes, with their tensors."""
        for (maker, taker, tensor), path in zip(self._edges, self.layout.lines, strict=True):
            text = self._text(tensor)
            yield Arrow(self._first + maker, self._first + taker, path, self._top, text)

    def shapes(self) -> Iterator[Label]:
        """Labels with the shapes of what each call hands on, the first one and how many more."""
        made: dict[int, set[str]] = {}
        for maker, _, tensor in self._edges:
            if maker >= self._calls:
                made.setdefault(maker, set()).add(self._shape(tensor))
        for maker, texts in made.items():
            x, y = self.layout.corners[maker]
            (text, *more) = sorted(texts)
            place = x + BOX[0] / 2 + 8, y + BOX[1] + self._top + 13
            yield Label(f"{text} and {len(more)} more" if more else text, place)


def _rest(names: Sequence[str]) -> str:
    """The names behind the first, without what they have in common with it."""
    _, *others = short(names, sys.maxsize).split(SIGN)
    return f"+ {short(others, _LINE)}" if others else ""
