"""The pipelines that TVM knows by name, once this package is installed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tvm
from tvm import tirx
from tvm.target import Target

from tvm_tile.build import Builder, rename_by_content
from tvm_tile.build.in_tvm import linked, wrap_code_generator
from tvm_tile.device import Device, devices
from tvm_tile.device.detect import device_for_target, resolve_device
from tvm_tile.errors import BuildError
from tvm_tile.frontend.prepare import prepare
from tvm_tile.options import Options, checked_options, with_options
from tvm_tile.passes import (
    ExactLoops,
    LiftWorkspaces,
    ScheduleTiles,
    matrix_dtypes,
    with_blocks_only,
)
from tvm_tile.passes.lower.exact_loops import is_for_tvm
from tvm_tile.passes.sequence import fusion_passes, lowering_passes, run_passes, welding
from tvm_tile.pipeline import lower
from tvm_tile.registered import sealed
from tvm_tile.stages.guarded import one_compilation
from tvm_tile.stages.opened_store import open_store

_BUILT = "tvm_tile.built"
_LANGUAGE = "cuda"
_HOSTS = ("llvm", "c")

TirPipeline = tuple[tvm.transform.Pass, Callable[[], Any], Callable[[], Any]]


def blocks_pipeline() -> tvm.transform.Pass:
    """The Relax pipeline ``"tvm_tile"``, whose kernels TVM's default TIR pipeline builds.

    before: operators   after: calls of the virtual machine, PrimFuncs bound to threads

    It schedules for the CUDA cores of the device that the current target describes (see
    :class:`tvm_tile.passes.ScheduleTiles`), and leaves tensor cores, gates, products side by side
    and co-scheduling to :func:`full_pipeline`.
    """

    @tvm.transform.module_pass(opt_level=0, name="tvm_tile")
    def run(mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        with one_compilation():
            device = with_blocks_only(device_for_target(Target.current()))
            scheduling = [ScheduleTiles(device), LiftWorkspaces(), ExactLoops()]
            fused = run_passes(fusion_passes(device, welding(device)), mod)
            # TVM would write names of the model's into kernels that are no identifiers.
            named = rename_by_content(fused)
            return run_passes([*scheduling, *lowering_passes(device)], named)

    return run


def full_pipeline(
    device: str | Device | None = None, options: Options | None = None
) -> tvm.transform.Pass:
    """The Relax pipeline ``"tvm_tile_full"``: every stage of :func:`tvm_tile.compile`.

    before: operators   after: calls of the virtual machine, PrimFuncs that are built

    Its PrimFuncs have no body any more but what the TIR pipeline ``"tvm_tile"`` takes out of them.
    Every other raises a BuildError that names this one.

    Args:
        device: a device as in :func:`tvm_tile.compile`; by default the one that the current target
            describes, which for an architecture that several records have is the GPU that is
            present, or else the first of them.
        options: options as in :func:`tvm_tile.compile`.

    Raises:
        Exception: the pass raises what :func:`tvm_tile.compile` does.
    """
    options = checked_options(options)

    @tvm.transform.module_pass(opt_level=0, name="tvm_tile_full")
    def run(mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        target = Target.current()
        with one_compilation():
            found = device_for_target(target) if device is None else resolve_device(device)
            record, store = with_options(_checked(found), options), open_store(options)
            host = None if target is None else target.host
            builder = Builder(record, workers=options.parallel_builds, store=store, host=host)
            prepared = prepare(mod, matrix_dtypes=matrix_dtypes(record))
            lowered = lower(prepared, record, options, builder, store)
            return _sealed(lowered.mod, builder)

    return run


def _sealed(mod: tvm.IRModule, builder: Builder) -> tvm.IRModule:
    """``mod`` with each PrimFunc built.

    before: ``f(x, y)`` with loops on threads
    after:  ``f(x, y): sealed()``, whose attribute has code for the host, and declared kernels
    """
    functions = {
        str(var.name_hint): func
        for var, func in mod.functions_items()
        if isinstance(func, tirx.PrimFunc)
    }
    plain = {name: func.without_attr("global_symbol") for name, func in functions.items()}
    result = mod.clone()
    for (name, func), part in zip(functions.items(), builder.build_parts(plain), strict=True):
        attrs = {"global_symbol": name, _BUILT: linked([part], builder.target)}
        shell = tirx.PrimFunc(func.params, tirx.Evaluate(sealed()), func.ret_type)
        result[mod.get_global_var(name)] = shell.with_attrs(attrs)
    return result


def tir_pipeline() -> TirPipeline:
    """The TIR pipeline ``"tvm_tile"``: each kernel as :func:`tvm_tile.compile` builds it.

    before: PrimFuncs of :func:`full_pipeline`, or scheduled ones of any pipeline
    after:  code for the host, and kernels whose text and machine code are made

    Returns:
        The pass, and two functions that return what TVM is to run on the code for the host and on
        the kernels afterwards: nothing.

    Raises:
        UnknownDeviceError: the pass: there is no record for the target.
        CompilerNotFoundError: the pass: no compiler for the target is installed.
        BuildError: the pass: a PrimFunc cannot be lowered, a kernel does not compile, or the
            target is no NVIDIA GPU.
    """
    wrap_code_generator()

    @tvm.transform.module_pass(opt_level=0, name="tvm_tile")
    def run(mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        with one_compilation():
            result = tvm.IRModule(attrs=mod.attrs)
            loops = {}
            for var, func in mod.functions_items():
                attrs = func.attrs or {}
                if _BUILT in attrs:
                    result.update(attrs[_BUILT])
                else:
                    loops[str(attrs.get("global_symbol", var.name_hint))] = func
            if loops:
                result.update(_built(loops))
            return result

    def nothing() -> tvm.transform.Pass:
        return tvm.transform.Sequential([])

    return run, nothing, nothing


def _built(functions: Mapping[str, Any]) -> tvm.IRModule:
    """Scheduled PrimFuncs, to which TVM has bound the targets that the user named."""
    for name, func in functions.items():
        _check_schedule(name, func)
    targets = [func.attrs["target"] for func in functions.values()]
    target = next((t for t in targets if t.kind.name not in _HOSTS), None)
    if target is None:
        # Without a kernel any GPU will do.
        device = next(device for device in devices() if device.kernel_language == _LANGUAGE)
    else:
        device = _checked(device_for_target(target))
    host = targets[0] if target is None else target.host
    builder = Builder(device, store=open_store(Options()), host=host)
    plain = {name: _unbound(func) for name, func in functions.items()}
    return linked(builder.build_parts(plain), builder.target)


def _unbound(func: Any) -> Any:
    """A PrimFunc without its symbol and its target; one for the host keeps that it is."""
    func = func.without_attr("global_symbol")
    is_for_host = func.attrs["target"].kind.name in _HOSTS
    return func if is_for_host else func.without_attr("target")


def _checked(device: Device) -> Device:
    """The device, which must be an NVIDIA GPU."""
    if device.kernel_language != _LANGUAGE:
        raise BuildError(
            'the TIR pipeline "tvm_tile" builds for NVIDIA GPUs',
            f"the device is {device.name}",
            f'tvm_tile.compile(mod, device="{device.name}")',
        )
    return device


def _check_schedule(name: str, func: Any) -> None:
    """Refuse a function that was made for TVM's own TIR pipeline."""
    if is_for_tvm(func):
        raise BuildError(
            'the TIR pipeline "tvm_tile" makes numbers come out as written by itself',
            f'{name} was made so for TVM\'s own, by ExactLoops or the Relax pipeline "tvm_tile"',
            'name relax_pipeline="tvm_tile_full", or leave ExactLoops out of your own pipeline',
        )
