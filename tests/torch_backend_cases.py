"""What a model may do besides computing, as small models and calls: `torch.compile` must see to it
that a compiled one does just what PyTorch does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
import torch_backend_models as models
import weight_changes
from torch import Tensor, nn


@dataclass(frozen=True, slots=True)
class Call:
    """Arguments of one call, made anew each time they are asked for."""

    args: Callable[[], tuple[Any, ...]]
    kwargs: Callable[[], dict[str, Any]] = dict


@dataclass(frozen=True, slots=True)
class Case:
    """A model and what is done with it.

    Attributes:
        name: what the case is about.
        model: makes a module or a function.
        calls: one after the other.
        context: around all of them.
        between: is given the model after each call.
        compiled: operators at least that must be compiled, over all graphs.
        is_whole: whether PyTorch must run none of the operators.
        options: for ``torch.compile``, besides the backend.
        tolerance: of results, relative and absolute; what the narrowest of their types rounds to.
    """

    name: str
    model: Callable[[], Callable[..., Any]]
    calls: tuple[Call, ...]
    context: Callable[[], AbstractContextManager[Any]] = torch.no_grad
    between: Callable[[Any], None] | None = None
    compiled: int = 1
    is_whole: bool = False
    options: dict[str, Any] = field(default_factory=dict)
    tolerance: float = 1e-5


def drawn(*shape: int, seed: int = 0, **kwargs: Any) -> Tensor:
    """Random numbers, the same every time."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), **kwargs)


def call(*shapes: tuple[int, ...]) -> Call:
    """Random tensors of these shapes."""
    return Call(lambda: tuple(drawn(*shape, seed=i) for i, shape in enumerate(shapes)))


class Model(nn.Module):
    """A module whose ``forward`` is a function of it and of its inputs."""

    def __init__(self, run: Callable[..., Any], **parts: Any) -> None:
        super().__init__()
        self.run = run
        for name, part in parts.items():
            if isinstance(part, Tensor) and not isinstance(part, nn.Parameter):
                self.register_buffer(name, part)
            else:
                setattr(self, name, part)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.run(self, *args, **kwargs)


def module(run: Callable[..., Any], **parts: Callable[[], Any]) -> Callable[[], Model]:
    """Makes such a module, its weights the same every time."""

    def make() -> Model:
        torch.manual_seed(0)
        return Model(run, **{name: part() for name, part in parts.items()})

    return make


def function(run: Callable[..., Any]) -> Callable[[], Callable[..., Any]]:
    return lambda: run


def channels_last(*shape: int) -> Call:
    return Call(lambda: (drawn(*shape).to(memory_format=torch.channels_last),))


def _with_hook() -> Model:
    made = module(lambda self, x: torch.relu(self.linear(x)), linear=lambda: nn.Linear(5, 3))()
    made.linear.register_forward_hook(models.doubles)
    return made


@contextmanager
def _capturing_all() -> Iterator[None]:
    """Numbers and sizes that the data decide break no graph."""
    whole = {"capture_scalar_outputs": True, "capture_dynamic_output_shape_ops": True}
    with torch.no_grad(), torch._dynamo.config.patch(whole):
        yield


def _linear() -> nn.Linear:
    return nn.Linear(5, 3)


TWO = call((4, 5), (4, 5))
ONE = call((4, 5))
TWICE = (ONE, ONE)


def _changing() -> Iterator[Case]:
    yield Case("adds into an input", function(models.adds_into), (TWO,))
    yield Case("returns the input that it wrote", function(models.adds_into_and_returns), (TWO,))
    yield Case("writes a row of an input", function(models.writes_a_row), (TWO,))
    square = call((5, 5), (5, 5))
    yield Case(
        "writes through a view of an input", function(models.writes_through_a_view), (square,)
    )
    yield Case("writes two views of one input", function(models.two_views_of_one_memory), (ONE,))
    shared = Call(lambda: (lambda x: (x[:3], x[1:]))(drawn(4, 5)))
    yield Case(
        "inputs that overlap, one of them written", function(models.doubles_other), (shared,)
    )
    same = Call(lambda: (lambda x: (x, x))(drawn(4, 5)))
    yield Case("one tensor as two inputs, written", function(models.adds_into), (same,))
    yield Case("counts calls", module(models.counts, count=lambda: torch.tensor(0)), TWICE)
    state = {"state": lambda: torch.ones(4, 5)}
    yield Case(
        "reads a buffer after it wrote it", module(models.reads_what_was_written, **state), TWICE
    )
    yield Case(
        "keeps a result as an attribute", module(models.keeps, last=lambda: torch.zeros(1)), TWICE
    )
    yield Case("writes into a copy", function(models.mutates_a_clone), (ONE,))
    norm = module(lambda self, x: self.norm(x), norm=lambda: nn.BatchNorm1d(5))
    yield Case("running statistics", norm, TWICE, compiled=1)
    yield Case("training mode on and off", norm, (ONE,) * 3, between=models.toggle_training)


def _sharing() -> Iterator[Case]:
    yield Case("an output and views of it", function(models.views_of_outputs), (ONE,))
    yield Case("an input and views of it among outputs", function(models.views_of_inputs), (ONE,))
    yield Case("an output twice", function(models.same_twice), (ONE,))
    yield Case("an output and its copy", function(models.copies), (ONE,))
    yield Case("outputs that are expanded", function(models.expanded), (call((4, 5)),))
    yield Case("both halves of a value", function(models.split), (call((4, 6)),))
    yield Case("as_strided with an offset of its own", function(models.strided), (call((4, 4)),))
    conv = module(models.channels_last, conv=lambda: nn.Conv2d(3, 4, 3))
    yield Case("channels_last in and out", conv, (channels_last(2, 3, 6, 6),))
    last = lambda: nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)  # noqa: E731
    yield Case(
        "channels_last weights", module(models.channels_last, conv=last), (call((2, 3, 6, 6)),)
    )
    pooled = (channels_last(2, 5, 3, 3),)
    yield Case("pooling of channels_last", function(models.averaged), pooled, is_whole=True)
    yield Case("permuted outputs", function(models.permuted), (call((2, 3, 4)),))
    sliced = Call(lambda: (drawn(8, 9)[1::2, 2:7],))
    yield Case("an input that is a slice of more", function(lambda x: torch.relu(x) * 2), (sliced,))
    negative = Call(lambda: (torch._neg_view(drawn(4, 5)),))
    yield Case("an input with signs not yet written", function(lambda x: x * 2 + 1), (negative,))


def _structured() -> Iterator[Case]:
    yield Case("a graph break", function(models.breaks), (ONE,), compiled=4)
    yield Case("a branch on data", function(models.prints_between), (ONE,), compiled=2)
    named = [
        Call(lambda: (drawn(4, 5),), lambda: {"scale": 3.0}),
        Call(lambda: (drawn(4, 5),), lambda: {"scale": 3.0, "shift": drawn(5)}),
        Call(lambda: (drawn(4, 5),), lambda: {"scale": 2.5, "shift": None}),
    ]
    yield Case("arguments by name, some None", function(models.named), tuple(named))
    yield Case("a named tuple with None", function(models.answers), (ONE,))
    yield Case("a dataclass with None", function(models.outputs), (ONE,))
    yield Case("a dictionary of lists of tuples", function(models.in_a_dictionary), (ONE,))
    yield Case("a forward hook", _with_hook, (ONE,), compiled=2)
    linear = module(lambda self, x: torch.relu(self.linear(x)), linear=_linear)
    yield Case(
        "weights that change between calls", linear, (ONE,) * 4, between=models.change_weights
    )
    yield Case("inference mode", linear, (ONE,), context=torch.inference_mode)
    yield Case("no gradients wanted of anything", function(torch.tanh), (ONE,), context=nullcontext)
    several = (ONE, call((7, 5)), call((9, 5)), ONE)
    yield Case("sizes that change", linear, several, compiled=3)
    grown = tuple(call((1, 2, 1, 8), (1, 2, n, 8)) for n in (4, 5, 6))
    attends = module(models.attends, linear=lambda: nn.Linear(8, 8))
    yield Case("attention to more and more keys", attends, grown, is_whole=True)
    both = tuple(call((n, n + 1)) for n in (4, 6, 4))
    squares = function(lambda x: torch.relu(x @ x.t()) * x.shape[1])
    yield Case("open sizes from the start", squares, both, options={"dynamic": True}, compiled=3)
    yield Case("scalars and a shape of ones", function(models.scalar), (ONE,))
    yield Case("tensors without elements", function(models.no_elements), (ONE,))


def _partly_compiled() -> Iterator[Case]:
    yield Case("an inverse amid products", function(models.inverts), (call((4, 4)),), compiled=3)
    yield Case(
        "complex numbers amid real ones",
        function(models.complex_inside),
        (ONE,),
        is_whole=True,
    )
    turned = (Call(lambda: (torch.complex(drawn(4, 5), drawn(4, 5, seed=1)).t().conj(), drawn(5))),)
    yield Case("complex numbers in and out", function(models.complex_ends), turned, compiled=2)
    yield Case("complex numbers without a rule", function(models.complex_unknown), (ONE,))
    yield Case("random numbers in their order", function(models.random_between), (ONE,))
    yield Case("views alone", function(models.only_views), (ONE,), compiled=0)
    yield Case("constants of no input", function(models.constants_only), (ONE,))
    yield Case("numbers written out in the code", function(models.literals), (ONE,), compiled=3)
    yield Case("integers and booleans", function(models.integers), (ONE,))
    yield Case("a number out of a tensor", function(models.item), (ONE,))
    amid, found = function(models.item), function(models.finds)
    yield Case("a number in a graph", amid, (ONE,), context=_capturing_all, compiled=6)
    yield Case("sizes that the data decide", found, (ONE,), context=_capturing_all, compiled=4)
    yield Case("float16, which PoCL lacks", function(models.half), (ONE,), compiled=0)
    half = lambda: nn.Linear(5, 3, dtype=torch.bfloat16)  # noqa: E731
    yield Case("bfloat16", module(models.bfloat16, linear=half), (ONE,), tolerance=2e-2)
    yield Case("autocast", module(models.under_autocast, linear=_linear), (ONE,), tolerance=2e-2)
    yield Case("what is not finite", function(models.not_finite), (ONE,), is_whole=True)
    yield Case("double precision", function(lambda x: torch.exp(x.double()) + 1), (ONE,))
    heads = module(models.attention, linear=lambda: nn.Linear(8, 24))
    yield Case("attention stays whole", heads, (call((2, 6, 8)),), is_whole=True)
    dropped = module(lambda self, x: self.drop(torch.relu(x)) * 2, drop=lambda: nn.Dropout(0.4))
    yield Case("dropout draws what PyTorch draws", dropped, TWICE)


def _weights() -> Iterator[Case]:
    parts = {name: lambda: nn.Linear(5, 5) for name in ("first", "linear", "last")}
    deep = module(weight_changes.deep, **parts)
    for name, change in weight_changes.WEIGHT_CHANGES.items():
        yield Case(f"weights {name}", deep, TWICE, between=change, is_whole=True)
    for name, weight in weight_changes.UNUSUAL_WEIGHTS.items():
        odd = module(
            weight_changes.deep, **{**parts, "linear": partial(weight_changes.linear_of, weight)}
        )
        yield Case(f"weights {name}", odd, TWICE, between=weight_changes.steps, is_whole=True)
    tied = module(weight_changes.tied, first=lambda: nn.Linear(5, 5), scale=lambda: torch.ones(5))
    yield Case(
        "one weight in two layers", tied, TWICE, between=weight_changes.unties, is_whole=True
    )
    for bias in (False, True):
        same = {name: partial(nn.Linear, 5, 5, bias=bias) for name in parts}
        layers = module(weight_changes.repeats, **same)
        name = f"equal layers, biases: {bias}"
        yield Case(name, layers, TWICE, between=weight_changes.steps, is_whole=True)
    scaled = {**parts, "state": lambda: torch.ones(4, 5)}
    yield Case(
        "a buffer of a state", module(weight_changes.recurs, **scaled), TWICE, is_whole=False
    )


CASES = (*_changing(), *_sharing(), *_structured(), *_partly_compiled(), *_weights())
