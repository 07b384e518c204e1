"""Calls of Core ATen operators that no sample of PyTorch's operator database reaches.

Some are there to be refused: the table then says why, in the front door's own words.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from bench.operator_cases import Sample, sample_of

aten = torch.ops.aten
Form = tuple[Callable[..., Any], tuple[torch.Tensor, ...]]

_ALL = [True, True, True]


def core_operators() -> list[str]:
    """Names of the operators that PyTorch tags as its core."""
    names = (str(name) for name in torch._C._dispatch_get_all_op_names())
    split = (name.removeprefix("aten::").partition(".") for name in names if "aten::" in name)
    overloads = (
        getattr(getattr(torch.ops.aten, packet), overload or "default")
        for packet, _, overload in split
    )
    return sorted(str(o) for o in overloads if torch.Tag.core in o.tags)


def core_samples(operator: str) -> list[Sample]:
    """The calls of an operator of the core by its name; none of one that the database reaches."""
    found = (sample_of(i, call, given) for i, (call, given) in enumerate(forms(operator)))
    return [sample for sample in found if sample is not None]


def forms(operator: str) -> tuple[Form, ...]:
    """Functions of tensors, each with its tensors, that call an operator; empty for all others.

    Args:
        operator: such as ``aten.col2im.default``.
    """
    torch.manual_seed(0)
    for listed in (_pads(), _images(), _numbers(), _gradients(), _of_kinds()):
        if operator in listed:
            return listed[operator]
    return ()


def _normal(*shape: int) -> torch.Tensor:
    return torch.randn(shape)


def _integers(*shape: int) -> torch.Tensor:
    return torch.randint(-9, 10, shape)


def _pads() -> dict[str, tuple[Form, ...]]:
    """Each of a batch, of no batch with sides of its own, and cut off by a negative width."""
    listed: dict[str, tuple[Form, ...]] = {}
    reflecting, replicating = (3, 2, 1), (3, 2)
    for name, ranks in (("reflection", reflecting), ("replication", replicating)):
        for rank in ranks:
            pad = getattr(aten, f"{name}_pad{rank}d").default
            batch, single = _normal(2, 3, *(4,) * rank), _normal(3, *range(4, 4 + rank))
            listed[str(pad)] = (
                (lambda x, pad=pad, n=rank: pad(x, [1, 2] * n), (batch,)),
                (lambda x, pad=pad, n=rank: pad(x, [3, 0] + [0, 1] * (n - 1)), (single,)),
                (lambda x, pad=pad, n=rank: pad(x, [-1, 2] + [0, 0] * (n - 1)), (batch,)),
            )
    return listed


def _images() -> dict[str, tuple[Form, ...]]:
    col2im, bag = aten.col2im.default, aten._embedding_bag.default
    table, words = _normal(7, 4), torch.tensor([1, 5, 2, 2, 6, 0])
    starts = torch.tensor([0, 2, 2])
    return {
        "aten.col2im.default": (
            (lambda x: col2im(x, [4, 5], [2, 2], [1, 1], [0, 0], [1, 1]), (_normal(2, 12, 12),)),
            (lambda x: col2im(x, [6, 7], [3, 2], [1, 2], [1, 1], [2, 1]), (_normal(12, 21),)),
        ),
        # A bag's other results differ between PyTorch's own kernels.
        "aten._embedding_bag.default": tuple(
            (lambda w, i, o, mode=mode: bag(w, i, o, False, mode)[0], (table, words, starts))
            for mode in range(3)
        ),
    }


def _numbers() -> dict[str, tuple[Form, ...]]:
    """Operators of a tensor and a number, and tensors that only have a shape."""
    listed: dict[str, tuple[Form, ...]] = {}
    flags = torch.tensor([True, False])
    for name in ("and", "or", "xor"):
        operator = getattr(aten, f"bitwise_{name}").Scalar
        listed[str(operator)] = (
            (lambda x, of=operator: of(x, 6), (_integers(3, 4),)),
            (lambda x, of=operator: of(x, -3), (_integers(5).int(),)),
            (lambda x, of=operator: of(x, True), (flags,)),
        )
    divide, empty = aten.div.Scalar_mode, aten.empty_strided.default
    listed["aten.div.Scalar_mode"] = tuple(
        (lambda x, mode=mode: divide(x, 2.5, rounding_mode=mode), (x,))
        for mode in (None, "floor", "trunc")
        for x in (_normal(3, 4), _integers(3, 4))
    )
    listed["aten.bitwise_xor.Tensor"] = (
        (aten.bitwise_xor.Tensor, (_integers(3, 4), _integers(4))),
        (aten.bitwise_xor.Tensor, (flags, ~flags)),
    )
    listed["aten.scatter.value"] = (
        (lambda x, i: aten.scatter.value(x, 1, i, 2.5), (_normal(3, 4), torch.tensor([[0, 3]]))),
    )
    listed["aten.var.dim"] = (
        (lambda x: aten.var.dim(x, [-1]), (_normal(3, 4),)),
        (lambda x: aten.var.dim(x, [0, 1], False, True), (_normal(3, 4),)),
    )
    listed["aten.empty_strided.default"] = (
        (lambda x: aten.fill.Scalar(empty([2, 3], [3, 1]), 2.0) + x, (_normal(2, 3),)),
        (lambda x: aten.fill.Scalar(empty([2, 3], [1, 2]), 2.0) + x, (_normal(2, 3),)),
    )
    return listed


def _gradients() -> dict[str, tuple[Form, ...]]:
    image, small = _normal(2, 4, 6, 6), _normal(2, 4, 3, 3)
    largest = aten.max_pool2d_with_indices.default(image, [2, 2])
    rows, scale, words = _normal(5, 6), _normal(6), torch.tensor([[1, 3], [3, 0]])
    ends = (_normal(5, 1), _normal(5, 1).exp(), _normal(2, 2), _normal(2, 2).exp())
    weight, square = _normal(5, 4, 3, 3), ([1, 1], [0, 0], [1, 1], False, [0, 0], 1, _ALL)
    grad = torch.ops.aten
    return {
        "aten._adaptive_avg_pool2d_backward.default": (
            (grad._adaptive_avg_pool2d_backward.default, (small, image)),
        ),
        "aten.avg_pool2d_backward.default": (
            (
                lambda g, x: grad.avg_pool2d_backward.default(
                    g, x, [2, 2], [2, 2], [0, 0], False, True, None
                ),
                (small, image),
            ),
        ),
        "aten.convolution_backward.default": (
            (
                lambda g, x, w: grad.convolution_backward.default(g, x, w, [5], *square),
                (_normal(2, 5, 4, 4), image, weight),
            ),
        ),
        "aten.embedding_dense_backward.default": tuple(
            (
                lambda g, i, pad=pad, scaled=scaled: grad.embedding_dense_backward.default(
                    g, i, 7, pad, scaled
                ),
                (_normal(2, 2, 4), words),
            )
            for pad, scaled in ((-1, False), (3, True))
        ),
        "aten.max_pool2d_with_indices_backward.default": (
            (
                lambda g, x, i: grad.max_pool2d_with_indices_backward.default(
                    g, x, [2, 2], [2, 2], [0, 0], [1, 1], False, i
                ),
                (small, image, largest[1]),
            ),
        ),
        "aten.native_group_norm_backward.default": (
            (
                lambda g, x, m, r, w: grad.native_group_norm_backward.default(
                    g, x, m, r, w, 2, 4, 36, 2, _ALL
                ),
                (_normal(2, 4, 6, 6), image, ends[2], ends[3], _normal(4)),
            ),
        ),
        "aten.native_layer_norm_backward.default": (
            (
                lambda g, x, m, r, w, b: grad.native_layer_norm_backward.default(
                    g, x, [6], m, r, w, b, _ALL
                ),
                (_normal(5, 6), rows, ends[0], ends[1], scale, scale),
            ),
        ),
    }


def _of_kinds() -> dict[str, tuple[Form, ...]]:
    """Random numbers, complex ones, what the data decide, what writes; and forms that are not."""
    x, flags = _normal(3, 4), torch.tensor([True, False, True])
    norm, mean, variance = _normal(2, 3, 4), _normal(3), _normal(3).exp()
    legit = aten._native_batch_norm_legit.default
    no_stats = aten._native_batch_norm_legit.no_stats
    return {
        "aten._native_batch_norm_legit.no_stats": (
            (lambda x, w: no_stats(x, w, w, True, 0.1, 1e-5), (norm, mean)),
        ),
        "aten._fft_c2r.default": (
            (
                lambda x: aten._fft_c2r.default(torch.view_as_complex(x), [1], 0, 6),
                (_normal(3, 4, 2),),
            ),
        ),
        "aten._fft_r2c.default": ((lambda x: aten._fft_r2c.default(x, [1], 0, True).real, (x,)),),
        "aten._local_scalar_dense.default": (
            (lambda x: x + aten._local_scalar_dense.default(x.sum()), (x,)),
        ),
        "aten._native_batch_norm_legit.default": tuple(
            (lambda x, m, v, t=training: legit(x, None, None, m, v, t, 0.1, 1e-5)[0], tensors)
            for training in (False, True)
            for tensors in ((norm, mean, variance),)
        ),
        "aten.atan2.out": ((lambda x, y: aten.atan2.out(x, y, out=torch.empty(3, 4)), (x, x + 1)),),
        "aten.native_dropout.default": (
            (lambda x: aten.native_dropout.default(x, 0.5, False)[0], (x,)),
            (lambda x: aten.native_dropout.default(x, 0.5, True)[0].abs() <= 2 * x.abs(), (x,)),
        ),
        "aten.nonzero.default": ((aten.nonzero.default, (flags,)),),
        "aten.rand.default": ((lambda x: aten.rand.default([3, 4]) < 1 + x.abs(), (x,)),),
        "aten.randn.default": ((lambda x: aten.randn.default([3, 4]).abs() < 9 + x.abs(), (x,)),),
        "aten.randperm.default": ((lambda x: x + aten.randperm.default(4).sort()[0], (x,)),),
        "aten.resize_.default": (
            (lambda x: aten.resize_.default(x.clone(), [2, 6]), (x,)),
            (lambda x: aten.resize_.default(x.clone(), [2, 3]), (x,)),
        ),
        "aten.sym_is_contiguous.default": (
            (lambda x: x + bool(aten.sym_is_contiguous.default(x)), (x,)),
        ),
        "aten.sym_numel.default": ((lambda x: x + aten.sym_numel.default(x), (x,)),),
        "aten.sym_size.int": ((lambda x: x + aten.sym_size.int(x, 1), (x,)),),
        "aten.sym_storage_offset.default": (
            (lambda x: x + aten.sym_storage_offset.default(x[1:]), (x,)),
        ),
        "aten.sym_stride.int": ((lambda x: x + aten.sym_stride.int(x, 0), (x,)),),
    }
