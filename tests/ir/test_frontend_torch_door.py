"""What the PyTorch door takes, what it refuses by name, and that no result differs in silence."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from cpu_build import CPU
from tvm import relax

from bench.cpu_build import run_on_cpu
from tvm_tile.errors import ModelError, TileError, UnsupportedOperatorError
from tvm_tile.frontend import import_model

torch = pytest.importorskip("torch")

from tvm_tile.frontend.torch import convert, operators  # noqa: E402

F = torch.nn.functional
pytestmark = pytest.mark.filterwarnings("ignore")  # deprecations inside PyTorch's own code


class Lambda(torch.nn.Module):
    """A function as a module, with buffers."""

    def __init__(self, function: Callable[..., Any], **buffers: Any) -> None:
        super().__init__()
        self.function = function
        for name, buffer in buffers.items():
            self.register_buffer(name, buffer)

    def forward(self, *arguments: Any) -> Any:
        own = dict(self.named_buffers())
        return self.function(*arguments, **own)


def outcome(function: Callable[..., Any], *inputs: Any, **buffers: Any) -> list[np.ndarray]:
    """What the imported model computes."""
    imported = import_model(Lambda(function, **buffers), example_inputs=inputs)
    arrays = [t.numpy() for t in inputs if isinstance(t, torch.Tensor)]
    return run_on_cpu(imported.mod, arrays)


def check(function: Callable[..., Any], *inputs: Any, **buffers: Any) -> None:
    expected = function(*inputs, **buffers)
    expected = expected if isinstance(expected, tuple | list) else (expected,)
    found = outcome(function, *inputs, **buffers)
    assert len(found) == len(expected)
    for i, (output, wanted) in enumerate(zip(found, expected, strict=True)):
        assert output.dtype == wanted.numpy().dtype, i
        np.testing.assert_allclose(output, wanted.numpy(), 1e-5, 1e-6, err_msg=f"result {i}")


def test_every_converter_takes_every_argument_of_its_operators() -> None:
    for operator, converter in operators.CONVERTERS.items():
        names = dict.fromkeys(convert.parameters(operator))
        try:
            inspect.signature(converter).bind(None, **names)
        except TypeError as error:
            pytest.fail(f"{operator}: {error}")


def test_two_converters_of_one_operator() -> None:
    table = {torch.ops.aten.add.Tensor: lambda emit: None}
    with pytest.raises(AssertionError, match=r"aten.add.Tensor"):
        convert.joined(table, table)


def test_a_result_of_another_shape_or_type_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = {
        torch.ops.aten.sin.default: lambda emit, x: relax.op.astype(x, "float16"),
        torch.ops.aten.cos.default: lambda emit, x: relax.op.expand_dims(x, 0),
        torch.ops.aten.tan.default: lambda emit, x: relax.op.matmul(x, x),
    }
    for operator, converter in wrong.items():
        monkeypatch.setitem(operators.CONVERTERS, operator, converter)
    with pytest.raises(UnsupportedOperatorError) as caught:
        import_model(
            Lambda(lambda x: (x.sin(), x.cos(), x.tan())), example_inputs=(torch.ones(2, 3),)
        )
    assert "torch.float16[2, 3], PyTorch's is torch.float32[2, 3]" in caught.value.current
    assert "torch.float32[1, 2, 3], PyTorch's is torch.float32[2, 3]" in caught.value.current
    assert "aten.tan.default" in caught.value.current


def test_everything_that_is_refused_is_named_with_its_line() -> None:
    def refused(x: Any) -> Any:
        return torch.nonzero(x), torch.linalg.inv_ex(x)[0], torch.poisson(x) + x

    with pytest.raises(UnsupportedOperatorError) as caught:
        import_model(Lambda(refused), example_inputs=(torch.eye(3),))
    for name in ("aten.nonzero", "linalg_inv_ex", "aten.poisson.default", "return self.function"):
        assert name in caught.value.current
    assert "aten.poisson.default: random numbers" in caught.value.current
    assert "that only the data decide" in caught.value.current


@pytest.mark.parametrize(
    ("function", "buffers", "named"),
    [
        (lambda x: torch.complex(x, x), dict, "complex64"),
        (lambda x: x.to(torch.float8_e5m2).float(), dict, "float8_e5m2"),
        (
            lambda x, w: x + w.float(),
            lambda: {"w": torch.ones(3).to(torch.float8_e4m3fnuz)},
            "float8_e4m3fnuz",
        ),
        (lambda x: x[x > 1], dict, "shape"),
        (lambda x: x * x.sum().item(), dict, ""),
        (lambda x: (x, 3), dict, "returns 3"),
        (lambda x: None, dict, "returns none"),
    ],
)
def test_refused(function: Any, buffers: Callable[[], dict[str, Any]], named: str) -> None:
    with pytest.raises(TileError) as caught:
        import_model(Lambda(function, **buffers()), example_inputs=(torch.ones(2, 3),))
    assert named in caught.value.current


def test_inputs_and_outputs_of_all_kinds() -> None:
    x = torch.arange(6.0).reshape(2, 3)

    def outputs(x: Any, scale: int, what: Any, code: Any, strided: Any, negative: Any) -> Any:
        assert what is None
        y = x * scale + code  # a buffer with the name of an attribute of graphs
        return x, y, y, torch.ones(2), code, x @ strided + negative

    check(
        lambda x, code, strided, negative: outputs(x, 3, None, code, strided, negative),
        x,
        code=torch.ones(3),
        strided=torch.arange(12.0).reshape(4, 3).T[:, ::2],
        negative=torch._neg_view(torch.ones(2)),
    )
    check(torch.vmap(lambda row: row.sin() * 2), x)
    fixed = import_model(
        Lambda(lambda x, scale, what: (x * scale, None)), example_inputs=(x, 3, "text")
    )
    assert [s.shape for s in (*fixed.inputs, *fixed.outputs)] == [(2, 3), (2, 3)]


def test_memory_that_weights_share_is_one_constant() -> None:
    first, second = torch.nn.Linear(3, 3, bias=False), torch.nn.Linear(3, 3, bias=False)
    second.weight = first.weight
    module = torch.nn.Sequential(first, second)
    text = import_model(module, example_inputs=(torch.ones(2, 3),)).mod.script(show_meta=True)
    assert text.count("GenericConst") > 0
    assert 'GenericConst"][1]' not in text


def test_conditions() -> None:
    module = torch.nn.Linear(3, 3).eval()

    def chosen(x: Any) -> Any:
        a, b = torch.cond(
            x.sum() > 0, lambda x: (module(x).relu(), x * 2), lambda x: (x - 1, x + 1), (x,)
        )
        return torch.cond(a.sum() > b.sum(), torch.sin, torch.cos, (a,)), b

    class Chosen(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.module = module

        def forward(self, x: Any) -> Any:
            return chosen(x)

    x = torch.arange(6.0).reshape(2, 3)
    imported = import_model(Chosen(), example_inputs=(x,))
    machine = relax.VirtualMachine(tvm.compile(imported.mod, CPU), tvm.cpu())
    for value in (x, -x):
        outputs = machine["main"](tvm.runtime.tensor(value.numpy()))
        with torch.no_grad():
            for output, expected in zip(outputs, chosen(value), strict=True):
                np.testing.assert_allclose(output.numpy(), expected.numpy(), 1e-5)


def test_sizes_that_contradict_the_program() -> None:
    program = torch.export.export(
        Lambda(lambda x, y: x + y),
        (torch.ones(3, 4), torch.ones(3, 4)),
        dynamic_shapes=(({0: torch.export.Dim("n")}, {0: torch.export.Dim("n")}),),
    )
    names = [
        spec.name for spec in import_model(program, inputs={_names(program)[0]: (5, 4)}).inputs
    ]
    assert names == _names(program)
    for wrong in ((5, 3), (5,), (-1, 4)):
        with pytest.raises(ModelError, match="must agree with the model"):
            import_model(program, inputs={names[0]: wrong})
    with pytest.raises(ModelError, match="may name the model's inputs"):
        import_model(program, inputs={"other": (5, 4)})


def _names(program: Any) -> list[str]:
    return list(program.graph_signature.user_inputs)


def test_arithmetic_of_all_types() -> None:
    def results(x: Any, i: Any, b: Any, y: Any) -> Any:
        return (
            *(torch.add(x, y, alpha=2), torch.sub(x, 1.5, alpha=3), torch.rsub(x, y, alpha=0.5)),
            *(torch.add(i, i, alpha=2), i + 1.5, i / 2, i * x, b + b, b * i, x + torch.tensor(2)),
            *(x // y, x % y, torch.fmod(x, y), i // 2, i % -3, torch.fmod(i, -3), -7 // (i + 9)),
            *(torch.div(i, -2, rounding_mode="trunc"), torch.div(x, y, rounding_mode="floor")),
            *(i**2, i**3, 2 ** (i + 4), (i - 1) ** (i + 4), x**2, x.abs() ** 0.5, x**-1, i**0.5),
            *(x > i, b < ~b, i == 2.5, b | (x > 0), i & 3, i ^ i, ~i, ~b, i << 2, i >> 1),
            *(torch.logical_and(x, i), torch.logical_xor(i, b), torch.logical_not(x)),
            *(x.clamp(-1, 1), x.clamp(min=y), i.clamp(0.5), i.clamp(min=1, max=-1), x.clamp(1, -1)),
            *(torch.maximum(x, y), torch.fmin(x, y), torch.maximum(b, x > 0), torch.where(b, x, i)),
            *(x.bool(), x.long(), b.float(), x.half().float(), i.to(torch.uint8)),
            *(torch.sign(x), torch.signbit(x), torch.copysign(x, y), torch.hypot(x, y)),
            *(
                x.log1p(),
                (x * 1e-6).expm1(),
                (x * 1e-6).log1p(),
                torch.erfc(x),
                torch.erfinv(x / 9),
            ),
            *(torch.atan2(x, y), x.exp2(), torch.log2(x.abs()), F.elu(x, 0.5), F.leaky_relu(x, -2)),
            *(x.round(), (x * 3.7).round(decimals=1), i.floor(), torch.trunc(x), F.gelu(x)),
            *(i.sqrt(), i.isnan(), (x / 0).isinf(), x * 0, torch.addcmul(x, y, y, value=3)),
        )

    generator = torch.Generator().manual_seed(0)
    x = torch.randn(3, 4, generator=generator) * 2
    y = torch.randn(4, generator=generator)
    i = torch.randint(-4, 5, (3, 4), generator=generator)
    x[0, 0], x[1, 1], i[0, 1] = torch.inf, torch.nan, 0
    i[0, :2] = 1  # where the floats are no numbers, so that casts of them are not compared
    x_of_casts = torch.nan_to_num(x, 0, 1)
    check(results, x_of_casts, i, i > 0, y)


def test_booleans_have_extremes_and_signs() -> None:
    x = torch.tensor([True, True, False, False])
    y = torch.tensor([True, False, True, False])
    for function in (torch.clamp_min, torch.clamp_max, torch.fmax, torch.fmin, torch.maximum):
        check(function, x, y)
    check(lambda x: (x.sign(), x.sgn(), x.signbit()), x)
    check(lambda x, y: (torch.add(x, y, alpha=True), torch.add(x, y, alpha=False)), x, y)


def test_numbers_that_meet_integers() -> None:
    x = torch.tensor([-7, -1, 0, 2, 7])
    check(lambda x: F.hardtanh(x, -2.5, 3.9), x)
    for divisor in ([2, -3, 7, 1, 5], [2, -1, 7, 1, -1]):
        check(
            lambda x, by: (torch.div(x, by, rounding_mode="trunc"), x // by, x % by),
            x,
            by=torch.tensor(divisor),
        )


def test_the_floor_of_halves_divided_by_a_number_that_is_no_half() -> None:
    """The first is twice 0.8 rounded to float16, and less than twice 0.8."""
    x = torch.tensor([1.599609375, 1.6, 2.5, -0.8], dtype=torch.float16)
    check(lambda x: (torch.floor_divide(x, 0.8), x // -0.8), x)
    assert torch.floor_divide(x, 0.8)[0] == 1


def test_reductions_of_all_types() -> None:
    def results(x: Any, i: Any, b: Any, s: Any, e: Any) -> Any:
        return (
            *(x.sum(), x.sum((0, -1)), i.sum(1), b.sum(), x.sum(-1, keepdim=True), s.sum(0)),
            *(x.mean(), x.mean((1, 2), keepdim=True), i.prod(), x.prod(1), b.prod(0)),
            *(x.amax((0, 2)), x.amin(-2, keepdim=True), i.amax(), b.amax(0), s.amin()),
            *(*x.max(1), *i.min(-1, keepdim=True), x.max(), x.argmax(), i.argmin(1), s.argmax()),
            *(x.any(), b.any(1), i.all(0, keepdim=True), x.var(), x.var(1, correction=0)),
            *(*torch.var_mean(x, (0, 2), keepdim=True), x.std(2), s.var(correction=0)),
            *(x.logsumexp(1), x.norm(), x.norm(1, 0), torch.linalg.vector_norm(x, torch.inf, 1)),
            *(e.sum(0), e.prod(), e.sum(), torch.count_nonzero(i, 1), x.nanmean(1)),
            *(torch.std_mean(x, 1)[1], torch.aminmax(x)[1], torch.cdist(x, x + 1)),
        )

    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, 3, 4, generator=generator)
    i = torch.randint(-4, 5, (2, 3, 4), generator=generator)
    check(results, x, i, i > 0, torch.tensor(2.5), torch.ones(0, 3))


def test_views_and_creation() -> None:
    def results(x: Any, b: Any, s: Any, e: Any) -> Any:
        written = x * 1
        written[:, 1::2] = 7
        written[0, -1] = s
        return (
            *(x[:, ::2], x[1:, -2:], x[:, 1:1], x[..., None, 0], x.select(-1, -2), x.flip(0, -1)),
            *(
                x.reshape(4, 6),
                x.permute(2, -3, 1),
                x.unsqueeze(-1).squeeze(-1),
                x.expand(5, 2, 3, 4),
            ),
            *(*x.split([1, 0, 2], 1), *x.chunk(3, -1), *x.unbind(0), x.roll((1, -2), (0, 2))),
            *(torch.cat([x, e.reshape(2, 0, 4), x.long()], 1), torch.stack([s, s]), s.expand(2, 2)),
            *(x.repeat(2, 1, 1, 2), x.unfold(2, 3, 1), x.unfold(1, 2, 1), s.unfold(0, 1, 1)),
            *(x.diagonal(1, 1, 2), x.diagonal(-1), torch.diag_embed(x, 1), x.tril(-1), x.triu(1)),
            *(
                x.as_strided((2, 2), (1, 3), 2),
                F.pad(x, (1, -2, 0, 3), value=2.5),
                F.pad(b, (1, 1)),
            ),
            *(
                F.pad(x, (2, 1), "reflect"),
                F.pad(x, (2, 1), "replicate"),
                F.pad(x, (1, 2), "circular"),
            ),
            *(written, torch.arange(1, 9, 3) + s, torch.arange(0, 1, 0.3), torch.linspace(0, 1, 5)),
            *(torch.eye(2, 3), torch.full((2,), 3), torch.zeros_like(b), x.new_full((0, 2), 1.5)),
            *(e.T @ e, e.reshape(3, 0), x.repeat_interleave(2, 1), torch.rot90(x, 1, (0, 2))),
            *(F.unfold(x[None], (2, 2)), torch.select_scatter(x, x[0] + 1, 0, 1)),
        )

    x = torch.arange(24.0).reshape(2, 3, 4)
    check(results, x, x > 3, torch.tensor(2.5), torch.ones(0, 3))


def test_products_and_convolutions() -> None:
    def results(x: Any, m: Any, i: Any, image: Any, w: Any, v: Any) -> Any:
        return (
            *(torch.addmm(m, m, m, beta=0.5, alpha=2), torch.addmm(v, m, m, beta=2)),
            *(torch.baddbmm(x, x, x, beta=0, alpha=3), torch.addbmm(m, x, x, alpha=0.5)),
            *(i @ i, m @ v, v @ v, v @ x, torch.addmv(v, m, v), torch.outer(v, v)),
            *(torch.einsum("bij,jk->bik", x, m), F.bilinear(m, m, x[:2]), torch.kron(m, m)),
            *(
                F.linear(x, m, v),
                F.linear(v, m),
                F.linear(v, v),
                torch.tensordot(x, x, ([0, 1], [0, 1])),
            ),
            *(F.conv2d(image, w, padding="same", dilation=2), F.conv2d(image[0], w, v, stride=2)),
            F.conv_transpose2d(image, w, v, stride=(2, 1), padding=1, output_padding=(1, 0)),
            F.conv_transpose2d(image, w, stride=2, dilation=3, output_padding=2, padding=1),
            F.conv_transpose2d(image, w, dilation=3, output_padding=2),
            F.conv_transpose1d(image[0].reshape(1, 3, 30), w[:, :1, 0], v, groups=3, stride=2),
        )

    generator = torch.Generator().manual_seed(0)
    m = torch.randn(3, 3, generator=generator)
    x = torch.randn(4, 3, 3, generator=generator)
    image = torch.randn(2, 3, 6, 5, generator=generator)
    w = torch.randn(3, 3, 3, 2, generator=generator)
    check(results, x, m, m.mul(5).long(), image, w, m[0].clone())
