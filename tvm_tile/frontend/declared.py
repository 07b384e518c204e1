"""Extents that a model itself leaves open, and what is known of them beside what a user says."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tvm_tile.errors import DynamicShapeError
from tvm_tile.frontend.open_inputs import Sizes, check_range
from tvm_tile.graph.open_extents import Open

# Names of extents that are no batch, even along the first axis: words in them, operators between
# them, and letters; and letters that are a batch along any axis.
_NO_BATCH = re.compile(
    "seq|len|time|token|step|frame|height|width|chan|feat|hidden|embed|vocab|head|past|[+*/]"
    "|^[hwctsld]$"
)
_BATCH_LETTERS = frozenset("NB")


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
        usual: the value that the model's file tells in another place; ``None`` where none does.
        told_by: that place, for people.
        example: the value of the example that the model was made with; ``None`` where that is not
            known.
    """

    name: str
    low: int = 1
    high: int | None = None
    step: int = 1
    is_derived: bool = False
    usual: int | None = None
    told_by: str = ""
    example: int | None = None

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


@dataclass(frozen=True, slots=True)
class Completed:
    """The sizes of a model's inputs, as far as anybody knows them.

    Attributes:
        sizes: input name -> extents; inputs whose shape the model fixes may be left out.
        notes: a line for people about each input that has a size nobody gave.
        is_batched: whether a batch that was asked for is among the extents.
    """

    sizes: Sizes
    notes: tuple[str, ...] = ()
    is_batched: bool = False


def completed(shapes: Shapes, sizes: Sizes, batch: int | None = None) -> Completed:
    """The sizes that a user gives, and those of all other extents that a model leaves open.

    These are ranges where the model has them, else what its file tells in another place, else 1 for
    a batch, which a name says or, where no name says otherwise, the first axis. What contradicts
    the model otherwise than by a range, such as a wrong rank, is left as it is, for the import to
    refuse.

    Args:
        shapes: as the model declares them.
        sizes: as a user gives them.
        batch: samples of a call; ``None`` where that is left to the rest. Of ranges that are given
            it takes the place of those that are a batch, or of the only one, and where none is
            given that of all extents that are a batch.

    Raises:
        DynamicShapeError: a range is given for an extent that the model fixes, or goes beyond that
            of the model; or there is neither a range with an end nor a number; or the batch lies
            beyond a range.
    """
    _require_apart(shapes, sizes)
    settled: dict[str, int | Open] = {}
    for name, own, given in _pairs(shapes, sizes):
        if isinstance(given, Open):
            _check(name, own, given)
        if isinstance(own, Declared):
            known = settled.setdefault(own.name, _named(given, own.name))
            settled[own.name] = _agreed(own, known, given)
    batches = {} if batch is None else _batches(shapes, settled, batch)
    settled |= batches
    assumed = _assumed(shapes, settled)
    settled |= {name: value for name, (value, _) in assumed.items()}
    result = dict(sizes)
    notes: list[str] = []
    for name, shape in shapes.items():
        if name not in sizes and any(isinstance(one, Declared) for one in shape):
            extents = tuple(e for one in shape if (e := _extent(one, settled)) is not None)
            if len(extents) == len(shape):
                result[name] = extents
                notes += _notes(name, shape, extents, assumed)
        elif name in sizes and len(sizes[name]) == len(shape):
            result[name] = tuple(
                settled[own.name] if isinstance(own, Declared) and isinstance(one, Open) else one
                for own, one in zip(shape, sizes[name], strict=True)
            )
    if sizes.keys() <= shapes.keys():
        require_known(shapes, result, settled)
    return Completed(result, tuple(notes), bool(batches))


def _batches(shapes: Shapes, settled: Mapping[str, int | Open], batch: int) -> dict[str, int]:
    """The extents that no number settles and that are the batch, with its value."""
    found: dict[str, tuple[Declared, bool]] = {}
    for name, shape in shapes.items():
        for axis, own in enumerate(shape):
            if isinstance(own, Declared):
                _, is_batch = found.get(own.name, (own, False))
                found[own.name] = own, is_batch or _is_batch(own.name, name, axis)
    free = [name for name in found if not isinstance(settled.get(name), int)]
    ranges = [name for name in free if name in settled]
    numbers = {name: own for name, (own, _) in found.items() if not own.is_derived}
    taken = [name for name in ranges or free if found[name][1] and name in numbers]
    if not any(is_batch for _, is_batch in found.values()) and len(ranges) == 1:
        taken = ranges  # what nothing calls a batch, but a user leaves open
    for name in taken:
        _check_batch(batch, found[name][0], settled.get(name))
    return dict.fromkeys(taken, batch)


def _check_batch(batch: int, own: Declared, given: int | Open | None) -> None:
    """Refuse a batch beyond the range of the model, or beyond that which a user gives."""
    for one in (own, given):
        if isinstance(one, Declared | Open) and not (
            one.low <= batch <= (one.high or batch) and batch % one.step == 0
        ):
            raise DynamicShapeError(
                f"a batch must lie within the range of its extent: {own}",
                f"{batch}" if one is own else f"{batch}, and {one} is given",
                "ask for another batch, or for a wider range",
            )


def _assumed(shapes: Shapes, settled: Mapping[str, int | Open]) -> dict[str, tuple[int, str]]:
    """Extents that nobody has settled, and that have a usual value: it, and why it is usual.

    What the file tells comes before a batch, which comes before an example.
    """
    told: dict[str, tuple[int, str]] = {}
    batches: dict[str, tuple[int, str]] = {}
    examples: dict[str, tuple[int, str]] = {}
    for name, shape in shapes.items():
        for axis, own in enumerate(shape):
            if not isinstance(own, Declared) or own.is_derived or own.high is not None:
                continue
            if own.usual is not None:
                told.setdefault(own.name, (own.usual, own.told_by))
            if _is_batch(own.name, name, axis):
                batches.setdefault(own.name, (own.low, "taken for a batch"))
            if own.example is not None:
                examples[own.name] = own.example, "as in the example that it was exported with"
    return {n: one for n, one in (examples | batches | told).items() if n not in settled}


def _is_batch(name: str, input_name: str, axis: int) -> bool:
    """Whether an extent of this name along an axis of an input is one of a batch."""
    if name == unnamed(input_name, axis):
        return axis == 0
    is_named_so = "batch" in name.lower() or name in _BATCH_LETTERS
    return not _NO_BATCH.search(name.lower()) and (axis == 0 or is_named_so)


def unnamed(input_name: str, axis: int) -> str:
    """What an extent is called that has no name."""
    return f"{input_name}.{axis}"


def _notes(
    name: str,
    shape: Sequence[int | Declared],
    extents: Sequence[int | Open],
    assumed: dict[str, tuple[int, str]],
) -> Iterator[str]:
    """A line about an input's extents that were assumed; those said of another input left out."""
    said = []
    for axis, own in enumerate(shape):
        if isinstance(own, Declared) and own.name in assumed:
            value, reason = assumed.pop(own.name)
            called = "" if own.name == unnamed(name, axis) else f" ({own.name})"
            said.append(f"axis {axis}{called} is {value}, {reason}")
    if said:
        yield (
            f"input {name!r} is compiled as {_written({name: extents})}: {'; '.join(said)}; give "
            "other sizes there, or ranges such as Open(1, 8)"
        )


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


def require_known(
    shapes: Shapes, sizes: Sizes, settled: Mapping[str, int | Open] | None = None
) -> None:
    """Refuse open extents without an end, and expressions of open extents.

    Args:
        shapes: as the model declares them.
        sizes: of inputs, all of whose extents are known, or have an end.
        settled: what is known of the extents of other inputs, by their names.

    Raises:
        DynamicShapeError: there are such extents; all inputs that have one are named.
    """
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
    known = settled or {}
    open_ones = {
        name: shape
        for name, shape in shapes.items()
        if name not in sizes and any(isinstance(one, Declared) for one in shape)
    }
    letters = _letters(open_ones)
    unknown = [
        (letters[own.name], own)
        for shape in open_ones.values()
        for own in shape
        if isinstance(own, Declared) and not own.is_derived and _extent(own, known) is None
    ]
    if unknown:
        listed = ", ".join(f"{name!r} {shown(name, shape)}" for name, shape in open_ones.items())
        filled = {
            name: [one if (e := _extent(one, known)) is None else e for one in shape]
            for name, shape in open_ones.items()
        }
        raise DynamicShapeError(
            "every extent of every input must be known when the model is compiled, or have a "
            "greatest value",
            f"open extents in {listed}",
            f"give the sizes: {_written(filled, letters)}, with numbers that suit the model for "
            f"{', '.join(dict.fromkeys(letter for letter, _ in unknown))}; or ranges such as "
            f"{unknown[0][1].within}",
        )


def shown(name: str, shape: Sequence[int | Declared]) -> str:
    """An input's shape for people, such as ``(batch, 3, ?, 224)``."""
    texts = [
        "?" if isinstance(one, Declared) and one.name == unnamed(name, axis) else _name(one)
        for axis, one in enumerate(shape)
    ]
    return f"({', '.join(texts)})"


def _name(extent: int | Declared) -> str:
    return extent.name if isinstance(extent, Declared) else str(extent)


def _written(
    sizes: Mapping[str, Sequence[int | Open | Declared]], letters: Mapping[str, str] | None = None
) -> str:
    """The sizes as a Python program gives them; extents that are not known by names or letters."""
    texts = []
    for name, shape in sizes.items():
        extents = [
            letters[one.name] if letters and isinstance(one, Declared) else _python(one)
            for one in shape
        ]
        texts.append(f"{name!r}: ({', '.join(extents)}{',' if len(extents) == 1 else ''})")
    return f"inputs={{{', '.join(texts)}}}"


def _letters(shapes: Shapes) -> Mapping[str, str]:
    """What to call extents: their names, or the usual letters of their places, none for two."""
    letters: dict[str, str] = {}
    for name, shape in shapes.items():
        usual = "NCHW" if len(shape) == 4 else "ABCDEFGH"
        for axis, one in enumerate(shape):
            if isinstance(one, Declared) and one.name not in letters:
                letter = usual[axis : axis + 1] or f"d{axis}"
                letter += str(len(letters)) if letter in letters.values() else ""
                letters[one.name] = letter if one.name == unnamed(name, axis) else one.name
    return letters


def _python(extent: int | Open | Declared) -> str:
    if not isinstance(extent, Open):
        return str(extent)
    called = f", name={extent.name!r}" if extent.name else ""
    steps = f", step={extent.step}" if extent.step > 1 else ""
    return f"Open({extent.low}, {extent.high}{called}{steps})"


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
