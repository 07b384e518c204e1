"""Views, joins, pads, indexing and creation in PyTorch."""

from __future__ import annotations

from bench.fuzz.drawing import Drawing, Misfit, Value


def reshape(d: Drawing) -> str:
    value = d.anything()
    if d.chance(0.2) and value.rank > 1:
        start = d.rng.randrange(value.rank - 1)
        return f"{value.name}.flatten({start}, {d.rng.randint(start + 1, value.rank - 1)})"
    shape = _split_up(d, value)
    if value.size and d.chance(0.4):
        shape[d.rng.randrange(len(shape))] = -1
    return f"{value.name}.reshape({', '.join(map(str, shape))})"


def _split_up(d: Drawing, value: Value) -> list[int]:
    """Another shape of as many elements: neighbours joined, or one split."""
    shape = list(value.shape) or [1]
    if len(shape) > 1 and d.chance(0.5):
        at = d.rng.randrange(len(shape) - 1)
        shape[at : at + 2] = [shape[at] * shape[at + 1]]
    at = d.rng.randrange(len(shape))
    factors = [f for f in range(2, 9) if shape[at] and shape[at] % f == 0]
    if factors and len(shape) < 5 and d.chance(0.6):
        factor = d.choice(factors)
        shape[at : at + 1] = d.choice(
            ([factor, shape[at] // factor], [shape[at] // factor, factor])
        )
    return shape


def permute(d: Drawing) -> str:
    value = d.anything(2, 3, 4, 5)
    order = list(range(value.rank))
    d.rng.shuffle(order)
    if d.chance(0.3):
        return f"{value.name}.transpose({order[0]}, {order[-1]})"
    return f"{value.name}.permute({', '.join(map(str, order))})"


def unit_axes(d: Drawing) -> str:
    value = d.anything()
    ones = [axis for axis, extent in enumerate(value.shape) if extent == 1]
    if ones and d.chance(0.6):
        return f"{value.name}.squeeze({d.choice(ones)})"
    if value.rank > 4:
        raise Misfit
    return f"{value.name}.unsqueeze({d.rng.randint(-value.rank - 1, value.rank)})"


def expand(d: Drawing) -> str:
    value = d.anything()
    shape = [d.extent(9) if e == 1 and d.chance(0.7) else e for e in value.shape]
    if d.chance(0.3) and value.rank < 5:
        shape.insert(0, d.choice((1, 2, 3)))
    if not shape or value.size * 16 > 60000:
        raise Misfit
    return f"{value.name}.expand({', '.join(map(str, shape))})"


def slices(d: Drawing) -> str:
    value = d.anything(1, 2, 3, 4)
    parts = [_slice(d, extent) if d.chance(0.5) else ":" for extent in value.shape]
    if d.chance(0.1):
        parts[d.rng.randrange(len(parts))] = "None"
        parts = parts[: value.rank]
    return f"{value.name}[{', '.join(parts)}]"


def _slice(d: Drawing, extent: int) -> str:
    if extent < 2:
        return ":"
    kind = d.rng.random()
    if kind < 0.15:
        return str(d.rng.randrange(-extent, extent))
    if kind < 0.45:
        return f":{d.choice((-1, extent - 1, max(1, extent // 2), extent - 2 or 1))}"
    if kind < 0.7:
        return f"{d.choice((1, -1, extent // 2, 1))}:"
    if kind < 0.85:
        return f"{d.choice(('', 1))}::{d.choice((2, 3))}"
    start = d.rng.randrange(extent)
    return f"{start}:{d.rng.randint(start + 1, extent)}"


def join(d: Drawing) -> str:
    value = d.anything(1, 2, 3, 4)
    axis = d.rng.randrange(value.rank)

    def fits(other: Value) -> bool:
        same = (
            other.shape[:axis] == value.shape[:axis]
            and other.shape[axis + 1 :] == value.shape[axis + 1 :]
        )
        return other.kind == value.kind and other.rank == value.rank and same

    def make() -> Value:
        shape = list(value.shape)
        shape[axis] = d.extent(9)
        return d.weight(shape, value.kind)

    parts = [value, *(d.pick(fits, make) for _ in range(d.choice((1, 1, 2))))]
    if sum(part.size for part in parts) > 40000:
        raise Misfit
    d.rng.shuffle(parts)
    if len({part.shape for part in parts}) == 1 and value.rank < 4 and d.chance(0.4):
        return f"torch.stack([{', '.join(p.name for p in parts)}], {d.rng.randint(0, value.rank)})"
    return f"torch.cat([{', '.join(p.name for p in parts)}], {axis - value.rank * d.chance(0.3)})"


def split(d: Drawing) -> tuple[str, int]:
    value = d.anything(1, 2, 3, 4)
    axis = d.axis(value)
    extent = value.shape[axis]
    if extent < 2:
        raise Misfit
    if d.chance(0.5):
        count = d.rng.randint(2, min(4, extent))
        size = -(-extent // count)
        return f"torch.chunk({value.name}, {count}, {axis})", -(-extent // size)
    first = d.rng.randint(1, extent - 1)
    return f"torch.split({value.name}, [{first}, {extent - first}], {axis})", 2


def rearrange(d: Drawing) -> str:
    value = d.anything(1, 2, 3, 4)
    axis = d.axis(value)
    if not value.size:
        raise Misfit
    kind = d.choice(("flip", "roll", "repeat", "tri", "diagonal", "unfold", "movedim"))
    if kind == "flip":
        return f"torch.flip({value.name}, {d.axes(value)})"
    if kind == "roll":
        return f"torch.roll({value.name}, {d.rng.randint(-3, 5)}, {axis})"
    if kind == "repeat":
        if value.size > 5000:
            raise Misfit
        if d.chance(0.4):
            return f"{value.name}.repeat_interleave({d.choice((2, 3))}, {axis})"
        return f"{value.name}.repeat({', '.join(str(d.choice((1, 1, 2, 3))) for _ in value.shape)})"
    if kind == "unfold":
        size = d.rng.randint(1, min(4, value.shape[axis]))
        if value.rank > 3:
            raise Misfit
        return f"{value.name}.unfold({axis}, {size}, {d.choice((1, 2))})"
    if value.rank < 2:
        raise Misfit
    if kind == "tri":
        return f"torch.{d.choice(('tril', 'triu'))}({value.name}, {d.choice((-1, 0, 1))})"
    if kind == "movedim":
        return f"torch.movedim({value.name}, 0, -1)"
    last = value.rank - 1
    return f"torch.diagonal({value.name}, {d.choice((-1, 0, 0, 1))}, {last - 1}, {last})"


def pad(d: Drawing) -> str:
    value = d.floats(2, 3, 4, 5)
    if not value.size or value.size > 20000:
        raise Misfit
    mode = d.choice(("constant", "constant", "constant", "reflect", "replicate", "circular"))
    if mode == "constant":
        count = d.rng.randint(1, value.rank)
        amounts = [d.choice((0, 0, 1, 2, 3)) for _ in range(2 * count)]
        if d.chance(0.2) and min(value.shape[-count:]) > 3:
            amounts = [-min(a, 1) if d.chance(0.5) else a for a in amounts]
        return f"F.pad({value.name}, {amounts}, value={d.choice((0.0, 1.5, -3.0))})"
    count = value.rank - 2 or 1
    if value.rank == 2:
        count = 1
    amounts = []
    for extent in reversed(value.shape[-count:]):
        most = extent - 1 if mode == "reflect" else extent
        amounts += [d.rng.randint(0, min(2, most)), d.rng.randint(0, min(2, most))]
    return f"F.pad({value.name}, {amounts}, mode='{mode}')"


def _indexes(d: Drawing, shape: tuple[int, ...], below: int) -> Value:
    def fits(other: Value) -> bool:
        return (
            other.kind == "int64" and other.shape == shape and other.low >= 0 and other.high < below
        )

    def make() -> Value:
        return d.weight(shape, "int64", below) if d.chance(0.4) else d.input(shape, "int64", below)

    return d.pick(fits, make)


def take(d: Drawing) -> str:
    value = d.anything(1, 2, 3)
    axis = d.axis(value)
    extent = value.shape[axis]
    if not extent:
        raise Misfit
    count = d.extent(20)
    kind = d.choice(("select", "index", "gather", "along", "embedding", "integers"))
    if kind == "select":
        index = _indexes(d, (count,), extent)
        return f"torch.index_select({value.name}, {axis}, {index.name})"
    if kind == "index":
        prefix = ":, " * (axis % value.rank)
        return f"{value.name}[{prefix}{_indexes(d, (count,), extent).name}]"
    if kind == "embedding":
        if value.rank != 2 or value.kind != "float":
            raise Misfit
        index = _indexes(d, d.shape(d.choice((1, 2)), 100), value.shape[0])
        return f"F.embedding({index.name}, {value.name})"
    if kind == "integers" and value.rank > 1:
        first, second = (_indexes(d, (count,), e) for e in value.shape[:2])
        return f"{value.name}[{first.name}, {second.name}]"
    shape = list(value.shape)
    shape[axis] = count
    index = _indexes(d, tuple(shape), extent)
    if kind == "along":
        return f"torch.take_along_dim({value.name}, {index.name}, {axis})"
    return f"torch.gather({value.name}, {axis}, {index.name})"


def put(d: Drawing) -> str:
    value = d.floats(1, 2, 3)
    axis = d.axis(value)
    extent = value.shape[axis]
    if not value.size:
        raise Misfit
    kind = d.choice(
        (
            "scatter",
            "scatter_add",
            "index_add",
            "index_copy",
            "index_fill",
            "index_put",
            "slice_scatter",
            "select_scatter",
            "scatter_reduce",
        )
    )
    count = d.rng.randint(1, extent)
    shape = list(value.shape)
    shape[axis] = count
    if kind in ("scatter_add", "scatter_reduce"):
        index, source = _indexes(d, tuple(shape), extent), d.input(shape)
        reduce = f", '{d.choice(('sum', 'amax'))}'" if kind == "scatter_reduce" else ""
        return f"{value.name}.{kind}({axis}, {index.name}, {source.name}{reduce})"
    # Where indexes repeat, which write is the last is not defined: they are a permutation's.
    order = f"torch.tensor({d.rng.sample(range(extent), count)})"
    if kind == "scatter":
        view = [1] * value.rank
        view[axis] = -1
        index = f"{order}.reshape({view}).expand({shape})"
        return f"{value.name}.scatter({axis}, {index}, {d.input(shape).name})"
    if kind == "slice_scatter":
        where = f"{axis}, {extent - count}, {extent}"
        return f"torch.slice_scatter({value.name}, {d.input(shape).name}, {where})"
    if kind == "select_scatter":
        own = [e for at, e in enumerate(value.shape) if at != axis % value.rank]
        where = f"{axis}, {d.rng.randrange(extent)}"
        return f"torch.select_scatter({value.name}, {d.input(own).name}, {where})"
    if kind == "index_fill":
        return f"{value.name}.index_fill({axis}, {order}, 1.5)"
    if kind == "index_put":
        own = d.input((count, *value.shape[1:]))
        rows = [d.rng.randrange(value.shape[0]) for _ in range(count)]
        return f"{value.name}.index_put((torch.tensor({rows}),), {own.name}, accumulate=True)"
    return f"{value.name}.{kind}({axis}, {order}, {d.input(shape).name})"


def look_up(d: Drawing) -> str:
    value = d.floats(1, 2, 3)
    edges = [-1.0, -0.3, 0.2, 0.9]
    if d.chance(0.5):
        edges_text = f"torch.tensor({edges}, dtype=FLOAT)"
        return f"torch.bucketize({value.name}, {edges_text}, right={d.chance(0.5)})"
    integers = d.pick(lambda v: v.kind == "int64" and v.low >= 0 and v.high < 40 and v.size < 1000)
    return f"F.one_hot({integers.name}, {int(integers.high) + 60})" if integers.rank < 4 else "?"


def create(d: Drawing) -> str:
    value = d.floats(1, 2, 3)
    kind = d.choice(("arange", "full", "like", "eye", "linspace"))
    last = value.shape[-1]
    if kind == "arange":
        return f"{value.name} + torch.arange({last}, dtype=FLOAT)"
    if kind == "linspace":
        return f"{value.name} * torch.linspace(0, 1, {last}, dtype=FLOAT)"
    if kind == "eye":
        return f"{value.name} + torch.eye({last}, dtype=FLOAT)[0]" if last else f"{value.name} + 1"
    if kind == "full":
        return f"{value.name} + torch.full(({last},), 0.25, dtype=FLOAT)"
    return f"torch.{d.choice(('zeros_like', 'ones_like'))}({value.name})"


OPERATORS = (
    *(reshape,) * 4, *(permute,) * 4, *(unit_axes,) * 2, expand, *(slices,) * 5, *(join,) * 3,
    split,     *(rearrange,) * 3, *(pad,) * 2, *(take,) * 2, put, look_up, create,
)  # fmt: skip
