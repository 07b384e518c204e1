"""Kernels whose blocks are given shared memory so that they lie evenly over the GPU.

before: ``call_ffi_kernel("f", x, 64, 256)``, launched with blocks and threads
after:  ``call_ffi_kernel("f", x, 64, 256, 115840)``, and with bytes of shared memory

How many bytes is decided by :func:`tvm_tile.launches.spread.spread_bytes`. Kernels whose blocks are
not counted before they run keep what they have.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

from tvm_tile.build.program import COOPERATIVE_TAG, SHARED_TAG
from tvm_tile.device import Device
from tvm_tile.graph.extract import nodes_in
from tvm_tile.graph.tile_graph import stored_bytes
from tvm_tile.launches.spread import Blocks, spread_bytes

_TAGS, _CALL = "tirx.kernel_launch_params", "tirx.call_ffi_kernel"


@tvm.transform.module_pass(opt_level=0, name="SpreadBlocks")
@dataclass(frozen=True, slots=True)
class SpreadBlocks:
    """Give the blocks of all kernels shared memory, once host code and kernels are apart.

    Attributes:
        device: the device that it is compiled for.
    """

    device: Device

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Called by TVM's pass infrastructure."""
        kernels = {
            str(func.attrs["global_symbol"]): func
            for func in mod.functions.values()
            if _TAGS in (func.attrs or {})
        }
        given: dict[str, int] = {}

        def visit(call: tvm.ir.Call) -> tvm.ir.Call:
            if getattr(call.op, "name", "") != _CALL:
                return call
            name, launched = str(call.args[0].value), _launched(call)
            blocks = _blocks(kernels[name], launched)
            spread = 0 if blocks is None else spread_bytes(blocks, self.device)
            if blocks is None or spread == blocks.given:
                return call
            given[name] = spread
            return _with_memory(call, launched, spread)

        result = mod.clone()
        for var, func in mod.functions_items():
            if _TAGS in (func.attrs or {}):
                continue  # the host launches: kernels have many calls, and none of these
            body = tvm_ffi.structural_map(func.body, [(tvm.ir.Call, visit)], order="post")
            if not body.same_as(func.body):
                result[var] = func.with_body(body)
        for var, func in mod.functions_items():
            tags = list(map(str, (func.attrs or {}).get(_TAGS, ())))
            if tags and SHARED_TAG not in tags and str(func.attrs["global_symbol"]) in given:
                result[var] = func.with_attr(_TAGS, [*tags, SHARED_TAG])
        return result


def _launched(call: tvm.ir.Call) -> dict[str, Any]:
    """Tag -> the value that a kernel is launched with; those without a value are left out."""
    tags = [str(tag) for tag in call.attrs.launch_params]
    valued = [tag for tag in tags if not tag.startswith("tirx.") or tag == SHARED_TAG]
    return dict(zip(valued, call.args[len(call.args) - len(valued) :], strict=True))


def _blocks(kernel: tirx.PrimFunc, launched: dict[str, Any]) -> Blocks | None:
    """The blocks of a launch; ``None`` where they are not counted yet, or meet each other."""
    values = {tag: int(v) for tag, v in launched.items() if isinstance(v, tirx.IntImm)}
    if len(values) < len(launched) or COOPERATIVE_TAG in map(str, kernel.attrs[_TAGS]):
        return None
    declared = [own.buffer for own in nodes_in(kernel.body, tirx.AllocBuffer)]
    own = [buffer.ty for buffer in declared if buffer.scope() == "shared"]
    size = sum(map(stored_bytes, own))
    count, threads = (
        math.prod(v for tag, v in values.items() if tag.startswith(axis))
        for axis in ("blockIdx", "threadIdx")
    )
    return Blocks(count, threads, size, values.get(SHARED_TAG, 0))


def _with_memory(call: tvm.ir.Call, launched: dict[str, Any], size: int) -> tvm.ir.Call:
    """The launch with other bytes of shared memory for each block, which come last."""
    args, tags = list(call.args), [str(tag) for tag in call.attrs.launch_params]
    if SHARED_TAG in launched:
        args.pop()
    else:
        tags.append(SHARED_TAG)
    attrs = tvm.ir.make_node("tirx.CallFFIKernelAttr", launch_params=tags)
    given = [*args, tirx.IntImm("int64", size)]
    return tvm.ir.Call(call.op, given, attrs, ret_ty=call.ty)
