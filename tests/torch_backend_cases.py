"""What a model may do besides computing, as small models and calls: `torch.compile` must see to it
that a compiled one does just what PyTorch does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
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
        options: for ``torch.compile``, besides the backend.
        tolerance: of results, relative and absolute; what the narrowest of their types rounds to.
    """

    name: str
    model: Callable[[], Callable[..., Any]]
    calls: tuple[Call, ...]
    context: Callable[[], AbstractContextManager[Any]] = torch.no_grad
    between: Callable[[Any], None] | None = None
    compiled: int = 1
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


class Answer(NamedTuple):
    scores: Tensor
    best: Tensor | None


@dataclass
class Output:
    hidden: Tensor
    pooled: Tensor | None = None


# --- what a model changes ------------------------------------------------------------------------


def _adds_into(x: Tensor, y: Tensor) -> Tensor:
    x.add_(y)
    return x * 2


def _doubles_other(x: Tensor, y: Tensor) -> Tensor:
    y.mul_(2)
    return x + 1


def _adds_into_and_returns(x: Tensor, y: Tensor) -> Tensor:
    return x.add_(torch.tanh(y))


def _writes_a_row(x: Tensor, y: Tensor) -> Tensor:
    x[1] = y[0] * 2
    return x.sum(0)


def _writes_through_a_view(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    view = x.t()
    before = x + 1
    view.mul_(y)
    return before, x + view.t()


def _two_views_of_one_memory(x: Tensor) -> tuple[Tensor, Tensor]:
    a, b = x[0], x[1]
    a.add_(1)
    b.mul_(2)
    return a + b, x


def _counts(self: Any, x: Tensor) -> Tensor:
    self.count.add_(1)
    return x * self.count


def _reads_what_was_written(self: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    old = self.state * 1
    self.state.mul_(0.5).add_(x)
    return old, torch.relu(self.state)


def _keeps(self: Any, x: Tensor) -> Tensor:
    self.last = torch.relu(x + 1)
    return self.last * 2


def _copies(x: Tensor) -> tuple[Tensor, Tensor]:
    y = torch.relu(x)
    return y, y.clone()


def _mutates_a_clone(x: Tensor) -> tuple[Tensor, Tensor]:
    y = x.clone()
    y.add_(1)
    return y, x


# --- memory that is shared, and how it is laid out -----------------------------------------------


def _views_of_outputs(x: Tensor) -> tuple[Tensor, ...]:
    y = torch.relu(x) + 1
    return y, y.t(), y[0], y.view(-1)


def _views_of_inputs(x: Tensor) -> tuple[Tensor, ...]:
    return x.t(), x[1:], x * 2, x


def _same_twice(x: Tensor) -> tuple[Tensor, ...]:
    y = torch.tanh(x)
    return y, y


def _expanded(x: Tensor) -> tuple[Tensor, ...]:
    y = x.sum(1, keepdim=True)
    return y.expand(-1, 7), y.expand(3, 4, 1) + 1


def _split(x: Tensor) -> tuple[Tensor, ...]:
    a, b = torch.exp(x).chunk(2, 1)
    return a, b, a * b


def _strided(x: Tensor) -> tuple[Tensor, ...]:
    y = torch.relu(x)
    return y[:, 1:3].as_strided((2, 2), (4, 1), 1), y + 1


def _channels_last(self: Any, x: Tensor) -> Tensor:
    return torch.relu(self.conv(x)) + 1


def _permuted(x: Tensor) -> tuple[Tensor, ...]:
    return torch.relu(x.permute(2, 0, 1)), x.transpose(0, 2).contiguous() + 1


def channels_last(*shape: int) -> Call:
    return Call(lambda: (drawn(*shape).to(memory_format=torch.channels_last),))


# --- structure -----------------------------------------------------------------------------------


def _breaks(x: Tensor) -> Tensor:
    y = torch.relu(x) * 3
    torch._dynamo.graph_break()
    return torch.tanh(y) + 1


def _prints_between(x: Tensor) -> Tensor:
    y = x * 3
    if y.sum() > 0:
        return torch.tanh(y)
    return torch.exp(y)


def _named(x: Tensor, *, scale: float, shift: Tensor | None = None) -> Tensor:
    y = torch.relu(x) * scale
    return y if shift is None else y + shift


def _answers(x: Tensor) -> Answer:
    return Answer(torch.softmax(x, -1), None)


def _outputs(x: Tensor) -> Output:
    return Output(torch.relu(x) * 2)


def _in_a_dictionary(x: Tensor) -> dict[str, Any]:
    return {"scores": torch.sigmoid(x) * 2, "loss": None, "size": x.shape[0], "deep": [x, (x + 1,)]}


def _inverts(x: Tensor) -> Tensor:
    y = torch.relu(x @ x.t()) + torch.eye(4) * 9
    return torch.tanh(torch.linalg.inv(y) @ x) * 2


def _complex_inside(x: Tensor) -> Tensor:
    return torch.fft.fft(torch.relu(x) + 1).abs() * 2


def _random_between(x: Tensor) -> tuple[Tensor, ...]:
    a = torch.rand(4, 5)
    b = torch.relu(x) + a
    return b * torch.rand(4, 5), torch.rand(3)


def _only_views(x: Tensor) -> Tensor:
    return x.t()[1:].unsqueeze(0)


def _constants_only(x: Tensor) -> tuple[Tensor, ...]:
    return torch.arange(5) * 2, torch.ones(3, 2), x * 2


def _integers(x: Tensor) -> tuple[Tensor, ...]:
    i = torch.argsort(x, -1)
    return i, torch.gather(x, 1, i), x.argmax(), (x > 0).sum()


def _item(x: Tensor) -> Tensor:
    return x * float(x.shape[0]) + torch.relu(x).sum().item()


def _no_elements(x: Tensor) -> tuple[Tensor, ...]:
    return x[:0] * 2, torch.cat([x[:0], x]) + 1


def _scalar(x: Tensor) -> tuple[Tensor, ...]:
    y = x.mean()
    return y, y.reshape(1, 1) * 2


def _half(x: Tensor) -> tuple[Tensor, ...]:
    y = x.to(torch.float16) * 2
    return y, y.float() + 1


def _bfloat16(self: Any, x: Tensor) -> Tensor:
    return torch.relu(self.linear(x.to(torch.bfloat16))).float()


def _under_autocast(self: Any, x: Tensor) -> Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        y = self.linear(x)
    return torch.relu(y.float()) * 2


def _attention(self: Any, x: Tensor) -> Tensor:
    q, k, v = self.linear(x).view(2, 6, 3, 2, 4).permute(2, 0, 3, 1, 4)
    out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return out.transpose(1, 2).reshape(2, 6, 8)


def _doubles(module: nn.Module, args: Any, output: Tensor) -> Tensor:
    return output * 2


def _with_hook() -> Model:
    made = module(lambda self, x: torch.relu(self.linear(x)), linear=lambda: nn.Linear(5, 3))()
    made.linear.register_forward_hook(_doubles)
    return made


def _change_weights(model: Any) -> None:
    """In every way that people do: in place, by a new dictionary, by new memory."""
    with torch.no_grad():
        weight = model.linear.weight
        if weight.sum() > 1000:
            weight.data = torch.zeros_like(weight)
        elif weight.sum() > 100:
            model.load_state_dict({k: v + 1000 for k, v in model.state_dict().items()})
        else:
            weight.data.add_(100)


def _toggle_training(model: Any) -> None:
    model.train(not model.training)


def _linear() -> nn.Linear:
    return nn.Linear(5, 3)


TWO = call((4, 5), (4, 5))
ONE = call((4, 5))
TWICE = (ONE, ONE)


def _changing() -> Iterator[Case]:
    yield Case("adds into an input", function(_adds_into), (TWO,))
    yield Case("returns the input that it wrote", function(_adds_into_and_returns), (TWO,))
    yield Case("writes a row of an input", function(_writes_a_row), (TWO,))
    square = call((5, 5), (5, 5))
    yield Case("writes through a view of an input", function(_writes_through_a_view), (square,))
    yield Case("writes two views of one input", function(_two_views_of_one_memory), (ONE,))
    shared = Call(lambda: (lambda x: (x[:3], x[1:]))(drawn(4, 5)))
    yield Case("inputs that overlap, one of them written", function(_doubles_other), (shared,))
    same = Call(lambda: (lambda x: (x, x))(drawn(4, 5)))
    yield Case("one tensor as two inputs, written", function(_adds_into), (same,))
    yield Case("counts calls", module(_counts, count=lambda: torch.tensor(0)), TWICE)
    state = {"state": lambda: torch.ones(4, 5)}
    yield Case("reads a buffer after it wrote it", module(_reads_what_was_written, **state), TWICE)
    yield Case("keeps a result as an attribute", module(_keeps, last=lambda: torch.zeros(1)), TWICE)
    yield Case("writes into a copy", function(_mutates_a_clone), (ONE,))
    norm = module(lambda self, x: self.norm(x), norm=lambda: nn.BatchNorm1d(5))
    yield Case("running statistics", norm, TWICE, compiled=1)
    yield Case("training mode on and off", norm, (ONE,) * 3, between=_toggle_training)


def _sharing() -> Iterator[Case]:
    yield Case("an output and views of it", function(_views_of_outputs), (ONE,))
    yield Case("an input and views of it among outputs", function(_views_of_inputs), (ONE,))
    yield Case("an output twice", function(_same_twice), (ONE,))
    yield Case("an output and its copy", function(_copies), (ONE,))
    yield Case("outputs that are expanded", function(_expanded), (call((4, 5)),))
    yield Case("both halves of a value", function(_split), (call((4, 6)),))
    yield Case("as_strided with an offset of its own", function(_strided), (call((4, 4)),))
    conv = module(_channels_last, conv=lambda: nn.Conv2d(3, 4, 3))
    yield Case("channels_last in and out", conv, (channels_last(2, 3, 6, 6),))
    last = lambda: nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)  # noqa: E731
    yield Case("channels_last weights", module(_channels_last, conv=last), (call((2, 3, 6, 6)),))
    yield Case("permuted outputs", function(_permuted), (call((2, 3, 4)),))
    sliced = Call(lambda: (drawn(8, 9)[1::2, 2:7],))
    yield Case("an input that is a slice of more", function(lambda x: torch.relu(x) * 2), (sliced,))
    negative = Call(lambda: (torch.complex(drawn(4, 5), drawn(4, 5, seed=1)).conj().imag,))
    yield Case("an input with signs not yet written", function(lambda x: x * 2 + 1), (negative,))


def _structured() -> Iterator[Case]:
    yield Case("a graph break", function(_breaks), (ONE,), compiled=4)
    yield Case("a branch on data", function(_prints_between), (ONE,), compiled=2)
    named = [
        Call(lambda: (drawn(4, 5),), lambda: {"scale": 3.0}),
        Call(lambda: (drawn(4, 5),), lambda: {"scale": 3.0, "shift": drawn(5)}),
        Call(lambda: (drawn(4, 5),), lambda: {"scale": 2.5, "shift": None}),
    ]
    yield Case("arguments by name, some None", function(_named), tuple(named))
    yield Case("a named tuple with None", function(_answers), (ONE,))
    yield Case("a dataclass with None", function(_outputs), (ONE,))
    yield Case("a dictionary of lists of tuples", function(_in_a_dictionary), (ONE,))
    yield Case("a forward hook", _with_hook, (ONE,), compiled=2)
    linear = module(lambda self, x: torch.relu(self.linear(x)), linear=_linear)
    yield Case("weights that change between calls", linear, (ONE,) * 4, between=_change_weights)
    yield Case("inference mode", linear, (ONE,), context=torch.inference_mode)
    yield Case("no gradients wanted of anything", function(torch.tanh), (ONE,), context=nullcontext)
    several = (ONE, call((7, 5)), call((9, 5)), ONE)
    yield Case("sizes that change", linear, several, compiled=3)
    both = tuple(call((n, n + 1)) for n in (4, 6, 4))
    squares = function(lambda x: torch.relu(x @ x.t()) * x.shape[1])
    yield Case("open sizes from the start", squares, both, options={"dynamic": True}, compiled=3)
    yield Case("scalars and a shape of ones", function(_scalar), (ONE,))
    yield Case("tensors without elements", function(_no_elements), (ONE,))


def _partly_compiled() -> Iterator[Case]:
    yield Case("an inverse amid products", function(_inverts), (call((4, 4)),), compiled=3)
    yield Case("complex numbers amid real ones", function(_complex_inside), (ONE,), compiled=2)
    yield Case("random numbers in their order", function(_random_between), (ONE,))
    yield Case("views alone", function(_only_views), (ONE,), compiled=0)
    yield Case("constants of no input", function(_constants_only), (ONE,))
    yield Case("integers and booleans", function(_integers), (ONE,))
    yield Case("a number out of a tensor", function(_item), (ONE,))
    yield Case("float16, which PoCL lacks", function(_half), (ONE,), compiled=0)
    half = lambda: nn.Linear(5, 3, dtype=torch.bfloat16)  # noqa: E731
    yield Case("bfloat16", module(_bfloat16, linear=half), (ONE,), tolerance=2e-2)
    yield Case("autocast", module(_under_autocast, linear=_linear), (ONE,), tolerance=2e-2)
    yield Case("double precision", function(lambda x: torch.exp(x.double()) + 1), (ONE,))
    heads = module(_attention, linear=lambda: nn.Linear(8, 24))
    yield Case("attention stays whole", heads, (call((2, 6, 8)),), compiled=2)
    dropped = module(lambda self, x: self.drop(torch.relu(x)) * 2, drop=lambda: nn.Dropout(0.4))
    yield Case("dropout draws what PyTorch draws", dropped, TWICE)


CASES = (*_changing(), *_sharing(), *_structured(), *_partly_compiled())
