"""A model's new state, written to where it belongs by kernels, so that CUDA graphs take them in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax, tirx

from tvm_tile.build.program import RETURNED_STATE
from tvm_tile.passes.ir.rewriter import is_call_tir, is_in_place, written_over
from tvm_tile.passes.state.copies import copying
from tvm_tile.passes.state.separate_in_place import SeparateInPlace

_MAIN = "main"
_RESHAPE = tvm.ir.Op.get("relax.reshape")

Made = Mapping[Any, Any]
"""Variables of a function -> what they are bound to."""


@tvm.transform.module_pass(opt_level=0, name="WriteState")
@dataclass(frozen=True, slots=True)
class WriteState:
    """Write new values of the state within ``main``, which returns them no longer.

    before, of the state ``a, b, cache``::

        main(x, a, b, cache):
            c = call_tir(f, (x,))
            d = call_tir_inplace(g, (cache, x), [0])
            return y, c, c, d

    after::

        main(x, a, b, cache):
            c = call_tir(f, (x,))
            d = call_tir_inplace(g, (cache, x), [0])
            w = call_tir_inplace(write, (c, a, b), [1, 2])
            return (y,)

    What becomes several tensors of the state is written by one call, as soon as all that reads them
    stands before it. A new value is still returned, for the caller to copy, if no kernel makes it,
    for it may lie in memory of an input or of another tensor of the state; and where something else
    that is returned lies in the memory that would be written. Which ones these are, the attribute
    :data:`~tvm_tile.build.program.RETURNED_STATE` of ``main`` says.

    Attributes:
        state: number of parameters and results of ``main``, the last ones, that are the model's
            state.
    """

    state: int

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Called by TVM's pass infrastructure."""
        if not self.state:
            return mod
        main = mod[_MAIN]
        made = {b.var: b.value for block in main.body.blocks for b in block.bindings}
        results = made.get(main.body.body, main.body.body)
        state = main.params[-self.state :]
        if not isinstance(results, relax.Tuple) or any(map(_is_branch, made.values())):
            return _with_main(mod.clone(), _returning(main, range(self.state)))
        ends = _Ends.of(list(results.fields), state, made)
        return _written(mod.clone(), ends, made)


@dataclass(frozen=True, slots=True)
class _Ends:
    """Ends of a function: its results, and how each is returned or written.

    Attributes:
        kept: results that it goes on to return, in order.
        returned: numbers of the tensors of the state that the last of these are new values of.
        written: new values, each with the parameters that it is the new value of.
    """

    kept: tuple[Any, ...]
    returned: tuple[int, ...]
    written: Mapping[Any, Sequence[Any]]

    @staticmethod
    def of(results: Sequence[Any], state: Sequence[Any], made: Made) -> _Ends:
        """Tell by the memory that results lie in."""
        first = len(results) - len(state)
        roots = [_root(result, made) for result in results]
        kept, returned = list(results[:first]), []
        written: dict[Any, list[Any]] = {}
        for number, (param, value) in enumerate(zip(state, results[first:], strict=True)):
            own = roots[first + number]
            others = roots[: first + number] + roots[first + number + 1 :]
            if own.same_as(param):
                continue
            if _is_new(own, made) and not any(map(param.same_as, others)) and _is_plain(param.ty):
                written.setdefault(value, []).append(param)
            else:
                kept.append(value)
                returned.append(number)
        return _Ends(tuple(kept), tuple(returned), written)


def _root(value: Any, made: Made) -> Any:
    """The variable in whose memory a value lies: a parameter, or what a call makes."""
    while isinstance(value, relax.Var) and value in made:
        origin = made[value]
        if isinstance(origin, relax.Var):
            value = origin
        elif isinstance(origin, relax.Call) and origin.op == _RESHAPE:
            value = origin.args[0]
        else:
            is_item = isinstance(origin, relax.TupleGetItem)
            call, output = (made.get(origin.tuple_value), origin.index) if is_item else (origin, 0)
            home = written_over(call)[output] if is_in_place(call) else None
            if home is None:
                return value
            value = home
    return value


def _is_new(root: Any, made: Made) -> bool:
    """Whether a kernel makes it, in memory of its own."""
    origin = made.get(root)
    if isinstance(origin, relax.TupleGetItem):
        origin = made.get(origin.tuple_value)
    return is_call_tir(origin)


def _is_plain(ty: Any) -> bool:
    """Whether a tensor's type has known extents, none of them 0."""
    extents = list(ty.shape)
    return all(isinstance(extent, tirx.IntImm) and int(extent) > 0 for extent in extents)


def _is_branch(value: Any) -> bool:
    """Whether a value is an If."""
    return isinstance(value, relax.If)


def _returning(main: relax.Function, state: Sequence[int]) -> relax.Function:
    """A function that says of which tensors of the state it returns new values."""
    return main.with_attr(RETURNED_STATE, [tirx.IntImm("int64", number) for number in state])


def _with_main(mod: tvm.IRModule, main: relax.Function) -> tvm.IRModule:
    """The module with another ``main``."""
    mod[mod.get_global_var(_MAIN)] = main
    return mod


def _written(mod: tvm.IRModule, ends: _Ends, made: Made) -> tvm.IRModule:
    """The module, which is changed, its ``main`` with calls that write, and fewer results."""
    main = mod[_MAIN]
    blocks = [list(block.bindings) for block in main.body.blocks]
    touched = _touched(blocks, made)
    for value, params in ends.written.items():
        binding = _write(mod, value, params)
        readers = {var for var in touched if not touched[var].isdisjoint(params)}
        blocks = _with_write(blocks, binding, value, readers)
    *_, last = blocks
    last[:] = [binding for binding in last if not binding.var.same_as(main.body.body)]
    results = relax.Var("results", relax.TupleType([value.ty for value in ends.kept]))
    last.append(relax.VarBinding(results, relax.Tuple(ends.kept)))
    pairs = zip(main.body.blocks, blocks, strict=True)
    body = relax.SeqExpr([type(block)(bindings) for block, bindings in pairs], results)
    changed = relax.Function(main.params, body, results.ty, main.is_pure, main.attrs)
    steps = tvm.transform.Sequential([SeparateInPlace(), relax.transform.Normalize()])
    return steps(_with_main(mod, _returning(changed, ends.returned)))


def _touched(blocks: Sequence[Sequence[Any]], made: Made) -> dict[Any, set[Any]]:
    """Roots of the memory in which a binding's arguments lie; tuples of results touch none."""
    return {
        binding.var: {_root(var, made) for var in relax.analysis.free_vars(binding.value)}
        for block in blocks
        for binding in block
        if not isinstance(binding.value, relax.Tuple)
    }


def _with_write(
    blocks: Sequence[list[Any]], write: Any, value: Any, before: set[Any]
) -> list[list[Any]]:
    """The blocks with a binding behind those of a value and of some variables: the earlier a write
    is, the more likely it is in a graph with the kernels around it."""
    number, at = max(
        (number, at)
        for number, block in enumerate(blocks)
        for at, binding in enumerate(block)
        if binding.var.same_as(value) or binding.var in before
    )
    blocks = list(blocks)
    blocks[number] = [*blocks[number][: at + 1], write, *blocks[number][at + 1 :]]
    return blocks


def _write(mod: tvm.IRModule, value: Any, params: Sequence[Any]) -> relax.VarBinding:
    """A call that copies a value to the memory of some parameters."""
    types = [param.ty for param in params]
    call = relax.op.call_tir_inplace(
        copying(mod, value.ty, len(params), "write_state"),
        [value, *params],
        list(range(1, 1 + len(params))),
        types,
    )
    whole = types[0] if len(types) == 1 else relax.TupleType(types)
    return relax.VarBinding(relax.Var("written", whole), call)
