"""What AOTAutograd must see to, as PyTorch's people test it: inputs that are written and share
memory with each other, outputs that are views, gradients of it all.

Each case has the name of the test in PyTorch's ``test/functorch/test_aotdispatch.py`` (or, where it
is said, ``test/dynamo/test_aot_autograd.py``) that has this behaviour; the code is ours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch_backend_cases import drawn

# Leaves, which gradients are asked of, and the arguments that are made of them.
Given = tuple[list[Tensor], list[Any]]


@dataclass(frozen=True, slots=True)
class Program:
    """A function, and its arguments made anew each time.

    Attributes:
        name: of PyTorch's test.
        run: the function.
        given: makes leaves that require gradients or not, and arguments that are no leaves, so that
            they can be written.
        trains: whether the leaves require gradients, each way to be tried.
    """

    name: str
    run: Callable[..., Any]
    given: Callable[[bool], Given]
    trains: tuple[bool, ...] = (False, True)


def apart(*shapes: tuple[int, ...]) -> Callable[[bool], Given]:
    """Arguments of these shapes, each of a leaf of its own."""

    def make(trains: bool) -> Given:
        leaves = [drawn(*shape, seed=i).requires_grad_(trains) for i, shape in enumerate(shapes)]
        return leaves, [leaf + 1 for leaf in leaves]

    return make


def views(
    shape: tuple[int, ...], *take: Callable[[Tensor], Tensor], alone: tuple[int, ...] = ()
) -> Callable[[bool], Given]:
    """Arguments that lie in the memory of one value of a leaf; ``alone``: one more of this shape in
    front of the last."""

    def make(trains: bool) -> Given:
        leaf = drawn(*shape).requires_grad_(trains)
        value = leaf + 1
        arguments = [one(value) for one in take]
        if not alone:
            return [leaf], arguments
        other = drawn(*alone, seed=7).requires_grad_(trains)
        return [leaf, other], [*arguments[:-1], other + 1, arguments[-1]]

    return make


def flat(x: Tensor) -> Tensor:
    return x.view(-1)


def row(x: Tensor) -> Tensor:
    return x[0]


def whole(x: Tensor) -> Tensor:
    return x


class Halves(torch.autograd.Function):
    """Returns its input; half of the gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return gradients[0] * 0.5


class MoreByOne(torch.autograd.Function):
    """Copies its input; one more than the gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return gradients[0] + 1


class FirstForSecond(torch.autograd.Function):
    """Writes into a gradient that comes in."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        return x.clone(), x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return gradients[0].copy_(gradients[1])


# --- inputs that are written ---------------------------------------------------------------------


def scales(a: Tensor) -> Tensor:
    return a.mul_(2) * 3


def scales_two(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    a.mul_(2)
    c.mul_(3)
    return a + b * c


def turns(a: Tensor, b: Tensor) -> Tensor:
    a.transpose_(1, 0)
    return a + b


def turns_and_scales(a: Tensor) -> Tensor:
    a.transpose_(1, 0)
    a.mul_(2)
    return a + 1


def turns_and_scales_a_row(a: Tensor) -> Tensor:
    a.t_()
    a[0].mul_(2)
    return a.view(a.shape)


def scales_detached(a: Tensor) -> Tensor:
    a.detach().mul_(2)
    return a + 3


def scales_without_gradients(a: Tensor) -> Tensor:
    with torch.no_grad():
        a.mul_(2)
    return a + 3


def scales_in_three_ways(a: Tensor) -> Tensor:
    a.detach().mul_(2)
    a.mul_(3)
    with torch.no_grad():
        a.mul_(4)
    return a + 5


def shrinks(a: Tensor, b: Tensor) -> Tensor:
    a.resize_(2, 2)
    return a + b


def adds_and_returns_nothing(a: Tensor) -> tuple[()]:
    a.add_(1)
    return ()


def normalizes(x: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, var: Tensor) -> Any:
    return nn.functional.batch_norm(x, mean, var, weight, bias, True, 0.5, 1e-5)


def of_a_norm(trains: bool) -> Given:
    leaves = [drawn(2, 5, 3, 3), drawn(5, seed=1), drawn(5, seed=2)]
    leaves = [leaf.requires_grad_(trains) for leaf in leaves]
    return leaves, [*(leaf + 1 for leaf in leaves), torch.zeros(5), torch.ones(5)]


def writes_into_expanded(x: Tensor, z: Tensor) -> Tensor:
    y = x.detach().clone().expand(3, *x.shape)
    y[1, 1].mul_(5)
    return y * z


def hides_all(a: Tensor) -> Tensor:
    b = a[0]
    return b.masked_fill_(torch.ones_like(b, dtype=torch.bool), 0)


def _written() -> Iterator[Program]:
    square = (3, 3)
    yield Program("test_input_mutation_simple", scales, apart(square))
    yield Program("test_input_mutation_is_output", lambda a: a.mul_(2), apart(square))
    yield Program("test_input_mutation_multiple", scales_two, apart(square, square, square))
    yield Program("test_input_mutation_metadata", turns, apart(square, square))
    yield Program("test_input_mutation_metadata2", turns_and_scales, apart(square))
    yield Program("test_input_data_and_metadata_mutation", turns_and_scales_a_row, apart(square))
    yield Program("test_input_mutation_requires_grad_detach", scales_detached, apart((4,)))
    yield Program(
        "test_input_mutation_requires_grad_no_grad", scales_without_gradients, apart((4,))
    )
    yield Program(
        "test_input_mutation_requires_grad_no_grad_detach_mixed", scales_in_three_ways, apart((4,))
    )
    # Tensors that require gradients cannot be resized.
    yield Program("test_input_mutation_resize_smaller", shrinks, apart(square, (2, 2)), (False,))
    every_second = views((8,), lambda x: x[::2])
    yield Program("test_mutates_input_noncontiguous", adds_and_returns_nothing, every_second)
    column = views((2, 2), lambda x: x[:, 0])
    yield Program("test_input_mutation_noncontiguous", scales, column)
    yield Program("test_input_mutation_batchnorm", normalizes, of_a_norm)
    yield Program(
        "test_aot_autograd.py: test_aot_autograd_expand_mutation_backwards",
        writes_into_expanded,
        apart((3,), (3, 3, 3)),
    )
    hidden = apart((2, 2))
    yield Program(
        "test_default_partitioner_saves_symints_not_tensors_for_bw",
        hides_all,
        hidden,
        (False, True),
    )


# --- outputs that are views ----------------------------------------------------------------------


def views_of_written(a: Tensor, b: Tensor, c: Tensor) -> tuple[Tensor, ...]:
    a.mul_(2)
    c.mul_(3)
    return b.view(2, 2), c.view(2, 2)


def views_of_turned(a: Tensor, b: Tensor, c: Tensor) -> tuple[Tensor, ...]:
    b.mul_(3)
    c.t_()
    return a.view(2, 2), b.view(2, 2), c.view(2, 2)


def diagonal_of_turned(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> tuple[Tensor, ...]:
    b.transpose_(1, 0)
    c.add_(1)
    return d + 1, b.diagonal(), a + c


def of_intermediate(*take: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Any]:
    """A function that returns views of what it computes."""

    def run(a: Tensor) -> Any:
        value = a * 3
        return tuple(one(value) for one in take)

    return run


def of_two_intermediates(a: Tensor) -> tuple[Tensor, ...]:
    one, other = a * 3, a * 4
    return one.view(-1), other.transpose(1, 0), one.transpose(1, 0)


def of_all_kinds(a: Tensor) -> tuple[Tensor, ...]:
    a.transpose_(1, 0)
    value = a * 2
    return value.squeeze(), value.transpose(1, 0), a.unsqueeze(0)


def before_it_is_written(a: Tensor) -> tuple[Tensor, ...]:
    before = a.detach()
    a.mul_(2)
    return a, before


def detached_in_place(a: Tensor) -> Tensor:
    value = a * 3
    value.t_()
    return value.detach_()


def begins_to_require(a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    return a.mul(3), b.view(-1).detach().requires_grad_(True) * 4


def squeezed_and_written(a: Tensor) -> Tensor:
    b = a.clone().squeeze(-1)
    b.add_(1.0)
    return a + b


def _views() -> Iterator[Program]:
    square = (2, 2)
    three = apart(square, square, square)
    yield Program("test_input_output_view_simple", flat, apart(square))
    yield Program("test_input_output_view_mutate_multiple", views_of_written, three)
    yield Program("test_input_output_view_metadata_mutate_multiple", views_of_turned, three)
    yield Program(
        "test_input_mutation_and_output_view", lambda a: a.add_(1).view(-1), apart(square)
    )
    four = apart(square, square, square, square)
    yield Program("test_input_mutation_output_view_multiple", diagonal_of_turned, four)
    taken: dict[str, tuple[Callable[[Tensor], Tensor], ...]] = {
        "single": (flat,),
        "returned_multiple_times": (whole, flat, whole),
        "multiple": (flat, flat),
        "and_returned": (flat, whole),
        "and_returned_flipped": (whole, flat),
        "and_returned_different_grad": (flat, whole, lambda x: x[0].detach()),
    }
    for name, take in taken.items():
        run = of_intermediate(*take)
        yield Program(f"test_output_aliases_intermediate_{name}", run, apart((3, 3)))
    yield Program(
        "test_output_aliases_intermediate_multiple_mixed", of_two_intermediates, apart((3, 3))
    )
    yield Program(
        "test_output_aliases_intermediate_inplace_view_with_detach",
        detached_in_place,
        apart((2, 4)),
    )
    yield Program("test_output_all_alias_types", of_all_kinds, apart((1, 2, 4)))
    yield Program(
        "test_view_and_inplace_view", lambda a, b: (b.view(b.shape), a.t_()), apart((3, 3), (3, 3))
    )
    yield Program("test_view_detach", before_it_is_written, apart((3, 3)))
    yield Program("test_squeeze_mutation", squeezed_and_written, apart((3, 1)))
    yield Program(
        "test_some_outputs_dont_require_grad_view",
        lambda a, b: (a.detach(), b),
        apart((3, 3), (3, 3)),
    )
    yield Program(
        "test_some_outputs_dont_require_grad_non_view",
        lambda a, b: (a.add(1).detach(), b),
        apart((3, 3), (3, 3)),
    )
    yield Program(
        "test_some_output_requires_grad_input_doesnt", begins_to_require, apart((3, 3), (3, 3))
    )
    yield Program(
        "test_input_output_aliase_custom_autograd_function",
        lambda x: Halves.apply(x),
        apart(square),
    )
    yield Program("test_custom_autograd", lambda x: MoreByOne.apply(x), apart((3,)))
    yield Program(
        "test_aot_autograd.py: test_autograd_function_tangent_mutation",
        lambda x: FirstForSecond.apply(x),
        apart((4,)),
    )


PROGRAMS = (*_written(), *_views())
