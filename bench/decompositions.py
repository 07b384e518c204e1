"""Which decompositions of PyTorch's operators compute something else than its kernels.

No compiler runs: samples are broken down as for the import (``export``) or for the backend of
``torch.compile``, with gradients (``backend``), and PyTorch itself runs what that leaves.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from unittest import mock

import torch
from torch.fx.experimental.proxy_tensor import make_fx

from bench.operator_cases import OpInfo, Sample, Tensors, Together, copied, operators, samples
from tvm_tile.frontend.torch.decompose import decomposed
from tvm_tile.frontend.torch.own_decompositions import own_decompositions
from tvm_tile.torch.backend import backend_decompositions

DTYPES = (
    *(torch.float32, torch.int64, torch.bfloat16, torch.uint8, torch.bool),
    *(torch.float64, torch.int8, torch.float16, torch.int32, torch.int16),
)
_ROUNDINGS = 32  # that a formula of several steps may be off by

Function = Callable[..., Tensors]


def differing(only: str, most: int) -> Iterator[str]:
    """A line for each operator, element type and way whose results are not PyTorch's.

    Args:
        only: names of operators contain this.
        most: samples of each element type.
    """
    chosen = {name: info for name, info in operators().items() if only in name}
    for dtype in DTYPES:
        for name, info in chosen.items():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                yield from (f"{name} {dtype} {line}" for line in _of_type(info, dtype, most))


def _of_type(info: OpInfo, dtype: torch.dtype, most: int) -> Iterator[str]:
    chosen = samples(info, dtype, most, reference=True)
    if not chosen:
        return
    for way, run in (("export", _exported), ("backend", _traced)):
        try:
            found = run(Together(chosen), tuple(t for s in chosen for t in s.tensors))
            is_right = all(_is_close(*pair) for pair in zip(found, _expected(chosen), strict=True))
        except Exception:  # some of them only, as may be
            is_right = False
        for sample in () if is_right else filter(_is_settled, chosen):
            if why := _difference(sample, run):
                yield f"{way} sample {sample.index}: {why}"
    if dtype == torch.float32:
        for sample in filter(_is_settled, chosen):
            if why := _difference_of_gradients(sample):
                yield f"backend, gradient of sample {sample.index}: {why}"


def _is_settled(sample: Sample) -> bool:
    """Whether no random numbers are drawn for its results, if of one seed in PyTorch's samples."""
    seeded = mock.patch.object(torch, "manual_seed", side_effect=lambda _: torch.seed())
    with torch.no_grad(), seeded:
        again = sample.call(*_copies(sample.tensors))
    return all(_is_close(*pair) for pair in zip(again, sample.expected, strict=True))


def _expected(chosen: Sequence[Sample]) -> Tensors:
    return tuple(t for sample in chosen for t in sample.expected)


def _exported(function: Function, tensors: Tensors) -> Tensors:
    class Model(torch.nn.Module):
        def forward(self, *given: torch.Tensor) -> Tensors:
            return function(*given)

    with torch.no_grad():
        program = torch.export.export(Model(), _copies(tensors))
        result: Tensors = decomposed(program).module()(*_copies(tensors))
    return result


def _traced(function: Function, tensors: Tensors) -> Tensors:
    with torch.no_grad():
        return _broken_down(function, tensors)


def _broken_down(function: Function, tensors: Tensors) -> Tensors:
    """Results of what AOTAutograd makes of a function for the backend."""
    with own_decompositions():
        graph = make_fx(function, dict(backend_decompositions()))(*_copies(tensors))
    result: Tensors = graph(*_copies(tensors))
    return result


def _copies(tensors: Tensors) -> Tensors:
    return tuple(map(copied, tensors))


def _difference(sample: Sample, run: Callable[[Function, Tensors], Tensors]) -> str:
    try:
        found = run(sample.call, sample.tensors)
    except Exception:  # the front door refuses what cannot be broken down
        return ""
    for i, (one, wanted) in enumerate(zip(found, sample.expected, strict=True)):
        exact = wanted if sample.exact is None else sample.exact[i]
        ties = sample.ties if i == len(found) - 1 else None
        if _is_close(one, wanted) or _is_close(one, exact.to(wanted.dtype)):
            continue
        if ties is None or not ties.allow(one, wanted):
            return f"result {i}: {_described(one, wanted)}"
    return ""


def _difference_of_gradients(sample: Sample) -> str:
    def gradients(*tensors: torch.Tensor) -> Tensors:
        leaves = [t.detach().requires_grad_(t.is_floating_point()) for t in tensors]
        results = [t for t in sample.call(*leaves) if t.requires_grad]
        wanted = [leaf for leaf in leaves if leaf.requires_grad]
        total = sum(t.sum() if t.ndim == 0 else (t * _weights(t)).sum() for t in results)
        found = torch.autograd.grad(total, wanted, allow_unused=True)
        return tuple(t for t in found if t is not None)

    wide = (t.double() if t.is_floating_point() else t for t in sample.tensors)
    try:
        expected, exact = gradients(*_copies(sample.tensors)), gradients(*wide)
    except Exception:  # it has no gradient
        return ""
    try:
        found = _broken_down(gradients, sample.tensors)
    except Exception:  # PyTorch then runs it
        return ""
    for i, (one, wanted) in enumerate(zip(found, expected, strict=True)):
        if not _is_close(one, wanted) and not _is_close(one, exact[i].to(wanted.dtype)):
            return f"gradient {i}: {_described(one, wanted)}"
    return ""


def _weights(like: torch.Tensor) -> torch.Tensor:
    """Different factors of all results, so that no two gradients cancel."""
    return (torch.arange(like.numel(), dtype=like.dtype).reshape(like.shape) % 7 + 1) / 4


def _is_close(found: torch.Tensor, wanted: torch.Tensor) -> bool:
    if found.dtype != wanted.dtype or found.shape != wanted.shape:
        return False
    if not wanted.is_floating_point():
        return torch.equal(found, wanted)
    return not bool(_far(found, wanted).any())


def _far(found: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    """Where two results differ by more than roundings, which grow with the largest number."""
    step = _ROUNDINGS * torch.finfo(wanted.dtype).eps
    finite = wanted[wanted.isfinite()].double().abs()
    least = step * float(finite.max()) / 4 if finite.numel() else 0.0
    return ~torch.isclose(found.double(), wanted.double(), step, least + step / 4, equal_nan=True)


def _described(found: torch.Tensor, wanted: torch.Tensor) -> str:
    if found.dtype != wanted.dtype or found.shape != wanted.shape:
        return f"{found.dtype}{list(found.shape)} instead of {wanted.dtype}{list(wanted.shape)}"
    if not wanted.is_floating_point():
        place = int((found != wanted).flatten().int().argmax())
    else:
        place = int(_far(found, wanted).flatten().int().argmax())
    return f"{found.flatten()[place].item()} instead of {wanted.flatten()[place].item()}"
