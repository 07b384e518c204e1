"""FuseTiles: what it joins, and what it says about it."""

from __future__ import annotations

from chain_bodies import attention
from tvm import IRModule, relax, tirx
from tvm.relax import op

import tvm_tile
from tvm_tile.compiling import compile
from tvm_tile.stages.fusing import fuse
from tvm_tile.tile.weld.connect import Decision

H200 = tvm_tile.find_device("nvidia/h200")
BATCH, HEADS, KEYS, DEPTH = 2, 4, 256, 64
SCORES = BATCH * HEADS * KEYS * KEYS * 4  # bytes, in float32
HEAD = BATCH * HEADS * KEYS * DEPTH * 2


def attentions(count: int) -> IRModule:
    """So many of them, side by side, each over heads that lie side by side."""
    builder = relax.BlockBuilder()
    kind = relax.TensorType((BATCH, KEYS, HEADS * DEPTH), "float16")
    inputs = [relax.Var(f"{name}{number}", kind) for number in range(count) for name in "qkv"]
    with builder.function("main", inputs):
        with builder.dataflow():
            outputs = [_attention(builder, inputs[3 * n : 3 * n + 3]) for n in range(count)]
            result = builder.emit_output(relax.Tuple(outputs))
        builder.emit_func_output(result)
    return builder.get()


def _attention(builder: relax.BlockBuilder, inputs: list[relax.Var]) -> relax.Expr:
    output = builder.normalize(attention(0.125)(*(_heads(builder, entry) for entry in inputs)))
    turned = op.permute_dims(output, [0, 2, 1, 3])
    return builder.emit(op.reshape(turned, (BATCH, KEYS, HEADS * DEPTH)))


def _heads(builder: relax.BlockBuilder, value: relax.Expr) -> relax.Expr:
    split = op.reshape(value, (BATCH, KEYS, HEADS, DEPTH))
    return builder.emit(op.permute_dims(split, [0, 2, 1, 3]))


def decisions(mod: IRModule) -> tuple[tuple[Decision, ...], int]:
    """What was said, and how many functions are left."""
    fused = fuse(mod, H200)
    functions = [f for f in fused.mod.functions.values() if isinstance(f, tirx.PrimFunc)]
    return fused.decisions, len(functions)


def test_attention_is_one_kernel_and_its_scores_stay_in_registers() -> None:
    found, functions = decisions(attentions(1))
    (joined,) = [decision for decision in found if not decision.reason]
    assert functions == 1
    assert joined.rule == "chain"
    assert joined.together < joined.apart
    values = [edge.size for edge in joined.edges if joined.level(edge) == "register"]
    views = [edge.size for edge in joined.edges if joined.level(edge) == "in place"]
    assert sorted(values) == sorted([HEAD, SCORES // 2, SCORES])
    assert views == [HEAD] * 3
    assert joined.saved_bytes == 2 * (SCORES + SCORES // 2 + 4 * HEAD)
    # The chain alone saves less than with the views around it.
    assert all(joined.together < option.seconds < joined.apart for option in joined.options)
    assert min(len(option.functions) for option in joined.options) == 3


def test_equal_groups_are_equal_decisions() -> None:
    once, twice = decisions(attentions(1))[0], decisions(attentions(2))[0]
    assert set(twice) == set(once)
    assert len(twice) == 2 * len(once)


def test_products_that_cannot_be_one_kernel_say_why() -> None:
    """Two layers of a multi-layer perceptron: the first is too wide to stay on chip."""
    builder = relax.BlockBuilder()
    shapes = {"x": (512, 1024), "up": (1024, 4096), "down": (4096, 1024)}
    x, up, down = (relax.Var(n, relax.TensorType(s, "float16")) for n, s in shapes.items())
    with builder.function("main", [x, up, down]):
        with builder.dataflow():
            wide = op.nn.relu(op.matmul(x, up, out_dtype="float32"))
            sums = op.matmul(op.astype(wide, "float16"), down, out_dtype="float32")
            output = builder.emit_output(op.astype(sums, "float16"))
        builder.emit_func_output(output)
    found, functions = decisions(builder.get())
    assert functions == 2
    (apart,) = found
    assert apart.reason == "no rule writes them as one kernel"
    assert apart.apart > 0
    assert apart.saved_bytes == 2 * 512 * 4096 * 2


def test_a_compiled_model_explains_its_groups() -> None:
    model = compile(attentions(1), H200)
    (joined,) = model.report.decisions
    assert joined.rule == "chain"
    assert f"{joined.saved_bytes / 1e6:.2f} MB less traffic" in model.explain("all")
