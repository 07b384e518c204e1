"""Which outputs of a model may share memory with its inputs or constants."""

from __future__ import annotations

from typing import Any


def find_copied_outputs(mod: Any) -> tuple[int, ...]:
    """Positions of outputs that must be copied before a caller may write into them.

    An output is the caller's own when it is a tensor that the function allocates for it.
    Everything else (a constant, an input, a view of either, a value out of a branch or a
    captured graph) counts as shared.

    Args:
        mod: a Relax module after all Relax passes, calls lowered to the VM's.

    Returns:
        Positions, in order; an output that is no tuple has position 0.
    """
    from tvm import relax

    function = mod["main"]
    values = _bound_values(function.body)
    result = _follow(function.body.body, values)
    fields = list(result.fields) if isinstance(result, relax.Tuple) else [result]
    copied: list[int] = []
    seen: list[Any] = []
    for position, field in enumerate(fields):
        value = _follow(field, values)
        # One tensor returned twice is the caller's own only once.
        if not _is_own(value) or any(value.same_as(other) for other in seen):
            copied.append(position)
        seen.append(value)
    return tuple(copied)


def _bound_values(body: Any) -> dict[Any, Any]:
    """Values that a body's variables are bound to."""
    from tvm import relax

    return {
        binding.var: binding.value
        for block in body.blocks
        for binding in block.bindings
        if isinstance(binding, relax.VarBinding)
    }


def _follow(value: Any, values: dict[Any, Any]) -> Any:
    """The value behind a chain of variables."""
    from tvm import relax

    while isinstance(value, relax.Var) and value in values:
        value = values[value]
    return value


def _is_own(value: Any) -> bool:
    """Whether a value is a tensor that the function allocates."""
    from tvm import relax
    from tvm.ir import Op

    if not isinstance(value, relax.Call):
        return False
    if isinstance(value.op, relax.ExternFunc):
        return str(value.op.global_symbol) == "vm.builtin.alloc_tensor"
    return isinstance(value.op, Op) and str(value.op.name) in (
        "relax.vm.alloc_tensor",
        "relax.memory.alloc_tensor",
        "relax.builtin.alloc_tensor",
    )
