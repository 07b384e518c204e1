"""Which samples of an operator are run: PyTorch's, and others made of them."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch.testing._internal.opinfo.core import (
    BinaryUfuncInfo,
    OpInfo,
    ReductionOpInfo,
    UnaryUfuncInfo,
)

from bench.operator_cases import Sample, spread, usable

_MOST_ELEMENTS = 100_000  # of a sample's tensors: PyTorch's largest show nothing else
# They take any numbers, where others take indices or what else has a range.
_OF_ANY_NUMBERS = (UnaryUfuncInfo, BinaryUfuncInfo, ReductionOpInfo)


def drawn(info: OpInfo, dtype: torch.dtype, most: int) -> list[Sample]:
    """Usable samples of an operator and an element type, of four origins.

    These are PyTorch's samples (``sample``); those with which it compares NumPy, of special values,
    broadcast and of all layouts (``reference``); samples that are not contiguous (``strided``); and
    samples whose numbers are drawn from the whole range of their type (``random``), where the
    operator takes any.

    Args:
        info: the operator.
        dtype: their element type.
        most: how many of PyTorch's lists, each spread evenly; half as many of the others.
    """
    if dtype not in info.supported_dtypes("cpu"):
        return []
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        listed = _listed(info, dtype, most)
        found = (usable(info, index, one, origin) for origin, index, one in listed)
        return [sample for sample in found if sample is not None]


def _listed(info: OpInfo, dtype: torch.dtype, most: int) -> Iterator[tuple[str, int, Any]]:
    """(origin, place in the list, sample)."""
    own = list(enumerate(info.sample_inputs("cpu", dtype, requires_grad=False)))
    references = list(enumerate(info.reference_inputs("cpu", dtype, requires_grad=False)))
    references = references[len(own) :]  # the samples are the first of them
    for origin, pairs in (("sample", own), ("reference", references)):
        pairs = [pair for pair in pairs if _elements(pair[1]) <= _MOST_ELEMENTS]
        for place in spread(len(pairs), most):
            yield origin, *pairs[place]
    shaped = [pair for pair in own if 1 < _elements(pair[1]) <= _MOST_ELEMENTS]
    for place in spread(len(shaped), -(-most // 2)):
        index, sample = shaped[place]
        yield "strided", index, sample.noncontiguous()
        if isinstance(info, _OF_ANY_NUMBERS):
            yield "random", index, _drawn_anew(sample, index)


def _elements(sample: Any) -> int:
    """Of a sample's largest tensor."""
    sizes = [0]
    sample.transform(lambda x: sizes.append(x.numel()) if isinstance(x, torch.Tensor) else None)
    return max(sizes)


def _drawn_anew(sample: Any, seed: int) -> Any:
    """A sample with other numbers: of integers all there are, of floats some large, some small."""
    generator = torch.Generator().manual_seed(seed)
    first = sample.input

    def anew(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        numbers = _numbers(value, generator)
        # Nobody divides integers by zero but by mistake, and PyTorch raises an error.
        is_divisor = value is not first and not value.is_floating_point()
        return numbers.masked_fill(numbers == 0, 1) if is_divisor else numbers

    return sample.transform(anew)


def _numbers(like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    shape, dtype = like.shape, like.dtype
    if dtype == torch.bool:
        return torch.randint(2, shape, generator=generator).bool()
    if dtype.is_floating_point:
        scales = torch.randn(shape, generator=generator).mul(2).exp()
        return (torch.randn(shape, generator=generator) * scales).to(dtype)
    if dtype.is_complex:
        return like
    info = torch.iinfo(dtype)
    return torch.randint(info.min, info.max, shape, generator=generator, dtype=dtype)
