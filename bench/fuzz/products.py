"""Products and convolutions of PyTorch."""

from __future__ import annotations

from bench.fuzz.drawing import Drawing, Misfit, Value

_LETTERS = "abcd"


def linear(d: Drawing) -> str:
    value = d.floats(1, 2, 3, 4, most=100)
    depth = value.shape[-1]
    features = d.extent(160)
    weight = d.fan((features, depth), depth)
    bias = f", {d.weight((features,)).name}" if d.chance(0.6) else ""
    return f"F.linear({value.name}, {weight.name}{bias})"


def matmul(d: Drawing) -> str:
    value = d.floats(1, 2, 2, 3, 4, most=100)
    depth = value.shape[-1]
    other_rank = d.choice((1, 2, 2, value.rank if value.rank > 2 else 2))

    def fits(other: Value) -> bool:
        return (
            other.kind == "float"
            and other.rank >= 2
            and other.shape[-2] == depth
            and other.magnitude <= 100
            and (other.rank == 2 or value.rank == 2 or other.shape[:-2] == value.shape[:-2])
        )

    def make() -> Value:
        if other_rank == 1:
            return d.fan((depth,), depth)
        batch = [1 if d.chance(0.2) else e for e in value.shape[:-2]] if other_rank > 2 else []
        return d.fan((*batch, depth, d.extent(130)), depth)

    other = d.pick(fits if d.chance(0.5) else (lambda _: False), make)
    return f"{value.name} @ {other.name}"


def transposed_product(d: Drawing) -> str:
    """A value times its own or another's transpose, as attention has it."""
    value = d.floats(2, 3, 4, most=30)
    if value.shape[-1] * value.shape[-2] ** 2 > 4e6:
        raise Misfit
    same = d.pick(lambda other: other.shape == value.shape and other.kind == "float", lambda: value)
    scale = max(1, value.shape[-1]) ** -0.5
    return f"{value.name} @ {same.name}.transpose(-1, -2) * {scale:.4f}"


def added(d: Drawing) -> str:
    value = d.floats(2, most=100)
    features = d.extent(100)
    weight = d.fan((value.shape[1], features), value.shape[1])
    bias = d.weight(
        d.choice(((features,), (1, features), (value.shape[0], features), (value.shape[0], 1)))
    )
    factors = d.choice(("", ", alpha=0.5", ", beta=0.3, alpha=2.0", ", beta=0.5"))
    return f"torch.addmm({bias.name}, {value.name}, {weight.name}{factors})"


def batched(d: Drawing) -> str:
    value = d.floats(3, most=100)
    batch, _, depth = value.shape
    weight = d.fan((batch, depth, d.extent(64)), depth)
    if d.chance(0.6):
        return f"torch.bmm({value.name}, {weight.name})"
    bias = d.weight((batch, 1, weight.shape[2]))
    return f"torch.baddbmm({bias.name}, {value.name}, {weight.name}, beta=0.5, alpha=1.5)"


def einsum(d: Drawing) -> str:
    value = d.floats(2, 3, most=100)
    letters = _LETTERS[: value.rank]
    summed = d.choice(letters)
    other_letters = d.choice(
        (summed + "z", "z" + summed, letters[0] + summed if letters[0] != summed else summed)
    )
    own = dict(zip(letters, value.shape, strict=True))
    z = d.extent(40)
    weight = d.fan([own.get(letter, z) for letter in other_letters], own[summed])
    result = [c for c in dict.fromkeys(letters + other_letters) if c != summed]
    d.rng.shuffle(result)
    return (
        f"torch.einsum('{letters},{other_letters}->{''.join(result)}', {value.name}, {weight.name})"
    )


def outer(d: Drawing) -> str:
    value = d.floats(1)
    return f"torch.outer({value.name}, {d.weight((d.extent(64),)).name})"


def attention(d: Drawing) -> str:
    query = d.floats(3, 4, most=30)
    if query.size > 20000 or not query.shape[-1]:
        raise Misfit
    keys = d.choice((query.shape[-2], d.extent(40)))
    shape = (*query.shape[:-2], keys, query.shape[-1])
    key, value = d.input(shape), d.input((*shape[:-1], d.choice((shape[-1], d.extent(33)))))
    mask = ""
    if d.chance(0.3):
        mask = f", attn_mask={d.weight((query.shape[-2], keys)).name}"
    elif keys == query.shape[-2] and d.chance(0.4):
        mask = ", is_causal=True"
    elif d.chance(0.2):
        mask = ", scale=0.3"
    return f"F.scaled_dot_product_attention({query.name}, {key.name}, {value.name}{mask})"


def convolution(d: Drawing) -> str:
    space = d.choice((1, 2, 2, 2, 3))
    value = d.pick(
        lambda v: v.kind == "float" and v.rank == space + 2 and v.magnitude <= 100,
        lambda: d.input(
            (d.choice((1, 1, 2, 3)), d.extent(33), *(d.extent(17) for _ in range(space)))
        ),
    )
    channels = value.shape[1]
    groups = d.choice([g for g in (1, 1, 1, 2, 3, 4, channels) if g and channels % g == 0])
    out = groups * d.choice((1, 2, 3, 5, 8, 16) if groups > 1 else (1, 3, 4, 7, 16, 24, 32, 33))
    window = tuple(d.choice((1, 1, 2, 3, 3, 4, 5, 7)) for _ in range(space))
    stride = tuple(d.choice((1, 1, 1, 2, 3)) for _ in range(space))
    dilation = tuple(d.choice((1, 1, 1, 2, 3)) for _ in range(space))
    padding = tuple(d.choice((0, w // 2, w // 2, w - 1, w + 1)) for w in window)
    depth = channels // groups
    for w in window:
        depth *= w
    if depth * out * value.size > 3e7 or out > 128:
        raise Misfit
    weight = d.fan((out, channels // groups, *window), depth)
    bias = d.weight((out,)).name if d.chance(0.6) else "None"
    text = str(padding)
    if d.chance(0.1) and set(stride) == {1}:
        text = "'same'"
    return (
        f"F.conv{space}d({value.name}, {weight.name}, {bias}, stride={stride}, padding={text}, "
        f"dilation={dilation}, groups={groups})"
    )


def transposed_convolution(d: Drawing) -> str:
    space = d.choice((1, 2, 2, 3))
    value = d.pick(
        lambda v: v.kind == "float" and v.rank == space + 2 and v.magnitude <= 100,
        lambda: d.input((d.choice((1, 2)), d.extent(17), *(d.extent(11) for _ in range(space)))),
    )
    channels = value.shape[1]
    groups = d.choice([g for g in (1, 1, 1, 2, channels) if g and channels % g == 0])
    out = d.choice((1, 2, 3, 8, 16))
    window = tuple(d.choice((1, 2, 3, 4)) for _ in range(space))
    stride = tuple(d.choice((1, 2, 2, 3)) for _ in range(space))
    padding = tuple(d.choice((0, 0, 1)) for _ in window)
    extra = tuple(d.choice((0, s - 1)) for s in stride)
    dilation = d.choice((1, 1, 2))
    if out * groups > 64 or value.size * out > 3e5:
        raise Misfit
    weight = d.fan((channels, out, *window), channels // groups)
    bias = d.weight((out * groups,)).name if d.chance(0.5) else "None"
    return (
        f"F.conv_transpose{space}d({value.name}, {weight.name}, {bias}, stride={stride}, "
        f"padding={padding}, output_padding={extra}, groups={groups}, dilation={dilation})"
    )


OPERATORS = (
    *(linear,) * 4, *(matmul,) * 4, *(transposed_product,) * 2, added, batched, einsum, outer,
    *(attention,) * 2, *(convolution,) * 6, *(transposed_convolution,) * 2,
)  # fmt: skip
