"""Kernels that start early: which are marked, and that their text waits before all else."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from emulated import text_builder
from golden_cases import GOLDENS, Golden
from scheduled import relax_module
from tvm import relax, tirx
from tvm.relax import op

import tvm_tile
from tvm_tile.build import Builder
from tvm_tile.build.early.dependent_launches import asked_ahead, mark, step_seconds
from tvm_tile.build.early.spread_blocks import SpreadBlocks
from tvm_tile.build.program import DEPENDENT_TAG, SHARED_TAG, Kernel, Program
from tvm_tile.build.tir_passes import block_passes
from tvm_tile.compat import make_target
from tvm_tile.device import Device, find_device
from tvm_tile.device.times import DependentLaunchTimes
from tvm_tile.graph.extract import nodes_in
from tvm_tile.passes.lower.mark_dependent_launches import MarkDependentLaunches
from tvm_tile.stages.coscheduling import PERSISTENT
from tvm_tile.stages.forced import Forced

pytestmark = pytest.mark.bank(6)

H200 = find_device("nvidia/h200")
MEASURED = replace(H200, dependent_launches=DependentLaunchTimes("a test", 5e-7, 1e-7, 0.0, 0.0))
NVIDIA = [golden for golden in GOLDENS if golden.name.endswith(("_h200", "_a100"))]
# One of each rule becomes machine code, which takes as long as all else.
COMPILED = {golden.rule: golden.name for golden in NVIDIA}
ASK = re.compile(r"tile_ask_for\w*\(.*\);")
_LAUNCH = "tirx.call_ffi_kernel"
WAIT = "tvm_builtin_ptx_griddepcontrol_wait"


def body_of(kernel: Kernel) -> str:
    """The text of a kernel behind its head."""
    definition = kernel.source.rpartition('extern "C" __global__')[2]
    return definition.partition("{\n")[2]


def restricted(kernel: Kernel) -> set[str]:
    """The parameters of a kernel that compilers may take to be the only way to their memory."""
    definition = kernel.source.rpartition('extern "C" __global__')[2]
    return set(re.findall(r"__restrict__ (\w+)_ptr", definition.partition("{\n")[0]))


@pytest.mark.parametrize("golden", NVIDIA, ids=lambda golden: golden.name)
def test_only_maps_and_constants_are_asked_for_before_the_wait(golden: Golden) -> None:
    func = golden.kernel().func
    # Any input will do: here all but the first are constants.
    constants = tuple(str(param.name) for param in func.params[1:-1])
    is_compiled = golden.name in COMPILED.values()
    builder = Builder(H200) if is_compiled else text_builder(H200)
    built = builder.build_functions({"f": mark(func, 0.0, constants)})["f"]
    assert isinstance(built, Program), built
    for kernel in built.kernels:
        assert bool(kernel.binary) == is_compiled, "machine code for sm_90a"
        if golden.rule == PERSISTENT:
            assert not kernel.depends
            assert "griddepcontrol" not in kernel.source
            continue
        assert kernel.depends
        assert kernel.launch_params[-1] != DEPENDENT_TAG or (
            "tirx.use_dyn_shared_memory" not in kernel.launch_params
        )
        text = body_of(kernel)
        ahead = asked_ahead(func)
        is_ahead = ahead is not None and ahead <= set(constants)
        assert text.count(f"{WAIT}();") == 1 + (ahead is not None and not is_ahead)
        if not is_ahead:
            assert str(func.params[0].name) not in restricted(kernel)  # an input that others write
        settled = ahead if ahead is not None and is_ahead else frozenset()
        before = ASK.sub("", text.partition(f"{WAIT}();")[0])
        touched = set(re.findall(r"\b(\w+)_(?:ptr|map)\b", before))
        assert touched & {str(param.name) for param in func.params} <= settled


@pytest.mark.parametrize("name", ["elementwise_gelu_h200", "mma_bias_relu_a100"])
def test_what_is_only_written_and_constants_are_restricted(name: str) -> None:
    (golden,) = (golden for golden in GOLDENS if golden.name == name)
    func = golden.kernel().func
    last = str(func.params[-2].name)
    for constants in ((), (last,)):
        built = text_builder(H200).build_functions({"f": mark(func, 0.0, constants)})["f"]
        assert isinstance(built, Program)
        (kernel,) = built.kernels
        found = restricted(kernel)
        assert found - set(constants), "the output, by whatever name"
        assert found.isdisjoint(str(param.name) for param in func.params[:-2])
        assert (last in found) == (last in constants)


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc")
@pytest.mark.parametrize("name", ["elementwise_gelu_h200", "contraction_mm_deep_h200"])
def test_compilers_read_nothing_by_the_path_for_constants(name: str, tmp_path: Path) -> None:
    """That path is not coherent, and reads by it may be moved above the wait."""
    (golden,) = (golden for golden in GOLDENS if golden.name == name)
    func = golden.kernel().func
    texts = []
    for own in (func, mark(func, 0.0, ())):
        built = text_builder(H200).build_functions({"f": own})["f"]
        assert isinstance(built, Program)
        texts.append(ptx_of(built.kernels[0].source, tmp_path))
    assert "ld.global.nc" in texts[0], "what is launched otherwise uses it"
    assert "ld.global.nc" not in texts[1]
    accesses = re.finditer(r"\b(?:ld|st|cp\.async|red|atom)\.[\w.]*global", texts[1])
    assert texts[1].index("griddepcontrol.wait") < next(accesses).start()


def ptx_of(source: str, folder: Path) -> str:
    text, ptx = folder / "kernel.cu", folder / "kernel.ptx"
    text.write_text(source)
    command = ["nvcc", "-ptx", "-arch=sm_90a", "-O3", "-o", str(ptx), str(text)]
    subprocess.run(command, check=True, capture_output=True)
    return ptx.read_text()


def test_what_is_not_marked_is_built_as_before() -> None:
    (golden,) = (golden for golden in GOLDENS if golden.name == "elementwise_gelu_h200")
    built = Builder(H200).build_functions({"f": golden.kernel().func})["f"]
    assert isinstance(built, Program)
    (kernel,) = built.kernels
    assert not kernel.depends
    assert "griddepcontrol" not in kernel.source
    assert "__restrict__" in kernel.source


def product(x: Any, width: int) -> Any:
    return op.nn.relu(op.matmul(x, relax.const(np.ones((width, width), np.float32))))


def chain(x: Any) -> Any:
    return op.nn.softmax(product(op.nn.softmax(product(op.nn.softmax(x), 64)), 64))


def with_marks(body: Callable[..., Any], device: Device, *, forced: bool) -> tvm.IRModule:
    from tvm_tile.stages.fusing import fuse

    fused = fuse(relax_module(body, ((4, 64),)), device, weld=False).mod
    return MarkDependentLaunches(device, forced)(fused)


def marks_of(mod: tvm.IRModule) -> dict[str, Any]:
    return {
        str(var.name_hint): (func.attrs or {}).get("tvm_tile.dependent_launch")
        for var, func in mod.functions_items()
        if isinstance(func, tirx.PrimFunc)
    }


def test_the_pass_names_what_is_constant_in_every_call() -> None:
    marks = marks_of(with_marks(chain, MEASURED, forced=False))
    assert len(marks) >= 2
    assert all(mark is not None for mark in marks.values())
    assert sum(len(mark["constants"]) for mark in marks.values()) == 1


def test_the_pass_marks_nothing_where_it_does_not_pay() -> None:
    a100 = find_device("nvidia/a100")
    assert not any(marks_of(with_marks(chain, a100, forced=False)).values())
    # One kernel, which follows none.
    single = marks_of(with_marks(lambda x: op.nn.softmax(x), MEASURED, forced=False))
    assert list(single.values()) == [None]


def test_weights_are_constants_and_other_inputs_are_not() -> None:
    mod = relax_module(
        lambda x, w: op.nn.softmax(op.matmul(op.nn.softmax(x), w)), ((4, 64), (64, 64))
    )
    from tvm_tile.stages.fusing import fuse

    for inputs, constants in ((1, 1), (2, 0)):
        given = mod.clone()
        var = given.get_global_var("main")
        given[var] = given[var].with_attr("num_input", inputs)
        fused = MarkDependentLaunches(MEASURED)(fuse(given, MEASURED, weld=False).mod)
        found = [own for own in marks_of(fused).values() if own]
        assert sum(len(own["constants"]) for own in found) == constants


def compiled(device: Device, dependent: bool | str) -> Any:
    options = Forced(dependent_launches=dependent, cache=False, coschedule=False, weld=False)  # type: ignore[arg-type]
    return tvm_tile.compile(relax_module(chain, ((4, 64),)), device, options=options)


def test_the_report_counts_what_depends() -> None:
    ordinary, early, forced = (compiled(H200, way) for way in (False, "auto", True))
    all_but_the_first = early.report.launches.captured - 1
    for model, dependent in (
        (ordinary, 0),
        (early, all_but_the_first),
        (forced, all_but_the_first),
    ):
        launches = model.report.launches
        assert launches.captured >= 3
        assert launches.dependent == dependent
        line = f"{dependent} of {launches.captured} kernels in graphs depend programmatically"
        assert line in model.explain("all")
    saved = early.report.launches.saved_seconds
    assert saved > 0
    expected = ordinary.report.predicted_seconds - saved
    assert early.report.predicted_seconds == pytest.approx(expected)


def test_functions_tell_what_a_step_gains() -> None:
    func = GOLDENS[0].kernel().func
    assert step_seconds(func) == 0.0
    assert step_seconds(mark(func, 2e-7, ())) == pytest.approx(2e-7)


@pytest.mark.parametrize("name", ["elementwise_gelu_h200", "contraction_mm_deep_h200"])
def test_few_blocks_are_given_memory_that_spreads_them(name: str) -> None:
    (golden,) = (golden for golden in GOLDENS if golden.name == name)
    device = replace(H200, multi_processor_count=10**6)  # a block for each at most
    mod = tvm.IRModule({"f": golden.kernel().func.with_attr("global_symbol", "f")})
    passes = [tirx.transform.BindTarget(make_target(H200)), *block_passes()]
    parted = tvm.transform.Sequential(passes)(mod)
    for given, is_spread in ((parted, False), (SpreadBlocks(device)(parted), True)):
        functions = list(given.functions.values())
        calls = [own for func in functions for own in nodes_in(func.body, tvm.ir.Call)]
        launches = [own for own in calls if getattr(own.op, "name", "") == _LAUNCH]
        kernels = [func.attrs for func in functions if "tirx.kernel_launch_params" in func.attrs]
        tags = {str(own["global_symbol"]): own["tirx.kernel_launch_params"] for own in kernels}
        assert len(launches) == len(tags)
        for launch in launches:
            assert list(launch.attrs.launch_params) == list(tags[str(launch.args[0].value)])
            assert list(launch.attrs.launch_params).count(SHARED_TAG) == is_spread
            # With what is declared, more than half of what a multiprocessor has.
            assert (int(launch.args[-1]) > 76 << 10) == is_spread
