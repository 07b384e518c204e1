"""What AOTAutograd must see to where inputs share memory; see :mod:`aot_cases`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch
from aot_cases import Given, Program, flat, row, views, whole
from torch import Tensor
from torch_backend_cases import drawn


def strided(
    extents: tuple[int, ...], strides: tuple[int, ...], at: int
) -> Callable[[Tensor], Tensor]:
    return lambda x: x.as_strided(extents, strides, at)


def scales_one_turns_other(a: Tensor, b: Tensor) -> Tensor:
    a.mul_(2)
    b.t_()
    return a.mul(b)


def scales_both(a: Tensor, b: Tensor) -> Tensor:
    a.mul_(3)
    b.mul_(2)
    return a + b


def adds_to_first(a: Tensor, b: Tensor) -> Tensor:
    a.add_(1)
    return a + b


def adds_to_all(*args: Tensor) -> Tensor:
    for arg in args:
        arg.add_(1)
    return args[0]


def views_other(a: Tensor, b: Tensor) -> Tensor:
    a.add_(1)
    return b.view(b.shape)


def views_last(a: Tensor, b: Tensor, c: Tensor) -> tuple[Tensor, ...]:
    c.mul_(2)
    return b.add(1), c.view(-1)


def out_of_order(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> tuple[Tensor, ...]:
    b.add_(1)
    d.t_()
    return a + c + d, b.view(-1)


def everything(a: Tensor, b: Tensor, c: Tensor) -> tuple[Tensor, ...]:
    c.mul_(2)
    b.t_()
    first = (a + c).view(-1)
    return first, b.t(), first.unsqueeze(0)


def turns_both(x: Tensor, y: Tensor) -> Tensor:
    x.t_()
    y.t_()
    return x + y


def twice(trains: bool) -> Given:
    leaf = drawn(3, 3).requires_grad_(trains)
    value = leaf + 1
    return [leaf], [value, value]


def in_pairs(trains: bool) -> Given:
    leaves = [drawn(2, 2, seed=i).requires_grad_(trains) for i in range(2)]
    one, other = (leaf + 1 for leaf in leaves)
    return leaves, [flat(one), flat(other), flat(one), flat(other)]


# Two strided windows of one memory: apart, interleaved, and overlapping.
WINDOWS = {
    "no overlap": (strided((4, 4), (8, 1), 0), strided((4, 4), (8, 1), 28)),
    "interleaved": (strided((4, 2), (8, 1), 0), strided((4, 2), (8, 1), 4)),
    "one apart": (strided((4, 4), (9, 1), 0), strided((4, 4), (9, 1), 23)),
    "overlap": (strided((4, 4), (9, 1), 0), strided((4, 4), (9, 1), 24)),
    "more overlap": (strided((4, 4), (9, 1), 0), strided((4, 4), (9, 1), 25)),
}


def _shared() -> Iterator[Program]:
    yield Program(
        "test_input_data_and_metadata_mutation_aliases_other_input",
        scales_one_turns_other,
        views((2, 2), row, row),
    )
    for name, windows in WINDOWS.items():
        # Gradients of overlapping windows that are written are not defined.
        trains = (False,) if "overlap" in name else (False, True)
        given = views((64,), *windows)
        yield Program(f"test_input_mutation_false_aliasing: {name}", scales_both, given, trains)
    both = views((2, 2), flat, row)
    yield Program(
        "test_output_aliases_multiple_inputs_get_correct_one",
        lambda a, b: (a.view(a.shape), b.view(b.shape)),
        both,
    )
    yield Program("test_input_mutation_aliases_other_input", adds_to_first, views((4, 2), row, row))
    yield Program(
        "test_input_mutation_aliases_other_input2", adds_to_first, views((2, 2), row, whole)
    )
    same = views((2, 2), flat, flat)
    yield Program("test_input_mutation_aliases_and_output_alias", views_other, same)
    beside = views((2, 2), flat, flat, alone=(2, 2))
    yield Program("test_input_aliased_with_mutation_output_alias", views_last, beside)
    yield Program("test_input_metadata_mutation_aliases", lambda a, b: a.t_() + b, same)
    yield Program("test_input_mutation_aliases_bases_out_of_order", out_of_order, in_pairs)
    yield Program("test_input_mutation_alias_everything", everything, beside)
    yield Program("test_dupe_arg", torch.add, twice)
    yield Program("test_dupe_arg_torture", turns_both, twice)
    yield Program("test_invalid_dupe_left_bias", lambda x, y: x.t_() + y, twice)
    parts = views(
        (40,),
        *(partial(torch.narrow, dim=0, start=5 * i, length=5) for i in range(8)),
        lambda x: x[3:21],
    )
    yield Program(
        "test_aot_autograd.py: test_inputs_overlapping_with_mutation_stress",
        adds_to_all,
        parts,
        (False,),
    )


PROGRAMS = tuple(_shared())
