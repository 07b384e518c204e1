"""Values of bfloat16 that no memory holds, as the float32 numbers that they are computed as."""

from __future__ import annotations

from typing import Any

from tvm_tile.graph.extract import is_choice

_NARROW, _WIDE = "bfloat16", "float32"
_LANES = 4  # of the longest vector of float32 that CUDA has constants of


def round_late(function: Any) -> Any:
    """A PrimFunc that rounds to bfloat16 what it stores, and not on the way there.

    before: ``y[i] = bfloat16(sum) + bias[i] + x[i]``, which rounds three times
    after:  ``y[i] = bfloat16(sum + float32(bias[i]) + float32(x[i]))``

    No less exact than the model, which may well be written as several operators. TVM does this
    itself for devices that lack bfloat16, and PyTorch's compiler for all. Not so for float16, as
    float32 holds numbers that are infinite there.

    Left alone are comparisons, functions and integers of rounded numbers, where the last bit may
    decide; the steps of sums and extrema, which TVM knows by their form; and what is computed in
    vectors so long that there are none of float32.
    """
    import tvm_ffi
    from tvm.tirx import Bind, BufferStore

    longer = _variables_of_vectors(function)

    def store(node: Any) -> Any:
        if any(_depends(index, longer) for index in node.indices):
            return node
        value = _late(node.value)
        return node if value.same_as(node.value) else _stored(node, value)

    def bind(node: Any) -> Any:
        return node if _depends(node.value, longer) else Bind(node.var, _late(node.value))

    return tvm_ffi.structural_map(function, [(BufferStore, store), (Bind, bind)], order="post")


def _variables_of_vectors(function: Any) -> list[Any]:
    """The variables that count along vectors of more than four elements, of loops and of blocks."""
    import tvm_ffi
    from tvm.s_tir import SBlockRealize
    from tvm.tirx import For, ForKind, IntImm

    found: list[Any] = []

    def loop(node: Any) -> None:
        is_short = isinstance(node.extent, IntImm) and int(node.extent) <= _LANES
        if node.kind == ForKind.VECTORIZED and not is_short:
            found.append(node.loop_var)

    def block(node: Any) -> None:
        pairs = zip(node.block.iter_vars, node.iter_values, strict=True)
        found.extend(own.var for own, value in pairs if _depends(value, found))

    tvm_ffi.structural_walk(function, [(For, loop), (SBlockRealize, block)], order="pre")
    return found


def _depends(value: Any, variables: list[Any]) -> bool:
    import tvm_ffi
    from tvm.tirx import Var

    used: list[Any] = []
    if variables:
        tvm_ffi.structural_walk(value, (Var, used.append), order="pre")
    return any(var.same_as(other) for var in used for other in variables)


def _late(value: Any) -> Any:
    """An expression that rounds at its end."""
    import tvm_ffi
    from tvm import ir
    from tvm.tirx import Add, Cast, Div, Max, Min, Mul, Select, Sub

    changes: list[Any] = [(kind, _arithmetic) for kind in (Add, Sub, Mul, Div)]
    changes += [(kind, _extremum) for kind in (Max, Min)]
    changes += [(Select, _choice), (ir.Call, _branches), (Cast, _cast)]
    return tvm_ffi.structural_map(value, changes, order="post")


def _arithmetic(node: Any) -> Any:
    if not _is_narrow(node):
        return node
    return _rounded(type(node)(_widened(node.a), _widened(node.b)))


def _extremum(node: Any) -> Any:
    if not _are_roundings(node.a, node.b):
        return node
    return _rounded(type(node)(_widened(node.a), _widened(node.b)))


def _choice(node: Any) -> Any:
    from tvm.tirx import Select

    sides = node.true_value, node.false_value
    if not _are_roundings(*sides):
        return node
    return _rounded(Select(node.condition, *map(_widened, sides)))


def _branches(call: Any) -> Any:
    from tvm.tirx import if_then_else

    if not is_choice(call) or not _are_roundings(*call.args[1:]):
        return call
    return _rounded(if_then_else(call.args[0], *map(_widened, call.args[1:])))


def _cast(cast: Any) -> Any:
    is_wide = str(cast.ty.dtype) == _WIDE
    return cast.value.value if is_wide and _is_rounding(cast.value) else cast


def _stored(store: Any, value: Any) -> Any:
    """A store of another value; a step of a sum in the form in which TVM knows it for one."""
    from tvm.tirx import Add, BufferStore, Cast

    before = store.value
    if isinstance(before, Add) and _is_narrow(before) and _is_load_of(before.a, store):
        term = value.value.b
        narrow = term.value if isinstance(term, Cast) and _is_narrow(term.value) else _rounded(term)
        value = Add(before.a, narrow)
    return BufferStore(store.buffer, value, store.indices)


def _is_load_of(value: Any, store: Any) -> bool:
    import tvm_ffi
    from tvm import ir

    if not isinstance(value, ir.TensorLoad) or not value.source.same_as(store.buffer):
        return False
    return bool(tvm_ffi.structural_equal(value.indices, store.indices))


def _widened(value: Any) -> Any:
    from tvm.tirx import Cast, FloatImm

    if _is_rounding(value):
        return value.value
    return FloatImm(_WIDE, value.value) if isinstance(value, FloatImm) else Cast(_WIDE, value)


def _rounded(value: Any) -> Any:
    from tvm.tirx import Cast

    return Cast(_NARROW, value)


def _are_roundings(*values: Any) -> bool:
    """Whether values are rounded numbers, or constants beside such: none is loaded."""
    from tvm.tirx import FloatImm

    found = [_is_rounding(value) for value in values]
    known = [isinstance(value, FloatImm) and _is_narrow(value) for value in values]
    return any(found) and all(map(max, found, known))


def _is_rounding(value: Any) -> bool:
    from tvm.tirx import Cast

    return isinstance(value, Cast) and _is_narrow(value) and str(value.value.ty.dtype) == _WIDE


def _is_narrow(value: Any) -> bool:
    return str(value.ty.dtype) == _NARROW
