"""Reductions, normalizations, scans, sorts and pooling of PyTorch."""

from __future__ import annotations

from bench.fuzz.drawing import Drawing, Misfit, Value

_OVER_AXES = ("sum", "mean", "amax", "amin", "logsumexp", "var", "std")


def over_axes(d: Drawing) -> str:
    value = d.floats(1, 2, 3, 4, 5, most=50)
    name = d.choice(_OVER_AXES)
    axes = d.axes(value)
    count = 1
    for axis in axes:
        count *= value.shape[axis]
    if (count == 0 and name != "sum") or (name in ("var", "std") and count < 2):
        raise Misfit
    if name == "std":  # the derivative of a root at zero is infinite
        return f"torch.sqrt(torch.var({value.name}, {axes}, keepdim={d.chance(0.5)}) + 0.01)"
    unbiased = f", correction={d.choice((0, 1))}" if name == "var" else ""
    return f"torch.{name}({value.name}, {axes}{unbiased}, keepdim={d.chance(0.5)})"


def over_all(d: Drawing) -> str:
    value = d.floats(1, 2, 3, 4, most=50)
    if not value.size:
        raise Misfit
    return f"{value.name}.{d.choice(('sum', 'mean', 'max', 'min'))}()"


def norm(d: Drawing) -> str:
    value = d.floats(1, 2, 3, 4, most=50)
    axis = d.axis(value)
    if d.chance(0.5):
        order, keep = d.choice((1, 2, 3)), d.chance(0.5)
        return f"torch.linalg.vector_norm({value.name} + 0.1, {order}, {axis}, keepdim={keep})"
    return f"F.normalize({value.name} + 0.01, p={d.choice((1, 2))}.0, dim={axis})"


def integer_reduction(d: Drawing) -> str:
    value = d.integers() if d.chance(0.5) else d.bools()
    name = d.choice(
        ("sum", "any", "all", "amax") if value.kind != "bool" else ("sum", "any", "all")
    )
    axis = d.axis(value)
    if name == "amax" and not value.size:
        raise Misfit
    return f"torch.{name}({value.name}, {axis}, keepdim={d.chance(0.3)})"


def argument(d: Drawing) -> str:
    value = d.floats(1, 2, 3, 4)
    axis = d.axis(value)
    if not value.size:
        raise Misfit
    return f"torch.{d.choice(('argmax', 'argmin'))}({value.name}, {axis}, keepdim={d.chance(0.3)})"


def value_and_index(d: Drawing) -> tuple[str, int]:
    value = d.floats(1, 2, 3)
    axis = d.axis(value)
    if not value.size:
        raise Misfit
    name = d.choice(("max", "min", "cummax", "cummin"))
    keep = f", keepdim={d.chance(0.3)}" if name in ("max", "min") else ""
    return f"torch.{name}({value.name}, {axis}{keep})", 2


def product(d: Drawing) -> str:
    value = d.floats(1, 2, 3, most=4)
    axis = d.axis(value)
    if value.shape[axis] > 24:
        raise Misfit
    return f"torch.{d.choice(('prod', 'cumprod'))}({value.name}, {axis})"


def scan(d: Drawing) -> str:
    value = d.floats(1, 2, 3, 4) if d.chance(0.8) else d.integers()
    return f"torch.cumsum({value.name}, {d.axis(value)})"


def sort(d: Drawing) -> tuple[str, int]:
    """Sorts and the largest or smallest elements."""
    value = d.floats(1, 2, 3)
    axis = d.axis(value)
    if value.shape[axis] > 256 or not value.size:
        raise Misfit
    largest = d.chance(0.5)
    if d.chance(0.4):
        return f"torch.sort({value.name}, dim={axis}, descending={largest}, stable=True)", 2
    count = d.rng.randint(1, value.shape[axis])
    topk = f"torch.topk({value.name}, {count}, {axis}, {largest})"
    # Which of equal elements come out is not defined.
    return (topk, 2) if value.is_distinct else (f"{topk}[0]", 1)


def softmax(d: Drawing) -> str:
    value = d.floats(1, 2, 3, 4, most=80)
    return f"torch.{d.choice(('softmax', 'softmax', 'log_softmax'))}({value.name}, {d.axis(value)})"


def layer_norm(d: Drawing) -> str:
    value = d.floats(2, 3, 4, most=100)
    shape = value.shape[-d.choice((1, 1, 2)) :]
    if d.chance(0.3):
        return f"F.rms_norm({value.name}, {shape}, {d.weight(shape).name}, eps=1e-3)"
    weights = f", {d.weight(shape).name}, {d.weight(shape).name}" if d.chance(0.7) else ""
    return f"F.layer_norm({value.name}, {shape}{weights}{',' if weights else ', None, None,'} 1e-3)"


def channel_norm(d: Drawing) -> str:
    value = d.floats(3, 4, 5, most=100)
    if not value.size:
        raise Misfit
    channels = value.shape[1]
    name = d.choice(("batch", "group", "instance"))
    weights = f"{d.weight((channels,)).name}, {d.weight((channels,)).name}"
    if name == "batch":
        mean = d.weight((channels,))
        variance = d.weight((channels,))
        return (
            f"F.batch_norm({value.name}, {mean.name}, {variance.name}.abs() + 0.5, {weights}, "
            "False, 0.1, 1e-3)"
        )
    if value.size // (value.shape[0] * channels) < 2:
        raise Misfit  # of one element the variance is nothing
    if name == "instance":
        return f"F.instance_norm({value.name}, None, None, {weights}, eps=1e-3)"
    groups = d.choice([g for g in (1, 2, 3, 4, channels) if channels % g == 0])
    return (
        f"F.group_norm({value.name}, {groups}, {weights if d.chance(0.7) else 'None, None'}, 1e-3)"
    )


def _spatial(d: Drawing, space: int) -> Value:
    return d.pick(
        lambda v: v.kind == "float" and v.rank == space + 2 and v.size > 0,
        lambda: d.input((d.choice((1, 2)), d.extent(16), *(d.extent(17) for _ in range(space)))),
    )


def pooling(d: Drawing) -> str:
    space = d.choice((1, 2, 2, 3))
    value = _spatial(d, space)
    window = tuple(d.rng.randint(1, min(4, e)) if e else 1 for e in value.shape[2:])
    stride = tuple(d.choice((1, 2, w)) for w in window)
    padding = tuple(d.choice((0, 0, w // 2)) for w in window)
    ceil = d.chance(0.25)
    if d.chance(0.5):
        return f"F.max_pool{space}d({value.name}, {window}, {stride}, {padding}, ceil_mode={ceil})"
    if d.chance(0.1) and space == 2:
        return f"F.lp_pool2d({value.name}.abs() + 0.1, 2.0, {window}, {stride})"
    return (
        f"F.avg_pool{space}d({value.name}, {window}, {stride}, {padding}, ceil_mode={ceil}, "
        f"count_include_pad={d.chance(0.5)})"
    )


def adaptive_pooling(d: Drawing) -> str:
    space = d.choice((1, 2, 2, 3))
    value = _spatial(d, space)
    sizes = tuple(d.choice((1, 1, 2, 3, 5)) for _ in range(space))
    return f"F.adaptive_{d.choice(('avg', 'avg', 'max'))}_pool{space}d({value.name}, {sizes})"


def resize(d: Drawing) -> str:
    space = d.choice((1, 2, 2, 2, 3))
    value = _spatial(d, space)
    if value.size > 8000:
        raise Misfit
    linear = ("linear", "bilinear", "trilinear")[space - 1]
    mode = d.choice(
        ("nearest", "nearest", linear, linear, "nearest-exact", *(("bicubic",) * (space == 2)))
    )
    if d.chance(0.5):
        size = f"scale_factor={d.choice((2.0, 2.0, 3.0, 0.5, 1.5))}"
        if "0.5" in size and min(value.shape[2:]) < 2:
            raise Misfit
    else:
        size = f"size={tuple(d.choice((1, 2, 4, 7, 9)) for _ in range(space))}"
    corners = f", align_corners={d.chance(0.3)}" if mode in (linear, "bicubic") else ""
    return f"F.interpolate({value.name}, {size}, mode='{mode}'{corners})"


def shuffle(d: Drawing) -> str:
    value = d.floats(4)
    if value.shape[1] % 4 == 0 and value.size:
        return f"F.pixel_shuffle({value.name}, 2)"
    if value.shape[2] % 2 == 0 and value.shape[3] % 2 == 0 and value.size:
        return f"F.pixel_unshuffle({value.name}, 2)"
    raise Misfit


OPERATORS = (
    *(over_axes,) * 4, over_all, norm, integer_reduction, argument, value_and_index, product, scan,
    sort, *(softmax,) * 3, *(layer_norm,) * 3, *(channel_norm,) * 2, *(pooling,) * 2,
    adaptive_pooling, resize, shuffle,
)  # fmt: skip
