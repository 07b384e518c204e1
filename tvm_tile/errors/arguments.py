"""Checks of what users pass, so that a wrong argument is told at once and by its name."""

from __future__ import annotations

import operator
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tvm_tile.errors import ModelError, OptionError, SavedModelError

_MOST = 2**31 - 2  # that kernels count to, and notice one more


def check_flag(name: str, value: Any) -> None:
    """Refuse an option that is neither True nor False: a text such as ``"no"`` would be true.

    Raises:
        OptionError: the value is neither.
    """
    if not isinstance(value, bool):
        raise OptionError(f"{name} must be True or False", repr(value), "pass one of them")


def check_count(name: str, value: Any, least: int, remedy: str) -> None:
    """Refuse an option that is no whole number, or too small.

    Raises:
        OptionError: the value is no whole number, or below the least one.
    """
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        kind = "negative" if least == 0 else f"less than {least}"
        raise OptionError(f"{name} must be a whole number and not {kind}", repr(value), remedy)


def check_bound(name: str, value: Any) -> None:
    """Refuse an option that bounds what a kernel counts, unless it is a word of the kernel's.

    Raises:
        OptionError: the value is no whole number, or none that a kernel can count to.
    """
    check_count(name, value, 1, "leave it out for the default")
    if value > _MOST:
        raise OptionError(f"{name} must be at most {_MOST}", repr(value), "use a smaller one")


def check_share(name: str, value: Any, remedy: str) -> None:
    """Refuse an option that is no share of something, such as 0.05 for a twentieth, 0 or more.

    Raises:
        OptionError: the value is no number, negative, infinite or NaN.
    """
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 <= value <= sys.float_info.max:
        raise OptionError(f"{name} must be a number and not negative", repr(value), remedy)


def check_folder(name: str, value: Any) -> None:
    """Refuse an option that is neither a flag nor the path of a folder.

    Raises:
        OptionError: the value is neither a flag nor a path, or an empty path.
    """
    is_path = isinstance(value, (str, os.PathLike)) and isinstance(os.fspath(value), str)
    if isinstance(value, bool) or (is_path and os.fspath(value) and "\0" not in os.fspath(value)):
        return
    raise OptionError(
        f"{name} must be a folder, True or False", repr(value), "use False for nowhere"
    )


def check_output(output: Path) -> None:
    """Refuse the path of a file that could not be written.

    Raises:
        SavedModelError: its folder does not exist, or it is a folder itself.
    """
    if not output.parent.is_dir():
        raise SavedModelError(
            "the folder of the output must exist", str(output.parent), "create it, or use another"
        )
    if output.is_dir():
        raise SavedModelError("the output must be a file", f"{output} is a folder", "name the file")


def checked_sizes(inputs: Any, ranges: type = int) -> dict[str, tuple[Any, ...]]:
    """The sizes of inputs that a user gave, as numbers; extents of type ``ranges`` are kept.

    Raises:
        ModelError: they are no mapping from names to whole numbers, zero or more.
    """
    if inputs is None:
        return {}
    if not isinstance(inputs, Mapping):
        raise _no_sizes(repr(inputs))
    sizes = {}
    for name, shape in inputs.items():
        if not isinstance(name, str) or isinstance(shape, (str, bytes, Mapping)):
            raise _no_sizes(f"{name!r}: {shape!r}")
        try:
            sizes[name] = tuple(_extent(extent, ranges) for extent in shape)
        except (TypeError, ValueError) as error:
            raise _no_sizes(f"{name!r}: {shape!r}") from error
    return sizes


def _extent(value: Any, ranges: type) -> Any:
    """A size that a user gave, as a number or an open range; raises ValueError otherwise."""
    if isinstance(value, ranges) and ranges is not int:
        return value
    extent = operator.index(value)
    if isinstance(value, bool) or extent < 0:
        raise ValueError(value)
    return extent


def _no_sizes(found: str) -> ModelError:
    """The error for inputs that are no sizes."""
    return ModelError(
        "inputs= must give names their sizes, whole numbers that are not negative",
        found[:200],
        'write them as inputs={"image": (1, 3, 320, 320)}',
    )


def check_examples(example_inputs: Sequence[Any] | Mapping[str, Any] | None) -> None:
    """Refuse example inputs that are no arguments, in order or by name, such as a single tensor.

    Raises:
        ModelError: they are not.
    """
    if example_inputs is not None and not isinstance(example_inputs, (tuple, list, Mapping)):
        raise ModelError(
            "example_inputs must be a tuple or a list of arguments, or a mapping from their names",
            f"a {type(example_inputs).__name__}",
            "write one argument as (tensor,)",
        )


def check_entries(models: Mapping[Any, Any], *others: Any) -> None:
    """Refuse entries of a model that have no names, and whatever would be said of one model.

    Raises:
        ModelError: a name is no word, there are none, or one of ``others`` is given as well.
    """
    if not models or not all(isinstance(name, str) and name for name in models):
        raise ModelError(
            "entries of a model are a mapping from names to models, one or more",
            repr(list(models))[:200],
            'write them as {"prefill": program, "decode": other}',
        )
    if any(others):
        raise ModelError(
            "entries are models that say themselves what they take",
            "inputs=, example_inputs=, params= or weights= beside them",
            "export each with torch.export.export, and pass the programs",
        )
