"""Models with complex numbers inside, as PyTorch computes them."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402
from torch_backend_runs import backend  # noqa: E402

import tvm_tile  # noqa: E402
from tvm_tile.errors import UnsupportedOperatorError  # noqa: E402
from tvm_tile.torch import GraphReport  # noqa: E402

pytestmark = pytest.mark.skipif(not find_spec("pyopencl"), reason="needs pyopencl")
OPTIONS = tvm_tile.Options(cache=False)


class Rotary(nn.Module):
    """Llama 4's rotary embedding, its angles as complex numbers of a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("turns", torch.polar(torch.ones(6, 1, 4), torch.randn(6, 1, 4)))

    def forward(self, queries: Tensor, keys: Tensor) -> tuple[Tensor, ...]:
        return self._turned(queries), self._turned(keys)

    def _turned(self, x: Tensor) -> Tensor:
        pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
        return torch.view_as_real(pairs * self.turns).flatten(3).type_as(x)


class FNet(nn.Module):
    """A block of FNet, which mixes tokens by a Fourier transform of two dimensions."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(16) for _ in range(2))
        self.feed = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))

    def forward(self, x: Tensor) -> Tensor:
        x = self.norms[0](x + torch.fft.fft2(x).real)
        return self.norms[1](x + self.feed(x))


class FourierLayer(nn.Module):
    """A layer of a Fourier neural operator: low frequencies are mixed by complex weights."""

    def __init__(self) -> None:
        super().__init__()
        self.low, self.high = (
            nn.Parameter(torch.randn(4, 6, 5, 5, dtype=torch.complex64) / 5) for _ in range(2)
        )

    def forward(self, x: Tensor) -> Tensor:
        spectrum = torch.fft.rfft2(x)
        mixed = torch.zeros(*x.shape[:1], 6, 16, 9, dtype=torch.complex64)
        for rows, weight in ((slice(5), self.low), (slice(-5, None), self.high)):
            part = torch.einsum("bixy,ioxy->boxy", spectrum[:, :, rows, :5], weight)
            mixed[:, :, rows, :5] = part
        return torch.fft.irfft2(mixed, s=x.shape[-2:])


class Whisper(nn.Module):
    """Whisper's front end: a signal's logarithmic mel spectrum."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("window", torch.hann_window(400))
        self.register_buffer("filters", torch.rand(20, 201))

    def forward(self, signal: Tensor) -> Tensor:
        frames = torch.stft(signal, 400, 160, window=self.window, return_complex=True)
        power = frames[..., :-1].abs() ** 2
        logs = torch.clamp(self.filters @ power, min=1e-10).log10()
        return (torch.maximum(logs, logs.max() - 8.0) + 4.0) / 4.0


class Vocos(nn.Module):
    """The head of Vocos: magnitudes and phases of frames become a signal."""

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(8, 66)
        self.register_buffer("window", torch.hann_window(64))

    def forward(self, x: Tensor) -> Tensor:
        magnitude, phase = self.out(x).transpose(1, 2).chunk(2, dim=1)
        magnitude = torch.clip(torch.exp(magnitude), max=1e2)
        frames = magnitude * (torch.cos(phase) + 1j * torch.sin(phase))
        return torch.istft(frames, 64, 16, 64, self.window, center=True)


class There(nn.Module):
    """A signal's frames, and the signal from them."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function
        self.register_buffer("window", torch.hann_window(48))

    def forward(self, x: Tensor) -> Any:
        return self.function(x, self.window)


def and_back(x: Tensor, window: Tensor) -> Tensor:
    how = {"n_fft": 50, "hop_length": 12, "win_length": 48, "window": window, "normalized": True}
    return torch.istft(torch.stft(x, return_complex=True, **how), length=x.shape[-1], **how)


def stepwise(x: Tensor, window: Tensor) -> Tensor:
    """Frames as real numbers, whole spectra of complex signals, and steps that divide no frame."""
    whole = torch.stft(x * (1 + 2j), 48, 7, window=window, center=False, return_complex=True)
    real = torch.view_as_real(torch.stft(x, 48, 20, window=window, return_complex=True))
    return whole.abs().sum() + real


def filtered(x: Tensor, _: Tensor) -> tuple[Tensor, ...]:
    """Long transforms: products of short ones, of a prime number of points and of two primes'."""
    low = torch.fft.irfft(torch.fft.rfft(x) * 0.5j, x.shape[-1])
    prime = torch.fft.ihfft(x[:, :509], norm="ortho")
    squared = torch.fft.fftn(x[:, :961] + 0.5j)
    there = torch.fft.ifft2(torch.fft.fftshift(torch.fft.fft2(x[:, :600])), norm="forward")
    return low, torch.fft.hfft(prime, 509), squared.real, torch.view_as_real(there)


def mapped(x: Tensor, _: Tensor) -> tuple[Tensor, ...]:
    """What is written into, and functions of complex numbers."""
    z = torch.complex(x[:, :9], x[:, 9:18])
    z[:, 2:4] = z[:, :2].conj() * 2j
    z.imag.add_(1)
    w = (z.exp() / (z + 3) - z.sqrt()).sin() ** 2
    rows = torch.stack((w, z), 1).reshape(2, 2, 3, 3) @ torch.cat((z, z)).reshape(2, 2, 3, 3)
    kept = torch.where(rows.abs() > 1, rows / rows.abs(), 1j)
    spread, mean = torch.var_mean(kept)
    size = torch.linalg.vector_norm(w.log1p(), dim=1)
    return torch.view_as_real(kept.mT.sum(-1)), size, spread + mean.real


def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[Tensor, ...]]] = {
    "rotary embedding": (Rotary, (drawn(2, 6, 3, 8), drawn(2, 6, 2, 8))),
    "FNet": (FNet, (drawn(2, 12, 16),)),
    "Fourier neural operator": (FourierLayer, (drawn(2, 4, 16, 16),)),
    "Whisper": (Whisper, (drawn(1, 3200),)),
    "Vocos": (Vocos, (drawn(2, 9, 8),)),
    "there and back": (lambda: There(and_back), (drawn(2, 300),)),
    "frames": (lambda: There(stepwise), (drawn(2, 130),)),
    "long transforms": (lambda: There(filtered), (drawn(2, 1500),)),
    "functions": (lambda: There(mapped), (drawn(2, 18),)),
}


@pytest.mark.bank(3)
@pytest.mark.parametrize("name", MODELS)
def test_as_in_pytorch(name: str) -> None:
    torch.manual_seed(0)
    make, inputs = MODELS[name]
    model = make().eval()
    with torch.no_grad():
        wanted = model(*(x.clone() for x in inputs))
    compiled = tvm_tile.compile(model, "emulated", example_inputs=inputs, options=OPTIONS)
    assert_close(compiled(*inputs), wanted)


@pytest.mark.bank(2)
@pytest.mark.parametrize("name", ["rotary embedding", "Fourier neural operator", "Vocos", "frames"])
def test_behind_torch_compile(name: str) -> None:
    torch.manual_seed(0)
    torch._dynamo.reset()
    make, inputs = MODELS[name]
    model = make().eval()
    reports: list[GraphReport] = []
    with torch.no_grad():
        found = torch.compile(model, backend=backend(reports.append))(*inputs)
        assert_close(found, model(*inputs))
    assert not any(report.eager for report in reports), reports


def test_what_returns_is_the_signal() -> None:
    (signal,) = MODELS["there and back"][1]
    compiled = tvm_tile.compile(
        There(and_back), "emulated", example_inputs=(signal,), options=OPTIONS
    )
    assert_close(compiled(signal), signal)


@pytest.mark.whole
def test_a_small_llama_4() -> None:
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 32, "intermediate_size": 48, "intermediate_size_mlp": 64, "head_dim": 8}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 2}
    experts = {"num_local_experts": 2, "num_experts_per_tok": 1, "moe_layers": [1]}
    limits = {"vocab_size": 96, "max_position_embeddings": 64, "attention_chunk_size": 16}
    config = transformers.Llama4TextConfig(
        **sizes, **heads, **experts, **limits, pad_token_id=0, attn_implementation="eager"
    )
    torch.manual_seed(0)
    model = transformers.Llama4ForCausalLM(config).eval()
    tokens = torch.arange(1, 13)[None]
    with torch.no_grad():
        wanted = model(tokens, use_cache=False).logits
    inputs = {"input_ids": tokens, "use_cache": False}
    compiled = tvm_tile.compile(model, "emulated", example_inputs=inputs, options=OPTIONS)
    assert_close(compiled(tokens), wanted)


@pytest.mark.parametrize(("inverse", "onesided"), [(0, 1), (1, 0), (1, 1)])
def test_long_transforms_of_onnx(inverse: int, onesided: int) -> None:
    signal = drawn(2, 450, 1 + inverse).numpy()
    axis = onnx.numpy_helper.from_array(np.array(1), "axis")
    types = [helper.make_tensor_value_info(name, 1, None) for name in "xy"]
    types[0].type.CopyFrom(helper.make_tensor_type_proto(1, signal.shape))
    node = helper.make_node("DFT", ["x", "", "axis"], ["y"], inverse=inverse, onesided=onesided)
    graph = helper.make_graph([node], "transform", types[:1], types[1:], [axis])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    z = signal[..., 0] + (1j * signal[..., 1] if inverse else 0)
    transform = {(0, 1): np.fft.rfft, (1, 0): np.fft.ifft, (1, 1): np.fft.irfft}
    wanted = transform[inverse, onesided](z, axis=1)
    parts = [wanted] if wanted.dtype.kind == "f" else [wanted.real, wanted.imag]
    found = tvm_tile.compile(model, "emulated", options=OPTIONS)(signal)
    assert_close(found, torch.from_numpy(np.stack(parts, -1)))


def test_complex_tensors_of_onnx_are_refused() -> None:
    types = [helper.make_tensor_value_info(name, 14, [2, 3]) for name in ("z", "y")]
    graph = helper.make_graph(
        [helper.make_node("Identity", ["z"], ["y"])], "z", *([t] for t in types)
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    with pytest.raises(UnsupportedOperatorError, match="complex tensors: 'z', 'y'"):
        tvm_tile.compile(model, "emulated", options=OPTIONS)


def assert_close(found: Any, wanted: Any) -> None:
    """Compare results by their largest element: sums of a transform round all of its results."""
    several = isinstance(wanted, tuple)
    for one, other in zip(*((found, wanted) if several else ([found], [wanted])), strict=True):
        exact = other.numpy()
        scale = np.abs(exact).max()
        np.testing.assert_allclose(np.asarray(one) / scale, exact / scale, atol=2e-6)
