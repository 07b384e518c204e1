"""Relax modules scheduled by TVM's own rules, for tests of what comes after scheduling."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import relax
from tvm.relax.backend import gpu_generic

from tvm_tile import compat
from tvm_tile.build import Builder, Program, rename_by_content
from tvm_tile.device.detect import resolve_device
from tvm_tile.graph.signature import Signature
from tvm_tile.report.shown import Report
from tvm_tile.runtime import CompiledModel

Shape = tuple[int, ...]
Body = Callable[..., "relax.Expr | tuple[relax.Expr, ...]"]


def relax_module(body: Body, shapes: tuple[Shape, ...], dtype: str = "float32") -> Any:
    """``main(x0, x1, ...)`` that returns what ``body`` makes of its inputs."""
    builder = relax.BlockBuilder()
    inputs = [
        relax.Var(f"x{position}", relax.TensorType(shape, dtype))
        for position, shape in enumerate(shapes)
    ]
    with builder.function("main", inputs):
        result = body(*inputs)
        output = relax.Tuple(result) if isinstance(result, tuple) else result
        builder.emit_func_output(builder.emit(output))
    return builder.get()


def schedule(mod: Any, device_name: str = "emulated") -> Any:
    """A module after TVM's default GPU pipeline, ready for a ``Builder``."""
    target = compat.make_target(resolve_device(device_name))
    with target:
        return rename_by_content(gpu_generic.get_default_pipeline(target)(mod))


def build(mod: Any, device_name: str = "emulated") -> Program:
    return Builder(resolve_device(device_name)).build(schedule(mod, device_name))


def compile_model(
    body: Body, shapes: tuple[Shape, ...], *, dtype: str = "float32", device_name: str = "emulated"
) -> CompiledModel:
    mod = relax_module(body, shapes, dtype)
    returned = mod["main"].ret_ty
    fields = list(returned.fields) if isinstance(returned, relax.TupleType) else [returned]
    outputs = tuple(
        Signature(f"y{position}", tuple(int(extent) for extent in field.shape), str(field.dtype))
        for position, field in enumerate(fields)
    )
    inputs = tuple(Signature(f"x{position}", shape, dtype) for position, shape in enumerate(shapes))
    return CompiledModel(
        build(mod, device_name), device_name, inputs, outputs, Report(device_name, (), ())
    )
