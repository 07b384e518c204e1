"""Functions that end with a call of themselves, as steps that a backward jump repeats.

TVM's virtual machine knows calls and branches only: a loop is a function that calls itself, and
each of its iterations takes 17 KB of a stack of 8 MB. What is written here takes as much memory
for 50,000 iterations as for one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

_STEP = "_step"


@dataclass(frozen=True, slots=True)
class Repeated:
    """A function whose bytecode repeats a step.

    Attributes:
        name: the function's.
        step: the name of the step, which returns ``(1, *arguments)`` of the next step or
            ``(0, result)``.
        parameters: names of the parameters of both.
    """

    name: str
    step: str
    parameters: tuple[str, ...]


def repeat_tail_calls(mod: Any) -> tuple[Any, tuple[Repeated, ...]]:
    """Make steps of the functions that end with a call of themselves.

    before: ``loop(i, x): if less(i, 5): r = loop(add(i, 1), f(x))  else: r = x;  return r``
    after:  ``loop(i, x): if less(i, 5): r = (1, add(i, 1), f(x))   else: r = (0, x);  return r``

    Args:
        mod: a Relax module after all Relax passes, calls lowered to the virtual machine's.

    Returns:
        The module, where a step has its function's place under another symbol, and the functions
        that are to be written in their stead. Calls in other places than the end stay calls.
    """
    from tvm import relax

    repeated: list[Repeated] = []
    for var, func in mod.functions_items():
        if isinstance(func, relax.Function) and _has_tail_call(func.body, var):
            if not repeated:
                mod = mod.clone()
            name = str(var.name_hint)
            ends = _EndWriter(var)
            body = ends.of(func.body)
            step = relax.Function(func.params, body, relax.AnyType(), func.is_pure, func.attrs)
            mod[var] = step.with_attr("global_symbol", name + _STEP)
            parameters = tuple(str(parameter.name) for parameter in func.params)
            repeated.append(Repeated(name, name + _STEP, parameters))
    return mod, tuple(repeated)


def write_repeated(repeated: Sequence[Repeated], builder: Any) -> None:
    """Write functions that repeat a step as bytecode.

    Args:
        repeated: the functions, whose steps are in the module that is compiled next.
        builder: TVM's ``ExecBuilder``, before it has seen that module.
    """
    for loop in repeated:
        _write_loop(builder, loop)


def _write_loop(builder: Any, loop: Repeated) -> None:
    """What the virtual machine has no loop for, but a jump::

    step:  (goes_on, *values) = step(*parameters)
           if goes_on: parameters = values; goto step
           else: return values[0]
    """
    from tvm.relax.exec_builder import VMFuncKind

    count = len(loop.parameters)
    parameters = [builder.r(number) for number in range(count)]
    made, goes_on = builder.r(count), builder.r(count + 1)
    item = "vm.builtin.tuple_getitem"
    for name in (loop.name, loop.step):
        builder.declare_function(name, VMFuncKind.VM_FUNC)
    with builder.function(loop.name, num_inputs=count, param_names=list(loop.parameters)):
        builder.emit_call(loop.step, parameters, made)
        builder.emit_call(item, [made, builder.imm(0)], goes_on)
        builder.emit_if(goes_on, count + 2)  # behind the jump where it does not go on
        for number, parameter in enumerate(parameters):
            builder.emit_call(item, [made, builder.imm(number + 1)], parameter)
        builder.emit_goto(-(count + 3))
        builder.emit_call(item, [made, builder.imm(1)], made)
        builder.emit_ret(made)


def tail_binding(sequence: Any) -> Any:
    """The binding of a sequence's result, if nothing follows it but what frees memory.

    ``None`` where the result is a parameter, a constant, or made before something else is.
    """
    from tvm import relax

    wanted = sequence.body
    bindings = [binding for block in sequence.blocks for binding in block.bindings]
    for binding in reversed(bindings):
        if not isinstance(binding, relax.VarBinding):
            return None
        if binding.var.same_as(wanted):
            if not isinstance(binding.value, relax.Var):
                return binding
            wanted = binding.value  # another name
        elif not _frees(binding.value):
            return None
    return None


def _frees(value: Any) -> bool:
    """Whether a value frees memory or an object."""
    from tvm import ir, relax

    kill = (ir.Op.get("relax.vm.kill_object"), ir.Op.get("relax.memory.kill_tensor"))
    return isinstance(value, relax.Call) and any(value.op == op for op in kill)


def calls_at_its_end(value: Any, function: Any) -> bool:
    """Whether a value is a call of a function, or a branch whose sides may end with one."""
    from tvm import relax

    if isinstance(value, relax.If):
        branches = value.true_branch, value.false_branch
        return any(_has_tail_call(branch, function) for branch in branches)
    return isinstance(value, relax.Call) and bool(value.op.same_as(function))


def _has_tail_call(sequence: Any, function: Any) -> bool:
    """Whether a sequence ends with a call of its own function."""
    binding = tail_binding(sequence)
    return binding is not None and calls_at_its_end(binding.value, function)


@dataclass(frozen=True, slots=True)
class _EndWriter:
    """Rewrites a function's ends.

    Attributes:
        function: function that calls itself there.
    """

    function: Any

    def of(self, sequence: Any) -> Any:
        """The sequence, whose result is a tuple as :class:`Repeated` says."""
        from tvm import relax

        binding = tail_binding(sequence)
        value = None if binding is None else binding.value
        if value is None or not calls_at_its_end(value, self.function):
            return _ending(sequence, None, _tuple(0, sequence.body))
        if isinstance(value, relax.Call):
            return _ending(sequence, binding, _tuple(1, *value.args))
        branches = self.of(value.true_branch), self.of(value.false_branch)
        return _ending(sequence, binding, relax.If(value.cond, *branches))


def _ending(sequence: Any, last: Any, value: Any) -> Any:
    """A sequence that makes ``value`` where it bound ``last``, or at its end."""
    from tvm import relax

    result = relax.Var("end", relax.AnyType())
    made = relax.VarBinding(result, value)
    bindings = [binding for block in sequence.blocks for binding in block.bindings]
    names = [binding.var for binding in bindings]
    place = (
        len(names) if last is None else next(i for i, v in enumerate(names) if v.same_as(last.var))
    )
    freeing = [binding for binding in bindings[place + 1 :] if _frees(binding.value)]
    return relax.SeqExpr([relax.BindingBlock([*bindings[:place], made, *freeing])], result)


def _tuple(goes_on: int, *values: Any) -> Any:
    """A tuple of a flag and values."""
    from tvm import relax

    return relax.Tuple([relax.prim_value(goes_on), *values])
