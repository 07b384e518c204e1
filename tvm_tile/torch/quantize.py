"""Round the weights of linear layers to codes of a few bits, or 8-bit floats: for trying things.

Each weight is rounded to the nearest number that its codes can tell, whatever data come to the
model. Methods that look at data, such as GPTQ and AWQ, lose less; what they make is compiled, too.
"""

from __future__ import annotations

import copy
import logging
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch
from torch import nn

from tvm_tile.errors import ModelError, OptionError
from tvm_tile.errors.arguments import check_count, check_flag
from tvm_tile.torch.codebooks import CODEBOOKS, Codebook
from tvm_tile.torch.coded_linear import CodedLinear, CodedMatrix
from tvm_tile.torch.scaled_linear import ScaledLinear, scaled

_LOG = logging.getLogger(__name__)
_DTYPES = (torch.float16, torch.bfloat16, torch.float32)
_MOST_TOLD = 8  # layers, in a message
_GROUP = 128
_FLOATS, _MULTIPLE = "fp8", 16  # inputs and outputs of layers that PyTorch multiplies so


def quantize(
    module: nn.Module, codes: str = "int4", *, group: int = _GROUP, symmetric: bool = True
) -> nn.Module:
    """A copy of a module whose linear layers hold codes of a few bits instead of weights, or
    multiply 8-bit floats.

    Weights are rounded to nearest: this is for those who only have floating-point numbers, to try
    things and for benchmarks, and no substitute for methods that are calibrated with data. The copy
    runs in PyTorch, where it decodes all of a weight at each call, and is exported as any other
    module; compiled, its weights stay codes as ``Options.low_bit`` says.

    A layer keeps its weight where the group does not divide its depth, where its class is none of
    PyTorch's own (``nn.MultiheadAttention`` reads the weight of its last layer by itself), where it
    has hooks, where others than such layers have the weight, too, and where this is not of float16,
    bfloat16 or float32, finite and in memory. The logger ``tvm_tile.torch.quantize`` names these as
    a warning. Layers that shared a weight share its codes. Codes are not trained: gradients are
    those of all else.

    Args:
        module: module with ``nn.Linear`` layers; it stays as it is. Only what the copy still needs
            is copied, so that weights of codes are not in memory twice.
        codes: ``"int2"``, ``"int4"`` (the default) or ``"int8"``, or ``"nf4"``: sixteen quantiles
            of the normal distribution (QLoRA, arXiv 2305.14314). Or ``"fp8"``: layers with a
            multiple of 16 inputs and outputs multiply e4m3 floats, of GPUs that have these: weights
            with a scale for each output, and activations, which are rounded when they come, with a
            scale for each row. Both are the largest magnitude divided by 448.
        group: elements of a row of the weight that share a scale; whole bytes of codes; 128 by
            default.
        symmetric: True by default: of ``n`` bits, codes are ``-(2**(n-1) - 1)`` to
            ``2**(n-1) - 1``, and a scale is the group's largest magnitude divided by the latter; of
            ``"nf4"``, whose table this is for, it is the largest magnitude itself. False: codes are
            ``0`` to ``2**n - 1``, with a zero point of 8 bits for each group, whose range from its
            smallest to its largest weight, and to 0, is divided into ``2**n - 1`` steps. Scales
            have the weight's element type. Each weight is off by at most half a step, if that is a
            normal number of this type, and by the rounding of the scale and of the product with it
            to this type.

    Returns:
        The copy; of a linear layer itself, one of codes.

    Raises:
        ModelError: the argument is no module, or has no linear layers.
        OptionError: there are no such codes, the group is not of whole bytes, ``"nf4"`` is to have
            zero points, ``"fp8"`` other groups, or no linear layer can hold codes.
    """
    codebook = _codebook(codes, group, symmetric)
    if not isinstance(module, nn.Module):
        kind = f"{type(module).__module__}.{type(module).__qualname__}"
        raise ModelError("quantize takes a torch.nn.Module", kind, "pass the module itself")
    multiples = (1, group) if codebook else (_MULTIPLE, _MULTIPLE)
    chosen = _chosen(module, multiples)
    return copy.deepcopy(module, _replacements(chosen, codebook, group))


def _chosen(module: nn.Module, multiples: tuple[int, int]) -> list[nn.Linear]:
    """The linear layers that can hold codes, of weights whose extents are such multiples."""
    layers = {name: own for name, own in module.named_modules() if isinstance(own, nn.Linear)}
    if not layers:
        remedy = "pass a module with linear layers; other weights are not rounded"
        raise ModelError("a module to quantize has nn.Linear layers", "none", remedy)
    others = _read_by_others(module)
    asked = ((name, _obstacle(own, multiples, others)) for name, own in layers.items())
    staying = {name: why for name, why in asked if why}
    if len(staying) == len(layers):
        remedy = "pass another group, or other codes; layers of other kinds or types must be "
        remedy += "replaced first"
        raise OptionError("some nn.Linear must be able to hold codes", _told(staying), remedy)
    if staying:
        _LOG.warning("linear layers keep their weights: %s", _told(staying))
    return [own for name, own in layers.items() if name not in staying]


def _replacements(
    layers: Iterable[nn.Linear], codebook: Codebook | None, group: int
) -> dict[int, Any]:
    """Objects that a copy refers to in the place of others, by the identity of those."""
    copies: dict[int, Any] = {}
    made: dict[int, Callable[[Any], nn.Module]] = {}  # of a bias, by the weight's identity
    for layer in layers:
        key, bias = id(layer.weight), copy.deepcopy(layer.bias, copies)
        if key not in made:
            weight = layer.weight.detach()
            if codebook:
                made[key] = partial(CodedLinear, CodedMatrix.of(weight, codebook, group))
            else:
                made[key] = partial(ScaledLinear, *scaled(weight))
        copies[id(layer)] = made[key](bias).train(layer.training)
    return copies


def _codebook(codes: str, group: int, symmetric: bool) -> Codebook | None:
    """The codebook of this name, after a check of the options; ``None`` for 8-bit floats."""
    check_flag("symmetric", symmetric)
    names = sorted({*(name for name, _ in CODEBOOKS), _FLOATS})
    if codes not in names:
        raise OptionError(f"codes must be one of {', '.join(names)}", repr(codes), 'pass "int4"')
    if codes == _FLOATS:
        if (group, symmetric) != (_GROUP, True):
            told = f"{group=}, {symmetric=}"
            raise OptionError("fp8 has a scale for each row", told, "leave both out")
        return None
    codebook = CODEBOOKS.get((codes, symmetric))
    if codebook is None:
        remedy = "leave symmetric=False out"
        raise OptionError(f"{codes} has no zero points", f"symmetric={symmetric}", remedy)
    check_count("group", group, 1, "pass 128, or 32 for smaller errors")
    if group % codebook.in_a_byte:
        requirement = f"group must be a multiple of {codebook.in_a_byte}, whole bytes of {codes}"
        raise OptionError(requirement, str(group), "pass 128, or 32 for smaller errors")
    return codebook


def _read_by_others(module: nn.Module) -> frozenset[int]:
    """Identities of the parameters that others than plain linear layers have, or not as weights."""
    return frozenset(
        id(parameter)
        for owner in module.modules()
        for name, parameter in owner.named_parameters(recurse=False, remove_duplicate=False)
        if not _is_plain(owner) or name != "weight"
    )


def _is_plain(layer: nn.Module) -> bool:
    """Whether a layer is PyTorch's own linear one, without hooks or a ``forward`` of its own."""
    has_hooks = any(value for name, value in vars(layer).items() if name.endswith("_hooks"))
    return type(layer) is nn.Linear and not has_hooks and "forward" not in vars(layer)


def _obstacle(layer: nn.Linear, multiples: tuple[int, int], others: frozenset[int]) -> str:
    """Why a layer keeps its weight, whose extents are such multiples; empty where it need not."""
    kind, weight = type(layer), layer._parameters.get("weight")
    if not _is_plain(layer):
        is_own = kind is nn.Linear
        return "it has hooks" if is_own else f"it is a {kind.__module__}.{kind.__qualname__}"
    if type(weight) is not nn.Parameter:
        return f"its weight is a {type(weight).__qualname__}"
    if id(weight) in others:
        return "others than plain linear layers have its weight, too"
    pairs = zip(weight.shape, multiples, strict=True)
    if not weight.numel() or any(size % multiple for size, multiple in pairs):
        return f"its weight is {tuple(weight.shape)}"
    name = str(weight.dtype).removeprefix("torch.")
    if weight.dtype not in _DTYPES:
        return f"its weight is of {name}"
    if weight.is_meta:
        return "its weight is not in memory"
    # Of more, what is decoded might round to infinity.
    is_small = weight.detach().abs() <= torch.finfo(weight.dtype).max / 2
    return "" if bool(is_small.all()) else f"its weight has NaN, or more than half of {name}'s most"


def _told(staying: dict[str, str]) -> str:
    """Layers and why they stay, the first of each reason by name."""
    counts = Counter(staying.values())
    first = {why: name for name, why in reversed(staying.items())}
    told = [
        f"{first[why] or 'the module itself'}{f' and {count - 1} more' if count > 1 else ''}, {why}"
        for why, count in counts.items()
    ]
    more = [] if len(told) <= _MOST_TOLD else [f"{len(told) - _MOST_TOLD} more reasons"]
    return "; ".join([*told[:_MOST_TOLD], *more])
