"""Kernels of ours in builds of TVM's own, which ask for them by the TIR pipeline ``"tvm_tile"``.

TVM writes one CUDA text of all kernels of a module, and compiles it with options of its own
(``--use_fast_math``). Ours are each a text, compiled with what its numbers allow. So they come as
declarations, which have text and machine code as attributes, and TVM's code generator for CUDA is
wrapped: it asks its own hooks for both.

Where no driver is, TVM keeps a text instead of machine code, and compiles it when it is loaded. The
first line of the text tells how; :func:`compile_marked` does that.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import Any

from tvm_tile import compat
from tvm_tile.build.built import Built, Rounding
from tvm_tile.build.cuda import compile_cuda
from tvm_tile.build.program import Kernel
from tvm_tile.registered import MARK, wrap_function

_TEXT, _MACHINE_CODE = "tvm_tile.text", "tvm_tile.machine_code"


def linked(parts: Iterable[Built], target: Any) -> Any:
    """A TVM IRModule of built PrimFuncs: code for the host, and kernels as declarations.

    Args:
        parts: parts from :meth:`tvm_tile.build.Builder.build_parts`.
        target: the TVM target of the kernels, of kind cuda.
    """
    import tvm

    whole = tvm.IRModule()
    for part in parts:
        whole.update(part.host)
        for kernel, rounding in zip(part.kernels, part.roundings, strict=True):
            whole[kernel.name] = _declaration(kernel, rounding, target)
    return whole


def _declaration(kernel: Kernel, rounding: Rounding, target: Any) -> Any:
    """A kernel as TVM's code generator is told of it, without a body."""
    from tvm.ir import CallingConv
    from tvm.tirx import Evaluate, PrimFunc, Var

    params = [Var(f"p{n}", _type_of(arg)) for n, arg in enumerate(kernel.arg_types)]
    line = " ".join(
        (
            str(target.attrs["arch"]),
            *(["contract"] if rounding.contract else []),
            *(["exact_quotients"] if rounding.exact_quotients else []),
        )
    )
    return PrimFunc(params, Evaluate(0)).with_attrs(
        {
            "global_symbol": kernel.name,
            "target": target,
            "calling_conv": int(CallingConv.DEVICE_KERNEL_LAUNCH),
            "tirx.kernel_launch_params": list(kernel.launch_params),
            _TEXT: f"{MARK}{line}\n{kernel.source}",
            _MACHINE_CODE: kernel.binary,
        }
    )


def _type_of(arg_type: str) -> Any:
    """TVM's type of a kernel's parameter, from its name, such as ``"handle"`` or ``"int32"``."""
    from tvm.ir import PointerType, PrimType
    from tvm.tirx import TensorMapType

    if arg_type == "tensormap":
        return PointerType(TensorMapType())
    return PointerType(PrimType("int8")) if arg_type == "handle" else PrimType(arg_type)


@functools.cache
def wrap_code_generator() -> None:
    """Have TVM take kernels that are declared only from their attributes, once a process."""
    wrap_function("target.build.cuda", lambda former: functools.partial(_generate, former))


def _generate(former: Any, mod: Any, target: Any) -> Any:
    """A runtime module of a module's kernels, as ``target.build.cuda`` makes it."""
    import tvm

    others = {v: f for v, f in mod.functions_items() if _TEXT not in (f.attrs or {})}
    given = {v: f for v, f in mod.functions_items() if v not in others}
    if not given:
        return former(mod, target)
    modules = [_runtime_module(former, var, func, target) for var, func in given.items()]
    if others:
        modules.append(former(tvm.IRModule(others, attrs=mod.attrs), target))
    return _imported(modules)


def _runtime_module(former: Any, var: Any, func: Any, target: Any) -> Any:
    """TVM's runtime module of a kernel, with its text and machine code put in."""
    import tvm

    text, machine_code = str(func.attrs[_TEXT]), bytes(func.attrs[_MACHINE_CODE])
    with (
        compat.replaced_function("tvm_callback_cuda_postproc", lambda *_: text),
        compat.replaced_function("tvm_callback_cuda_compile", lambda *_: machine_code),
    ):
        return former(tvm.IRModule({var: func}), target)


def _imported(modules: Sequence[Any]) -> Any:
    """Have the first module import the others, in which TVM then looks for functions, too."""
    first, *others = modules
    for module in others:
        first.import_module(module)
    return first


def compile_marked(text: str) -> bytes:
    """The machine code of a text that begins with :data:`~tvm_tile.registered.MARK`.

    Args:
        text: CUDA; its first line names the architecture, and what is asked of the compiler.

    Raises:
        CompilerNotFoundError: no compiler for the architecture is installed.
        BuildError: the compiler rejects the text.
    """
    line, _, source = text.partition("\n")
    arch, *words = line.removeprefix(MARK).split()
    contract, exact = ("contract" in words), ("exact_quotients" in words)
    return compile_cuda(source, arch, contract=contract, exact_quotients=exact)
