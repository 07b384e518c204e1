"""Calls of graphs that need nothing of what AOTAutograd does around each call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._functorch._aot_autograd.schemas import OutputType, PlainTensorMeta

from tvm_tile.torch.sizes import BoxedCall


def is_plain(inputs: int) -> bool:
    """Whether the inference graph that AOTAutograd has at hand is called as Dynamo's is: with the
    same inputs, all of them tensors that it only reads, and with results in memory of their own.

    AOTAutograd writes back what a graph has changed, makes results views of what they are views of,
    and switches autocasting off. With a hundred weights and more its wrappers take as long as the
    launches, though nothing of this is to be done.

    Args:
        inputs: number of inputs that Dynamo's graph takes.
    """
    context = torch._guards.TracingContext.try_get()
    found = None if context is None else context.fw_metadata
    return (
        found is not None
        and not torch._C._is_any_autocast_enabled()
        and len(found.input_info) == inputs
        and not any(one.mutates_data or one.mutates_metadata for one in found.input_info)
        and all(one.output_type is OutputType.non_alias for one in found.output_info)
        and not any(one.requires_grad for one in found.output_info)
        and not found.tokens
        and not found.is_rng_op_functionalized
        and not found.num_intermediate_bases
        and not found.num_outputs_aliased
        and all(isinstance(one, PlainTensorMeta) for one in found.subclass_inp_meta)
        and all(isinstance(one, PlainTensorMeta) for one in found.subclass_fw_graph_out_meta)
    )


def unboxed(call: BoxedCall) -> Callable[..., Any]:
    """A function of tensors that calls one of a list."""

    def run(*tensors: Any) -> Any:
        return call(list(tensors))

    return run
