"""Small functions of every rule whose schedules are kept as text, a few of each that differ."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import numpy as np
import torch
import tvm
from attention_cases import FLOATS
from chain_cases import CHAIN_CASES
from coded_products import Case as CodedCase
from coded_products import choices as coded_choices
from decode_cases import DECODE_CASES
from few_vectors_cases import FEW_VECTORS
from gates_cases import GATES_CASES, swiglu
from golden_text import readable
from halo_cases import HALO_CASES
from joined import only
from kernel_cases import CASES
from kernels import Case, prim_functions
from loop_runs import looping
from matrix_core_cases import MATRIX_CORE_CASES
from mma_cases import MMA_CASES
from persistent_runs import Joined, Kernels
from rowwise_cases import ROWWISE
from scheduled import relax_module
from torch._higher_order_ops.while_loop import while_loop
from tvm import relax, tirx
from tvm.relax import op
from two_of_four import compressed, pruned
from wgmma_cases import TF32_CASES, WGMMA_CASES, product_case
from window_cases import VECTORS
from written_by_hand import running_maximum

from bench.coded_tiles.measure import with_decoded
from tvm_tile.device import Device, find_device, with_tf32
from tvm_tile.graph.tensor_format import E2M1, E8M0, Entries, Integers, Shared, TensorFormat
from tvm_tile.passes import FirstChoices, PlanFunction, schedule_module
from tvm_tile.report.screen.flow_text import listing, outline, summary
from tvm_tile.schedule import FindChoices
from tvm_tile.schedule.attention import schedule_attention
from tvm_tile.schedule.decode import schedule_decode
from tvm_tile.schedule.halo import schedule_halo
from tvm_tile.schedule.s_tir.matvec import schedule_matvec
from tvm_tile.stages.coscheduling import PERSISTENT
from tvm_tile.tile.rules import rule_named

H200 = find_device("nvidia/h200")
SMALL = replace(H200, multi_processor_count=4)
RECORD = 32  # words, where kernels have few arguments


@dataclass(frozen=True, slots=True)
class Golden:
    """One kernel's text.

    Attributes:
        rule: that is to write it, as reports name it.
        name: of its file, without the ending.
        kernel: schedules it.
        tables: what is shown behind the kernel's text.
    """

    rule: str
    name: str
    kernel: Callable[[], Shown]
    tables: Callable[[], str] = str

    def text(self) -> str:
        """The kernel and what belongs to it."""
        shown = self.kernel()
        return f"# {shown.heading}\n{readable(shown.func)}{self.tables()}"


@dataclass(frozen=True, slots=True)
class Shown:
    """A scheduled function, and a line about it."""

    heading: str
    func: tirx.PrimFunc


def scheduled_kernel(
    case: Case, device: Device, rule: str, *, joined: FindChoices | None = None
) -> Shown:
    """The schedule of a case that becomes one function.

    Args:
        case: itself.
        device: that it is for.
        rule: that must be able to take it.
        joined: what functions are joined for, wherever it takes them; ``None``: where it pays.
    """
    functions = prim_functions(case, device, only(joined, device) if joined else None)
    return _scheduled(tvm.IRModule(functions), device, rule)


_NAMED_BY = {"coded_warpgroup": "coded"}  # rules that another one names


def _scheduled(mod: tvm.IRModule, device: Device, rule: str) -> Shown:
    """The schedule of a module's function by a rule, whether or not others are faster."""
    first, asked = FirstChoices(device), rule_named(_NAMED_BY.get(rule, rule))
    if asked is not None:
        for func in mod.functions.values():
            first(func, (asked,))  # whose answer stands
    plan = PlanFunction(device, first=first)
    scheduled, (report,) = schedule_module(mod, device, plan=plan)
    assert report.rule == rule, report
    heading = f"{report.rule}: {report.tile}; grid {report.grid}, block {report.block}"
    return Shown(heading, scheduled[report.name])


def persistent_kernel(body: Callable[..., Any], shape: tuple[int, ...]) -> Shown:
    """All kernels of a model as one persistent kernel, however its vEUs wait for each other."""
    kept: dict[str, Shown] = {}
    for _, model in _persistent_models(body, shape):
        (made,) = model.made
        func = model.mod[made.name]
        names = ", ".join(operator.name.rpartition("_")[0] for operator in made.operators)
        size = f"{made.plan.num_veus} vEUs of {made.plan.block_size} threads"
        heading = f"{PERSISTENT}: {names}; {size}"
        kept[heading + readable(func)] = Shown(heading, func)
    (shown,) = kept.values()  # the same for both
    return shown


def looping_kernel() -> Golden:
    """A loop that data end: its kernel, the program, the instructions of each vEU, and tables."""

    class Doubling(torch.nn.Module):
        """A row that grows until its sum is large."""

        def forward(self, row: torch.Tensor) -> Any:
            return while_loop(lambda row: row.sum() < 100, lambda row: (row * 2 + 1,), (row,))

    @cache
    def model() -> Joined:
        return looping(Doubling(), (torch.ones(1, 8),), replace(H200, multi_processor_count=2))

    def kernel() -> Shown:
        (made,) = model().made
        size = f"{made.plan.num_veus} vEUs of {made.plan.block_size} threads"
        return Shown(f"{PERSISTENT}: a loop; {size}", model().mod[made.name])

    def tables() -> str:
        (made,) = model().made
        assert made.program is not None
        told = made.operators, made.program
        parts = [f"# {summary(made.program)}", outline(*told)]
        for veu in range(made.plan.num_veus):
            parts += [f"# vEU {veu}", listing(*told, made.plan, veu)]
        tables = _tables(model(), model().mod[made.name])
        return "\n".join(("", *parts, "# as tables", tables))

    return Golden(PERSISTENT, f"{PERSISTENT}_loop_h200", kernel, tables)


def persistent_tables(body: Callable[..., Any], shape: tuple[int, ...]) -> str:
    """What the kernel reads: how its vEUs wait for each other is in these tables."""
    tables = ""
    for waits, model in _persistent_models(body, shape):
        (made,) = model.made
        tables += f"\n# with {waits}\n{_tables(model, model.mod[made.name])}"
    return tables


def _persistent_models(
    body: Callable[..., Any], shape: tuple[int, ...]
) -> Iterator[tuple[str, Joined]]:
    kernels = Kernels(relax_module(body, (shape,)), SMALL)
    for waits, uses_flags in (("barriers", False), ("flags", True)):
        yield waits, kernels.joined(uses_flags=uses_flags)


def _tables(model: Joined, func: tirx.PrimFunc) -> str:
    """What the call of a persistent kernel gives it as records and queues: a line a row."""
    (made,) = model.made
    bindings = [own for block in model.mod["main"].body.blocks for own in block.bindings]
    (inputs,) = (
        call.value.args[1].fields
        for call in bindings
        if isinstance(call.value, relax.Call)
        and call.value.args[0] == model.mod.get_global_var(made.name)
    )
    given = {str(param.name): own for param, own in zip(func.params, inputs, strict=False)}
    records = given["records"].value.numpy().reshape(-1, RECORD)
    queues = given["queues"].value.numpy().reshape(made.plan.num_veus, -1)
    lines = [f"records {np.trim_zeros(row, 'b').tolist()}" for row in records]
    lines += [f"queues {row.tolist()}" for row in queues]
    return "\n".join(lines) + "\n"


def _of(
    rule: str,
    device: Device,
    cases: Iterable[Case],
    names: str,
    *,
    joined: FindChoices | None = None,
) -> Iterator[Golden]:
    """Goldens of the cases with these names; the first where there are several of a name."""
    by_name = {entry.name: entry for entry in reversed(tuple(cases))}
    chip = device.name.partition("/")[2]
    for name in names.split():
        kernel = partial(scheduled_kernel, by_name[name], device, rule, joined=joined)
        yield Golden(rule, f"{rule}_{name.removeprefix(f'{rule}_')}_{chip}", kernel)


def _cuda_cores() -> Iterator[Golden]:
    for rule, names in (
        ("elementwise", "gelu bias_of_odd_planes large_vectorized concat_last"),
        ("transpose", "transpose_large concat_large"),
        ("row", "sum_even_rows sum_all"),
        ("column", "mean_of_channels max_first"),
        ("window", "conv_depthwise conv_groups max_pool sum_middle"),
        ("rows", "softmax softmax_too_long layer_norm channel_layer_norm"),
        ("matvec", "matvec_rows_bias_relu matvec_columns_bias_gelu matvec_values"),
        ("contraction", "mm_bias_relu mm_deep mm_int8 mm_batched conv_bias_relu conv_stem"),
    ):
        yield from _of(rule, H200, CASES, names)
    norms = "rms_gated layer_norm_bias_gelu rms_gated_turned"
    yield from _of("matvec", H200, FEW_VECTORS, norms, joined=schedule_matvec)
    yield from _of("window", H200, VECTORS, "conv1d_depthwise_vectors conv_nhwc_depthwise_bias")
    yield from _of("rows", H200, ROWWISE, "group_norm_in_shared_memory")
    yield from _of("scan", H200, ROWWISE, "cumsum_rows cumsum_columns cumsum_in_parts")
    yield from _of("sort", H200, ROWWISE, "sort_rows topk_in_merges")
    by_hand = tvm.IRModule({"running_maximum": running_maximum})
    kernel = partial(_scheduled, by_hand, H200, "statements")
    yield Golden("statements", "statements_running_maximum_h200", kernel)


def _matrix_units() -> Iterator[Golden]:
    # Biased and masked scores, and bands: below the diagonal, around it, of positions in memory.
    # The first of these has two warpgroups of consumers.
    bands = "causal_turns window_steep positions_turns"
    yield from _of("chain", H200, CHAIN_CASES, f"biased masked {bands}")
    # A cluster of blocks a group, with a mask; one block of several workers, in other widths.
    for name in ("masked bfloat16", "12/3x4x130x80 float16", "3/3x1x77x64 float32"):
        (case,) = (case for case in DECODE_CASES if case.name == name)
        plain = replace(case, name=name.replace("/", "_").replace(" ", "_"))
        yield from _of("decode", H200, (plain,), plain.name, joined=schedule_decode)
    # On CUDA cores: masked, ragged rows and keys, columns that are not neighbours' vectors.
    cores = "masked causal_longer 130x97x48x40 by_heads"
    yield from _of("attention", H200, FLOATS, cores, joined=schedule_attention)
    halves = "masked causal_longer 65x129x8x8"
    a100 = find_device("nvidia/a100")
    yield from _of("warp_attention", a100, CHAIN_CASES, halves, joined=schedule_attention)
    # By AMD's matrix cores: weights from a lane's own scores, and from another lane's, too.
    for chip, names in (("mi300x", "masked"), ("rx7900xtx", "causal_longer")):
        device = find_device(f"amd/{chip}")
        yield from _of("warp_attention", device, CHAIN_CASES, names, joined=schedule_attention)
    # Windows between two products, behind one, and none.
    halos = "bottleneck_strides half_gated feed_forward_gated"
    yield from _of("halo", H200, HALO_CASES, halos, joined=schedule_halo)
    lstm = "lstm_1x32x32x32_float32 lstm_2x64x40x40_float16"
    yield from _of("gates", H200, GATES_CASES, f"{lstm} gru_1x100x60 swiglu_7x36x11")
    # Copies of 16 bytes and of an element, a batch, windows, tiles of several fragments.
    plain = "bias_relu TN_37x41x53_float16 batch_TT_30x23x11 conv_3x3_ragged shallow_heads"
    yield from _of("mma", find_device("nvidia/a100"), MMA_CASES, plain)
    # Sums that blocks share, two warpgroups of consumers, several blocks of a multiprocessor, a
    # left operand by columns, windows; types.
    forms = "bias_relu NN_128x256x512_float16 NT_2048x2048x64_float16 shallow_odd batch_TN"
    types = "int8_requantized e4m3_by_e5m2"
    yield from _of("wgmma", H200, WGMMA_CASES, f"{forms} conv_3x3_stride {types}")
    yield from _of("wgmma", with_tf32(H200), TF32_CASES, "tf32_bias_relu")
    # A matrix that is kept two numbers of four, with sums that blocks share.
    case = product_case("NT", 24, 256, 512)
    made = compressed(case, H200, pruned(np.random.default_rng(0), 256, 512))
    kernel = partial(_scheduled, tvm.IRModule({"joined": made.func}), H200, "wgmma")
    yield Golden("wgmma", "wgmma_24x256x512_2_of_4_h200", kernel)
    for chip, names in (
        # The second sums in parts.
        ("mi300x", "bias_relu conv_3x3_stride int8_residual tf32_bias_relu"),
        ("rx7900xtx", "bias_relu conv_3x3_ragged"),
        ("rx9070xt", "bias_relu"),
    ):
        device = find_device(f"amd/{chip}")
        yield from _of("matrix_cores", device, MATRIX_CORE_CASES.values(), names)


def _persistent() -> Iterator[Golden]:
    def softmaxes(x: Any) -> Any:
        return op.nn.softmax(op.nn.softmax(x, 0), 1)

    def twice(x: Any) -> Any:
        """Two calls of one function, whose weights stay."""
        gated = swiglu(1, 32, 32).body
        return gated(gated(x))

    def products(x: Any) -> Any:
        weights = relax.const(np.ones((32, 32), np.float32))
        return op.nn.relu(op.matmul(op.nn.relu(op.matmul(x, weights)), weights))

    for name, body, shape in (
        ("softmaxes", softmaxes, (8, 16)),
        ("weights_that_stay", twice, (1, 32)),
        ("products", products, (32, 32)),
    ):
        kernel, tables = (partial(f, body, shape) for f in (persistent_kernel, persistent_tables))
        yield Golden(PERSISTENT, f"{PERSISTENT}_{name}_h200", kernel, tables)
    yield looping_kernel()


def _coded() -> Iterator[Golden]:
    """One vector with a matrix of 4 bits: integers, entries of a table, and SwiGLU behind it; many
    with one less zero points; vectors with one of several each; weights that are scaled."""

    def few(form: TensorFormat, gated: bool) -> Shown:
        func = with_decoded(form, (64, 512), (1, 512), gated=gated)
        return _scheduled(tvm.IRModule({"joined": func}), H200, "coded")

    def made(case: CodedCase, rule: str) -> Shown:
        func, _ = coded_choices(case)
        return _scheduled(tvm.IRModule({"joined": func}), H200, rule)

    scale = Shared((1, 128), "float16", "float16")
    for name, code, entry, gated in (
        ("uint4_float16", Integers(4, False), "int32", False),
        ("table_float16", Entries(4), "float16", False),
        ("gated_uint4_float16", Integers(4, False), "int32", True),
    ):
        form = TensorFormat(code, entry, "float16", None, (scale,))
        yield Golden("coded", f"coded_1x64x512_{name}_h200", partial(few, form, gated))
    own, many = CodedCase(3, 64, 512, matrices=5), CodedCase(40, 128, 512, group=64, zero="int8")
    listed = CodedCase(64, 4096, 2048, matrices=4)
    scaled = CodedCase(1, 512, 4096, E2M1, 32, scale=E8M0, dtype="bfloat16")
    yield Golden("coded", "coded_of_5_3x64x512_int4_float16_h200", partial(made, own, "coded"))
    yield Golden("coded", "coded_of_4_64x4096x2048_int4_h200", partial(made, listed, "coded"))
    yield Golden("coded", "coded_1x512x4096_mxfp4_bfloat16_h200", partial(made, scaled, "coded"))
    name, rule = "coded_warpgroup_40x128x512_int4_float16_h200", "coded_warpgroup"
    yield Golden(rule, name, partial(made, many, rule))


GOLDENS = (*_cuda_cores(), *_matrix_units(), *_persistent(), *_coded())
