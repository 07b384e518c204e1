"""Extents that a model itself leaves open, and what is known of them beside what a user says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from tvm_tile.errors import DynamicShapeError
from tvm_tile.frontend.open_inputs import Sizes, check_range
from tvm_tile.graph.open_extents import Open


@dataclass(frozen=True, slots=True)
class Declared:
    """An extent of an input that a model leaves open.

    Attributes:
        name: extents of one name are equal in each call.
        low: the least value that the model is for, at least 1.
        high: the greatest one; ``None`` where the model is for all.
        step: the model is for multiples of it.
        is_derived: whether it is an expression of others, whose name is its text. These must be
            numbers then.
    """

    name: str
    low: int = 1
    high: int | None = None
    step: int = 1
    is_derived: bool = False

    def __str__(self) -> str:
        end = "on" if self.high is None else f"to {self.high}"
        step = f" in steps of {self.step}" if self.step > 1 else ""
        return f"{self.name} from {self.low} {end}{step}"

    @property
    def within(self) -> str:
        """A range within it, as a user writes it."""
        high = self.high or max(4096, self.low * 2) // self.step * self.step
        step = f", step={self.step}" if self.step > 1 else ""
        return f"Open({self.low}, {high}{step})"


Shapes = Mapping[str, tuple[int | Declared, ...]]
"""Input name -> extents as the model declares them; inputs of unknown rank are not there."""


def completed(shapes: Shapes, sizes: Sizes) -> Sizes:
    """The sizes that a user gives, and ranges of all other extents that a model leaves open.

    What contradicts the model otherwise than by a range, such as a wrong rank, is left as it is,
    for the import to refuse.

    Raises:
        DynamicShapeError: a range is given for an extent that the model fixes, or goes beyond that
            of the model; or there is neither a range with an end nor a number.
    """
    _require_apart(shapes, sizes)
    settled: dict[str, int | Open] = {}
    for name, own, given in _pairs(shapes, sizes):
        if isinstance(given, Open):
            _check(name, own, given)
        if isinstance(own, Declared):
            known = settled.setdefault(own.name, _named(given, own.name))
            settled[own.name] = _agreed(own, known, given)
    result = dict(sizes)
    for name, shape in shapes.items():
        if name not in sizes and any(isinstance(one, Declared) for one in shape):
            extents = [_extent(one, settled) for one in shape]
            result |= {} if None in extents else {name: tuple(e for e in extents if e is not None)}
        elif name in sizes and len(sizes[name]) == len(shape):
            result[name] = tuple(
                settled[own.name] if isinstance(own, Declared) and isinstance(one, Open) else one
                for own, one in zip(shape, sizes[name], strict=True)
            )
    if sizes.keys() <= shapes.keys():
        _require_known(shapes, result)
    return result


def _pairs(shapes: Shapes, sizes: Sizes) -> Iterator[tuple[str, int | Declared, int | Open]]:
    """Each extent that a user gives, beside the model's own."""
    for name, extents in sizes.items():
        shape = shapes.get(name, ())
        if len(shape) == len(extents):
            yield from ((name, *pair) for pair in zip(shape, extents, strict=True))


def _check(name: str, own: int | Declared, given: Open) -> None:
    check_range(name, given)
    if not isinstance(own, Declared):
        raise DynamicShapeError(
            "an extent can be open where the model leaves it open",
            f"{given} for {own} in {name!r}",
            f"give {own}; or export the model with this extent open, in PyTorch by "
            "dynamic_shapes={...: {axis: Dim.DYNAMIC}}",
        )
    high = given.high if own.high is None else own.high
    if given.low < own.low or given.high > high or given.step % own.step:
        raise DynamicShapeError(
            f"a range must lie within that of the model: {own}",
            f"{given} in {name!r}",
            f"write {own.within}, or export the model for a wider range",
        )


def _require_apart(shapes: Shapes, sizes: Sizes) -> None:
    """Refuse a user's name of an extent that is, in the model, the name of another one.

    Who means that they are equal gives both this name.
    """
    names = {own.name for shape in shapes.values() for own in shape if isinstance(own, Declared)}
    given = {
        (own.name, one.name)
        for _, own, one in _pairs(shapes, sizes)
        if isinstance(own, Declared) and isinstance(one, Open) and one.name
    }
    for own_name, name in given:
        if own_name != name and name in names and (name, name) not in given:
            raise DynamicShapeError(
                "extents of one name are equal",
                f"{name!r} for {own_name}, and another extent {name} of the model",
                "choose another name; or, if they are always equal, give both this name",
            )


def _require_known(shapes: Shapes, sizes: Sizes) -> None:
    """Refuse open extents without an end, and expressions of open extents."""
    is_open = any(isinstance(extent, Open) for extents in sizes.values() for extent in extents)
    for name, shape in shapes.items():
        for own in shape:
            if isinstance(own, Declared) and own.is_derived and is_open:
                raise DynamicShapeError(
                    "open extents are numbers of their own, or multiples of one",
                    f"{own.name} in {name!r}",
                    "give all extents as numbers; or export the model with each open extent of its "
                    "own",
                )
            if isinstance(own, Declared) and not own.is_derived and name not in sizes:
                texts = [one.within if isinstance(one, Declared) else str(one) for one in shape]
                whole = f"({', '.join(texts)}{',' if len(texts) == 1 else ''})"
                raise DynamicShapeError(
                    "every extent must be known when the model is compiled, or have a greatest "
                    "value",
                    f"{own} in {name!r}",
                    f"give a range, inputs={{{name!r}: {whole}}}, or numbers; or export the model "
                    "with one, from PyTorch by Dim(..., max=...)",
                )


def _named(given: int | Open, name: str) -> int | Open:
    return replace(given, name=given.name or name) if isinstance(given, Open) else given


def _agreed(own: Declared, known: int | Open, given: int | Open) -> int | Open:
    """What is said of an extent, once more."""
    one = _named(given, own.name)
    if isinstance(known, Open) and isinstance(one, Open):
        unnamed = {replace(known, name=""), replace(one, name="")}
        names = {known.name, one.name} - {own.name}
        if len(unnamed) == 1 and len(names) < 2:
            return replace(one, name=next(iter(names), own.name))
    elif not isinstance(known, Open) and not isinstance(one, Open):
        return known  # the import says what is wrong with two numbers
    if known == one:
        return known
    raise DynamicShapeError(
        f"extents {own.name} are equal in the model",
        f"{known} and {one}",
        "give all of them the same range, or the same number",
    )


def _extent(own: int | Declared, settled: Mapping[str, int | Open]) -> int | Open | None:
    """An extent as it is settled, else as the model declares it; ``None`` where neither tells."""
    if not isinstance(own, Declared):
        return own
    if own.name in settled or own.is_derived or own.high is None:
        return settled.get(own.name)
    return own.low if own.low == own.high else Open(own.low, own.high, own.name, own.step)
