"""Models whose inputs have open extents: which these are, and the model at each point of them."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from tvm_tile.errors import DynamicShapeError, ModelError
from tvm_tile.errors.closest import did_you_mean
from tvm_tile.frontend.fold import RecordedSpreads, ReplayedSpreads, spreading_by
from tvm_tile.frontend.imported import Imported
from tvm_tile.graph.open_extents import Open, Point, Symbol, fit, top
from tvm_tile.graph.signature import OpenAxis, Signature

_MOST = 2**31 - 1  # of an extent
_KEPT = 16  # imported models, at different points

Sizes = Mapping[str, tuple[int | Open, ...]]
ImportAt = Callable[[Mapping[str, tuple[int, ...]]], Imported]
"""Imports a model for inputs of these sizes."""


@dataclass(frozen=True, slots=True)
class OpenInputs:
    """What is said of a model's inputs, some of whose extents are open.

    Attributes:
        sizes: input name -> extents.
        symbols: what stands for the open ones.
        keys: of each symbol, by which ``sizes`` names it: a name, or an input and an axis.
    """

    sizes: Sizes
    symbols: tuple[Symbol, ...]
    keys: tuple[Any, ...]

    def at(self, point: Point) -> dict[str, tuple[int, ...]]:
        """The extents of the inputs at a point."""
        values = dict(zip(self.keys, point, strict=True))
        return {
            name: tuple(
                values[_key(name, axis, e)] if isinstance(e, Open) else e
                for axis, e in enumerate(extents)
            )
            for name, extents in self.sizes.items()
        }

    def not_a_model(self, point: Point, error: ModelError) -> DynamicShapeError:
        """Says that there is no model at a point, and why."""
        values = zip(self.symbols, point, strict=True)
        where = ", ".join(f"{symbol.name} = {value}" for symbol, value in values)
        return DynamicShapeError(
            "a model must be one whatever the values of its open extents",
            f"with {where}: {error.current}",
            "give extents that are always equal one name, Open(..., name=...), those that are "
            "multiples a step, or narrower ranges",
        )

    def signature(self, one: Signature) -> Signature:
        """The signature of an input, its open extents said to be open."""
        by_key = dict(zip(self.keys, self.symbols, strict=True))
        axes = []
        for axis, extent in enumerate(self.sizes.get(one.name, ())):
            if isinstance(extent, Open):
                symbol = by_key[_key(one.name, axis, extent)]
                axes.append(OpenAxis(axis, symbol.name, symbol))
        return replace(one, open_axes=tuple(axes))


def open_inputs(sizes: Sizes) -> OpenInputs | None:
    """What is open in the sizes that a user gave; ``None`` where all are numbers.

    Raises:
        DynamicShapeError: a range is empty, has no end, or is said in two ways under one name.
    """
    found: dict[Any, tuple[str, Open]] = {}
    for name, extents in sizes.items():
        for axis, extent in enumerate(extents):
            if not isinstance(extent, Open):
                continue
            check_range(name, extent)
            text, known = found.setdefault(
                _key(name, axis, extent), (extent.name or f"{name}.{axis}", extent)
            )
            if known != extent:
                raise _refused(f"{text} is {known} and {extent}", "give both the same range")
    if not found:
        return None
    symbols = tuple(Symbol(text, e.low, e.high, e.step) for text, e in found.values())
    return OpenInputs(sizes, symbols, tuple(found))


def _key(name: str, axis: int, extent: Open) -> Any:
    return extent.name or (name, axis)


def require_names(given: Iterable[str], names: Sequence[str]) -> None:
    """Check that what a user says of inputs is said of a model's own.

    Raises:
        ModelError: another name is given.
    """
    unknown = sorted(set(given) - set(names))
    if unknown:
        raise ModelError(
            f"inputs= may name the model's inputs: {', '.join(names)}",
            f"it names {', '.join(unknown)}",
            did_you_mean(unknown[0], names, "correct the name"),
        )


def check_range(name: str, extent: Open) -> None:
    """Refuse a range of an input of that name which is empty, or has no end.

    Raises:
        DynamicShapeError: it is.
    """
    numbers = extent.low, extent.high, extent.step
    try:
        low, high, step = map(operator.index, numbers)
    except TypeError as error:
        raise _refused(f"{name!r} has {numbers}", "write Open(1, 4096)") from error
    if not 1 <= low < high <= _MOST or step < 1 or low % step or high % step:
        raise _refused(
            f"{name!r} has {low} to {high} in steps of {step}",
            "write Open(low, high) with 1 <= low < high, both multiples of step if there is one",
        )


def _refused(found: str, remedy: str) -> DynamicShapeError:
    return DynamicShapeError("an open extent has a least and a greatest value", found, remedy)


def importing(inputs: OpenInputs, import_at: ImportAt) -> Callable[[Point], Imported]:
    """The model at a point; the last ones asked for are kept.

    The result raises a DynamicShapeError for a model with state: what it keeps would have to have
    known extents; and for one that cannot be imported at a point, though it can at the greatest.
    """
    greatest, first = top(inputs.symbols), RecordedSpreads()

    @lru_cache(maxsize=_KEPT)
    def at(point: Point) -> Imported:
        if point != greatest:
            at(greatest)
        # The same operators are to be constants, however large these are.
        decides = first if point == greatest else ReplayedSpreads(first.answers)
        try:
            with spreading_by(decides):
                found = import_at(inputs.at(point))
        except ModelError as error:
            if point == greatest:
                raise
            raise inputs.not_a_model(point, error) from error
        if found.effects:
            raise DynamicShapeError(
                "a model with open extents keeps nothing between its calls",
                "it writes to buffers or inputs, or draws random numbers",
                "give all extents",
            )
        return found

    return at


def signatures(
    inputs: OpenInputs, at: Callable[[Point], Imported], points: Sequence[Point]
) -> tuple[tuple[Signature, ...], tuple[Signature, ...]]:
    """Inputs and outputs of a model, with their open extents."""
    whole = at(top(inputs.symbols))
    require_names(inputs.sizes, [one.name for one in whole.inputs])
    outputs = []
    for number, one in enumerate(whole.outputs):
        shapes = {point: at(point).outputs[number].shape for point in points}
        outputs.append(replace(one, open_axes=_open_axes(shapes, inputs.symbols)))
    return tuple(map(inputs.signature, whole.inputs)), tuple(outputs)


def _open_axes(
    shapes: Mapping[Point, tuple[int, ...]], symbols: Sequence[Symbol]
) -> tuple[OpenAxis, ...]:
    names, axes = [symbol.name for symbol in symbols], []
    for axis in range(len(next(iter(shapes.values())))):
        form = fit({point: shape[axis] for point, shape in shapes.items()})
        if form is None or not form.is_known:
            axes.append(OpenAxis(axis, "?" if form is None else form.text(names)))
    return tuple(axes)


def resized(
    model: Any,
    example_inputs: Sequence[Any] | Mapping[str, Any] | None,
    sizes: Mapping[str, tuple[int, ...]],
) -> Sequence[Any] | Mapping[str, Any] | None:
    """Example inputs of a module, some of them of other sizes.

    Args:
        model: a ``torch.nn.Module``; other models leave them as they are.
        example_inputs: arguments of its ``forward``, in order or by name.
        sizes: name of an argument -> its size.

    Raises:
        ModelError: an argument of that name is no tensor, or there is none.
    """
    if example_inputs is None or not hasattr(model, "forward"):
        return example_inputs
    if isinstance(example_inputs, Mapping):
        given = dict(example_inputs)
    else:
        given = dict(zip(inspect.signature(model.forward).parameters, example_inputs, strict=False))
    names = list(given)
    for name, size in sizes.items():
        value: Any = given.get(name)
        if not hasattr(value, "new_zeros") or value.dim() != len(size):
            raise ModelError(
                f"inputs= names tensors among the arguments of forward: {', '.join(names)}",
                f"{name!r} of size {size}",
                "correct the number of its extents"
                if name in names
                else did_you_mean(name, names, "correct the name"),
            )
        given[name] = value.new_zeros(size)
    if isinstance(example_inputs, Mapping):
        return given
    return (*given.values(), *example_inputs[len(names) :])
