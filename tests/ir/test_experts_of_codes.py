"""Experts of codes as models have them, joined into one kernel, whose text is run on the CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from coded_products import H200, Case
from emulated import arguments, emulated_error
from tvm import relax, tirx
from tvm.relax import op
from warp_emulator import COMPILER

from tvm_tile.loops.decoding import decoding_loops
from tvm_tile.schedule import schedule
from tvm_tile.stages.fusing import fuse
from tvm_tile.tile.rules import CODED

pytestmark = [
    pytest.mark.bank(4),
    pytest.mark.skipif(COMPILER is None, reason="no C++ compiler"),
]

EXPERTS, COLUMNS, DEPTH = 6, 64, 256


def model(tokens: int, chosen: int, *, gated: bool) -> Any:
    """A layer of each token's experts with a bias of theirs, of which perhaps SwiGLU is made."""
    form, rows = Case(1, 1, 1, matrices=EXPERTS, dtype="bfloat16").format, tokens * chosen
    loops = decoding_loops(form, (EXPERTS, COLUMNS, DEPTH))
    types = [([int(e) for e in p.ty.shape], str(p.ty.dtype)) for p in loops.params]
    types += [([tokens, DEPTH], form.dtype), ([EXPERTS, COLUMNS], form.dtype)]
    types += [([tokens, chosen], "int64")]
    *kept, decoded, x, bias, ids = (
        relax.Var(f"v{number}", relax.TensorType(*ty)) for number, ty in enumerate(types)
    )
    builder = relax.BlockBuilder()
    with builder.function("main", [*kept, x, bias, ids]):
        with builder.dataflow():
            decode = builder.add_func(loops, "decode")
            w = builder.emit(relax.call_tir(decode, kept, decoded.ty))
            flat = builder.emit(op.reshape(ids, (rows,)))
            spread = op.broadcast_to(op.reshape(x, (tokens, 1, DEPTH)), (tokens, chosen, DEPTH))
            own = op.permute_dims(op.take(w, flat, axis=0, mode="clip"), [0, 2, 1])
            y = op.matmul(op.reshape(spread, (rows, 1, DEPTH)), own)
            y = op.add(op.reshape(y, (rows, COLUMNS)), op.take(bias, flat, axis=0, mode="clip"))
            y = builder.emit(y)
            if gated:
                half = COLUMNS // 2
                gate, up = (op.strided_slice(y, [1], [at], [at + half]) for at in (0, half))
                y = op.multiply(op.nn.silu(gate), up)
            y = builder.emit_output(y)
        builder.emit_func_output(y)
    return builder.get()


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize(("tokens", "chosen"), [(1, 4), (5, 3), (11, 2)])
def test_all_of_it_is_one_kernel(tokens: int, chosen: int, gated: bool, tmp_path: Path) -> None:
    mod = fuse(model(tokens, chosen, gated=gated), H200).mod
    (func,) = (own for own in mod.functions.values() if isinstance(own, tirx.PrimFunc))
    ids = next(param for param in func.params if str(param.ty.dtype) == "int64")
    shape = [int(extent) for extent in ids.ty.shape]
    own = np.random.default_rng(0).integers(0, EXPERTS, shape)
    of = arguments(func, {str(ids.name): own})
    found = [choice for choice in schedule(func, H200, topk=40) if choice.rule == CODED]
    slots = {choice.tile.split(", ")[0]: choice for choice in reversed(found)}
    assert len(slots) > 1
    for choice in slots.values():
        assert emulated_error(choice, of, H200, tmp_path, late=True) < 1e-2, choice.tile
