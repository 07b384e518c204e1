"""Names that say what a function computes, so that equal kernels share a name."""

from __future__ import annotations

import hashlib
import math
import re
from typing import Any

_LONGEST = 64  # characters of a name; linkers and file systems take a few more than 200
_DIGITS = 8
# Words of the languages that kernels are written in, and functions that kernels may call.
_WORDS = """
asm auto bool break case catch char class const constexpr continue decltype default delete do
double else enum explicit export extern false float for friend goto if inline int long mutable
namespace new noexcept nullptr operator private protected public register restrict return short
signed sizeof static struct switch template this throw true try typedef typeid typename union
unsigned using virtual void volatile wchar_t while and or not xor bitand bitor compl
kernel global local constant read_only write_only read_write half uchar ushort uint ulong size_t
ptrdiff_t intptr_t uintptr_t event_t sampler_t threadIdx blockIdx blockDim gridDim warpSize dim3
std cuda tvm main NULL INFINITY NAN M_PI CHAR_BIT isfinite isinf isnan fabs fmin fmax fma mad
rint round rsqrt native_exp select clamp mix step sign dot cross length normalize distance
barrier vload vstore printf max min abs atomic_add atomicAdd
"""
_RESERVED = frozenset(_WORDS.split()).union(dir(math))
_TYPES = re.compile(r"(u?(char|short|int|long)|half|float|double|__.*)(\d+(_t)?)?")


def rename_by_content(mod: Any) -> Any:
    """Rename every PrimFunc to ``name_<8 hex digits of a hash of its text>``.

    before: ``matmul``, ``matmul1``   after: ``matmul_0f3a99c1``, ``matmul1_77b0d2e4``

    The emulated device finds kernels in a table of the whole process, so two models may use
    one name only for one and the same kernel, whose source has the names of its buffers in it.
    Names that already end so are kept. Parameters keep their names where these are none of C's,
    CUDA's or OpenCL's words. All names are identifiers of C of at most 64 characters: of longer
    ones the first words are kept, and how many follow (:func:`readable_name`).

    Args:
        mod: a Relax module whose PrimFuncs are called by ``call_tir`` or by the VM.

    Returns:
        A new IRModule; PrimFuncs and their calls agree on the new names, and no two are equal.
    """
    from tvm.relax.transform import NormalizeGlobalVar

    renamed = mod.clone()
    taken: set[str] = {str(v.name_hint) for v, f in mod.functions.items() if not _is_prim(f)}
    for var, function in mod.functions.items():
        if _is_prim(function):
            anonymous = _with_plain_parameters(function.without_attr("global_symbol"))
            digest = content_sum(anonymous)
            name = _free_name(str(var.name_hint), digest, taken)
            taken.add(name)
            renamed[var] = anonymous.with_attr("global_symbol", name)
    # TVM's pass makes every GlobalVar agree with the symbol of its function.
    return NormalizeGlobalVar()(renamed)


def content_sum(function: Any) -> str:
    """Eight hexadecimal digits of a sum of all that a function is, the names of its variables too;
    that of a function of a module has its own name in it."""
    return hashlib.sha256(text_of(function).encode()).hexdigest()[:_DIGITS]


def text_of(function: Any) -> str:
    """Text of a function as a key, with the names of its variables.

    Unlike JSON it does not tell which nodes are one object, which varies with what the process did
    before. TVM has no script of a function with others among its attributes: of these it is JSON.
    """
    import tvm
    import tvm_ffi
    from tvm import tirx

    others: list[Any] = []
    for value in dict(function.attrs or {}).values():
        tvm_ffi.structural_walk(value, (tirx.PrimFunc, others.append))
    return str(tvm.ir.save_json(function) if others else function.script(show_meta=True))


def readable_name(name: str, longest: int) -> str:
    """An identifier of C of at most ``longest`` characters that tells what ``name`` begins with.

    before: ``fused_conv2d_add_relu_..._add_tanh``   after: ``fused_conv2d_add_relu_and_41_more``
    """
    name = re.sub(r"\W", "_", name, flags=re.ASCII)
    name = name if re.match(r"[A-Za-z]", name) else f"n{name}"
    if len(name) <= longest:
        return name
    words = name.split("_")
    kept = len(words)
    while kept > 1 and len(_shortened(words, kept)) > longest:
        kept -= 1
    return _shortened(words, kept)[:longest]


def _shortened(words: list[str], kept: int) -> str:
    """The first words of a name, and the number of those left out."""
    return "_".join((*words[:kept], "and", str(len(words) - kept), "more"))


def _free_name(name: str, digest: str, taken: set[str]) -> str:
    """A name that ends with ``digest`` and is not ``taken``."""
    name = name.removesuffix(f"_{digest}")
    number = 1
    while True:
        end = f"_{digest}" if number == 1 else f"_{number}_{digest}"
        free = readable_name(name, _LONGEST - len(end)) + end
        if free not in taken:
            return free
        number += 1


def _with_plain_parameters(function: Any) -> Any:
    """``function``, whose parameters have names that compilers take, and no other has."""
    import tvm_ffi
    from tvm.tirx import PrimFunc, Var

    used: list[Any] = []
    tvm_ffi.structural_walk(function.body, (Var, used.append), order="pre")
    own = set(function.params)
    taken = {str(var.name) for var in used if var not in own}
    renamed: dict[Any, Any] = {}
    for param in function.params:
        plain = _plain(str(param.name))
        name, number = plain, 2
        while name in taken:
            name, number = f"{plain}_{number}", number + 1
        taken.add(name)
        if name != str(param.name):
            renamed[param] = Var(name, param.ty)
    if not renamed:
        return function
    visit = (Var, lambda var: renamed.get(var, var))
    for param in function.params:
        # Extents of tensors may be parameters, too.
        ty = tvm_ffi.structural_map(param.ty, [visit], order="post")
        if not ty.same_as(param.ty):
            renamed[param] = Var(str(renamed.get(param, param).name), ty)
    body = tvm_ffi.structural_map(function.body, [visit], order="post")
    params = [renamed.get(param, param) for param in function.params]
    return PrimFunc(params, body, function.ret_type, function.attrs)


def _plain(name: str) -> str:
    """A name as an identifier of C that is no word of the language."""
    name = readable_name(name, 2 * _LONGEST)
    return f"{name}_" if name in _RESERVED or _TYPES.fullmatch(name) else name


def _is_prim(function: Any) -> bool:
    """Whether a function is in TensorIR."""
    from tvm.tirx import PrimFunc

    return isinstance(function, PrimFunc)
