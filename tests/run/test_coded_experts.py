"""Experts with weights of a few bits: which kernels multiply codes, and what comes of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import transformers
from torch.nn import functional as F
from torch.nn.utils import parametrize

import tvm_tile
from bench.onnx_forms import Draw, Form, form
from bench.onnx_forms.microsoft_experts import coded_matrices
from bench.onnx_forms.microsoft_form import DOMAIN
from bench.suites.expert_modules import CODED_WEIGHTS
from tvm_tile import Options

pytestmark = pytest.mark.bank(8)

TOKENS, HIDDEN, INNER, EXPERTS, CHOSEN = 5, 256, 128, 8, 2
OPTIONS = Options(cache=False, low_bit=True)
GPU, EMULATED = "nvidia/h200", "emulated"
_SEED = 3


class ByteWeights(torch.nn.Module):
    """Random e4m3 with a scale for 128 x 128, or signed integers with one for a row."""

    def __init__(self, kind: str, rows: int, depth: int, random: torch.Generator) -> None:
        super().__init__()
        side = 128 if kind == "float8" else 1
        self.box = side, 128 if kind == "float8" else depth
        values = torch.randn(EXPERTS, rows, depth, generator=random)
        scale = torch.rand(EXPERTS, rows // side, depth // self.box[1], generator=random) + 0.5
        own = values.to(torch.float8_e4m3fn) if kind == "float8" else (values * 40).to(torch.int8)
        self.register_buffer("codes", own)
        self.register_buffer("scale", scale if kind == "float8" else scale.bfloat16() / 40)

    def forward(self) -> Any:
        rows, columns = self.box
        spread = self.scale.repeat_interleave(rows, 1).repeat_interleave(columns, 2)
        return (self.codes.to(self.scale.dtype) * spread).bfloat16()


class ColumnWeights(torch.nn.Module):
    """Random matrices that lie by columns, depth by rows: integers, a scale for 64 of the depth."""

    def __init__(self, rows: int, depth: int, random: torch.Generator) -> None:
        super().__init__()
        codes = torch.randint(-8, 8, (EXPERTS, depth, rows), generator=random)
        scale = torch.rand(EXPERTS, depth // 64, 1, rows, generator=random) + 0.5
        self.register_buffer("codes", codes.to(torch.int8))
        self.register_buffer("scale", scale.bfloat16() / 8)

    def forward(self) -> Any:
        return (self.codes.unflatten(1, (-1, 64)).bfloat16() * self.scale).flatten(1, 2)


def weights(kind: str, rows: int, depth: int) -> torch.nn.Module:
    random = torch.Generator().manual_seed(_SEED)
    if kind == "by columns":
        return ColumnWeights(rows, depth, random)
    if kind in CODED_WEIGHTS:
        return CODED_WEIGHTS[kind](EXPERTS, rows, depth, random)
    return ByteWeights(kind, rows, depth, random)


class Layer(torch.nn.Module):
    """Gated experts; matrices may be turned before they are looked up, and may be on the left."""

    def __init__(self, kind: str, *, is_turned: bool = False, is_left: bool = False) -> None:
        super().__init__()
        self.first, self.second = weights(kind, 2 * INNER, HIDDEN), weights(kind, HIDDEN, INNER)
        self.is_by_columns = kind == "by columns"
        self.is_turned, self.is_left = is_turned, is_left

    def product(self, x: Any, w: Any, ids: Any) -> Any:
        if self.is_by_columns:
            return torch.bmm(x.unsqueeze(1), w[ids])[:, 0]
        if self.is_left:
            return torch.bmm(w[ids], x.unsqueeze(2))[..., 0]
        own = w.transpose(1, 2)[ids] if self.is_turned else w[ids].transpose(1, 2)
        return torch.bmm(x.unsqueeze(1), own)[:, 0]

    def forward(self, x: Any, router: Any) -> Any:
        shares, ids = torch.topk(torch.softmax(F.linear(x, router).float(), -1), CHOSEN)
        gate, up = self.product(
            x.repeat_interleave(CHOSEN, 0), self.first(), ids.reshape(-1)
        ).chunk(2, -1)
        y = self.product(F.silu(gate) * up, self.second(), ids.reshape(-1))
        return (y.view(len(x), CHOSEN, -1) * shares.to(x.dtype)[..., None]).sum(1)


def drawn(tokens: int) -> tuple[torch.Tensor, torch.Tensor]:
    random = torch.Generator().manual_seed(0)
    x, router = (torch.randn(n, HIDDEN, generator=random).bfloat16() for n in (tokens, EXPERTS))
    return x, router


def kept(compiled: Any) -> list[Any]:
    """Kernels that multiply codes, of which there are as many as of products with experts."""
    assert not [own for own in compiled.report.kernels if own.name.startswith("decode")]
    return [own for own in compiled.report.kernels if own.rule == "coded"]


@pytest.mark.parametrize(
    ("kind", "how"),
    [
        ("int4", {}),
        ("int4", {"is_turned": True}),
        ("int4", {"is_left": True}),
        ("mxfp4", {}),
        ("mxfp4", {"is_turned": True}),
        ("by columns", {}),
        ("float8", {}),
        ("int8", {}),
    ],
)
def test_weights_stay_codes_that_are_read_in_place(kind: str, how: dict[str, bool]) -> None:
    module, inputs = Layer(kind, **how).eval(), drawn(TOKENS)
    program = torch.export.export(module, inputs)
    compiled = tvm_tile.compile(program, GPU, options=OPTIONS)
    assert len(kept(compiled)) == 2
    # Codes of all experts are more than what is read of a few tokens', and of what is beside them.
    values = EXPERTS * 3 * INNER * HIDDEN * 2
    assert compiled.report.traffic < values
    found = tvm_tile.compile(program, EMULATED, options=OPTIONS)(*inputs)
    wanted = module(*inputs)
    assert relative_error(found, wanted) < 2e-2
    # Folded, the same is computed to the last bit, if in the same order.
    folded = Options(cache=False, low_bit=False)
    other = tvm_tile.compile(program, EMULATED, options=folded)(*inputs)
    limit = 1e-2 if kind == "by columns" else 0
    assert relative_error(found, other) <= limit


@pytest.mark.parametrize("tokens", [1, 16])
@pytest.mark.parametrize("kind", ["int4", "mxfp4"])
@pytest.mark.parametrize(
    ("family", "sizes"),
    [
        ("Qwen3MoeConfig", {"num_experts": EXPERTS, "moe_intermediate_size": INNER}),
        ("GptOssConfig", {"num_local_experts": EXPERTS, "sliding_window": 32}),
        ("MixtralConfig", {"num_local_experts": EXPERTS}),
    ],
)
@pytest.mark.parametrize("how", ["grouped_mm", "batched_mm"])
def test_models_of_transformers(
    family: str, sizes: dict[str, int], kind: str, tokens: int, how: str
) -> None:
    """Each with one layer, whose experts' weights are made of codes."""
    config = getattr(transformers, family)(
        vocab_size=64, hidden_size=HIDDEN, intermediate_size=HIDDEN, num_hidden_layers=1,
        num_attention_heads=4, num_key_value_heads=2, head_dim=64, num_experts_per_tok=CHOSEN,
        _experts_implementation=how, **sizes,
    )  # fmt: skip
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config).to(torch.bfloat16).eval()
    for name in ("gate_up_proj", "down_proj"):
        experts = model.model.layers[0].mlp.experts
        own = Decoded(kind, getattr(experts, name).shape, is_turned=family == "GptOssConfig")
        parametrize.register_parametrization(experts, name, own, unsafe=True)
    ids = torch.randint(0, 64, (1, tokens))
    program = torch.export.export(model, (ids,), {"use_cache": False}, strict=False)
    compiled = tvm_tile.compile(program, GPU, options=OPTIONS)
    assert len(kept(compiled)) == 2


class Decoded(torch.nn.Module):
    """Takes the place of a weight."""

    def __init__(self, kind: str, shape: Any, *, is_turned: bool) -> None:
        super().__init__()
        _, rows, depth = shape
        self.own = weights(kind, *((depth, rows) if is_turned else (rows, depth)))
        self.is_turned = is_turned

    def forward(self, _: Any) -> Any:
        return self.own().transpose(1, 2) if self.is_turned else self.own()


@pytest.mark.parametrize(("bits", "side"), [(4, 32), (4, 0), (8, 0), (8, 64)])
def test_experts_of_onnx_runtime(bits: int, side: int) -> None:
    model = coded_experts(bits, side, "float16")
    compiled = tvm_tile.compile(model.model(), GPU, options=OPTIONS)
    assert len(kept(compiled)) == 2
    model = coded_experts(bits, side, "float32")
    found = tvm_tile.compile(model.model(), EMULATED, options=OPTIONS)(*model.arguments())
    assert relative_error(found, expected(model, bits, side)) < 1e-5


def coded_experts(bits: int, side: int, dtype: str) -> Form:
    random, shapes = np.random.default_rng(1), ((EXPERTS, INNER, HIDDEN), (EXPERTS, HIDDEN, INNER))
    first, second = (
        coded_matrices(Draw(n), shape, bits, side, dtype) for n, shape in enumerate(shapes)
    )
    x, router = (random.normal(size=(TOKENS, n)).astype(dtype) for n in (HIDDEN, EXPERTS))
    return form(
        "QMoE", x, router, *first[:2], None, *second[:2], *[None] * 4, first[2], second[2],
        domain=DOMAIN, opset=17, k=CHOSEN, expert_weight_bits=bits, weights_prepacked=0,
        normalize_routing_weights=1, activation_type="silu", dtypes=(dtype,),
        constants=(2, 3, 5, 6, 11, 12), **({"block_size": side} if side else {}),
    )  # fmt: skip


def expected(model: Form, bits: int, side: int) -> np.ndarray:
    """By ONNX Runtime's definition, in float64."""
    x, router, *_ = (own for own in model.inputs)
    both = [numbers(model, place, bits, side) for place in (0, 1)]
    result = np.zeros(x.shape)
    for token, (row, scores) in enumerate(zip(x.astype("float64"), router, strict=True)):
        chosen = np.argsort(-scores)[:CHOSEN]
        shares = np.exp(scores[chosen].astype("float64"))
        for expert, share in zip(chosen, shares / shares.sum(), strict=True):
            inner = both[0][expert] @ row
            result[token] += share * (both[1][expert] @ (inner / (1 + np.exp(-inner))))
    return result


def numbers(model: Form, place: int, bits: int, side: int) -> np.ndarray:
    """The matrices of a layer: ``(codes - zeros) * scales``, each of a block of a row."""
    packed, scales, zeros = (
        model.inputs[own + place * step] for own, step in ((2, 3), (3, 3), (11, 1))
    )

    def unpacked(own: np.ndarray) -> np.ndarray:
        parts = [own >> start & ((1 << bits) - 1) for start in range(0, 8, bits)]
        return np.stack(parts, -1).reshape(*own.shape[:-1], -1)

    codes = unpacked(packed).astype("float64")
    experts, rows, depth = codes.shape
    zero = unpacked(zeros)[..., : scales.shape[-1]].reshape(experts, rows, -1, 1)
    scale = scales.reshape(experts, rows, -1, 1).astype("float64")
    blocks = codes.reshape(experts, rows, -1, side or depth)
    return ((blocks - zero) * scale).reshape(experts, rows, depth)


def relative_error(found: Any, wanted: Any) -> float:
    """The largest difference, relative to the largest element."""
    a, b = (torch.as_tensor(own).double() for own in (found, wanted))
    return float((a - b).abs().max() / b.abs().max())
