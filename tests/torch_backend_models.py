"""Small models that do more than compute: what `torch.compile` must see to, one each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Answer(NamedTuple):
    scores: Tensor
    best: Tensor | None


@dataclass
class Output:
    hidden: Tensor
    pooled: Tensor | None = None


# --- what a model changes ------------------------------------------------------------------------


def adds_into(x: Tensor, y: Tensor) -> Tensor:
    x.add_(y)
    return x * 2


def doubles_other(x: Tensor, y: Tensor) -> Tensor:
    y.mul_(2)
    return x + 1


def adds_into_and_returns(x: Tensor, y: Tensor) -> Tensor:
    return x.add_(torch.tanh(y))


def writes_a_row(x: Tensor, y: Tensor) -> Tensor:
    x[1] = y[0] * 2
    return x.sum(0)


def writes_through_a_view(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    view = x.t()
    before = x + 1
    view.mul_(y)
    return before, x + view.t()


def two_views_of_one_memory(x: Tensor) -> tuple[Tensor, Tensor]:
    a, b = x[0], x[1]
    a.add_(1)
    b.mul_(2)
    return a + b, x


def counts(self: Any, x: Tensor) -> Tensor:
    self.count.add_(1)
    return x * self.count


def reads_what_was_written(self: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    old = self.state * 1
    self.state.mul_(0.5).add_(x)
    return old, torch.relu(self.state)


def keeps(self: Any, x: Tensor) -> Tensor:
    self.last = torch.relu(x + 1)
    return self.last * 2


def copies(x: Tensor) -> tuple[Tensor, ...]:
    y = torch.relu(x)
    return y, y.clone(), x.clone()


def mutates_a_clone(x: Tensor) -> tuple[Tensor, Tensor]:
    y = x.clone()
    y.add_(1)
    return y, x


# --- memory that is shared, and how it is laid out -----------------------------------------------


def views_of_outputs(x: Tensor) -> tuple[Tensor, ...]:
    y = torch.relu(x) + 1
    return y, y.t(), y[0], y.view(-1)


def views_of_inputs(x: Tensor) -> tuple[Tensor, ...]:
    return x.t(), x[1:], x * 2, x


def same_twice(x: Tensor) -> tuple[Tensor, ...]:
    y = torch.tanh(x)
    return y, y


def averaged(x: Tensor) -> tuple[Tensor, Tensor]:
    y = F.adaptive_avg_pool2d(x, 1)
    return y, torch.relu(y.permute(0, 2, 3, 1) + 1)


def expanded(x: Tensor) -> tuple[Tensor, ...]:
    y = x.sum(1, keepdim=True)
    return y.expand(-1, 7), y.expand(3, 4, 1) + 1


def split(x: Tensor) -> tuple[Tensor, ...]:
    a, b = torch.exp(x).chunk(2, 1)
    return a, b, a * b


def strided(x: Tensor) -> tuple[Tensor, ...]:
    y = torch.relu(x)
    turned = torch.relu(x.t() + 1)
    return y[:, 1:3].as_strided((2, 2), (4, 1), 1), turned.as_strided((2, 2), (4, 1), 1) + 1


def channels_last(self: Any, x: Tensor) -> Tensor:
    return torch.relu(self.conv(x)) + 1


def permuted(x: Tensor) -> tuple[Tensor, ...]:
    return torch.relu(x.permute(2, 0, 1)), x.transpose(0, 2).contiguous() + 1


# --- structure -----------------------------------------------------------------------------------


def breaks(x: Tensor) -> Tensor:
    y = torch.relu(x) * 3
    torch._dynamo.graph_break()
    return torch.tanh(y) + 1


def prints_between(x: Tensor) -> Tensor:
    y = x * 3
    if y.sum() > 0:
        return torch.tanh(y)
    return torch.exp(y)


def named(x: Tensor, *, scale: float, shift: Tensor | None = None) -> Tensor:
    y = torch.relu(x) * scale
    return y if shift is None else y + shift


def answers(x: Tensor) -> Answer:
    return Answer(torch.softmax(x, -1), None)


def outputs(x: Tensor) -> Output:
    return Output(torch.relu(x) * 2)


def in_a_dictionary(x: Tensor) -> dict[str, Any]:
    return {"scores": torch.sigmoid(x) * 2, "loss": None, "size": x.shape[0], "deep": [x, (x + 1,)]}


def inverts(x: Tensor) -> Tensor:
    y = torch.relu(x @ x.t()) + torch.eye(4) * 9
    return torch.tanh(torch.linalg.inv(y) @ x) * 2


def complex_inside(x: Tensor) -> Tensor:
    return torch.fft.fft(torch.relu(x) + 1).abs() * 2


def complex_ends(z: Tensor, x: Tensor) -> tuple[Tensor, ...]:
    turned = torch.polar(torch.relu(x), x)[:, None] * z
    return turned, turned.t(), turned.imag, z.real + turned.abs()


def complex_unknown(x: Tensor) -> Tensor:
    z = torch.complex(torch.relu(x), x * 2)
    return (torch.acos(z) * torch.log1p(z)).abs() + torch.var_mean(z)[0]


def random_between(x: Tensor) -> tuple[Tensor, ...]:
    waits = torch.rand_like(torch.relu(x) + 1)
    return waits, torch.rand(4, 5) * x, torch.rand(3)


def only_views(x: Tensor) -> Tensor:
    return x.t()[1:].unsqueeze(0)


def constants_only(x: Tensor) -> tuple[Tensor, ...]:
    return torch.arange(5) * 2, torch.ones(3, 2), x * 2


def integers(x: Tensor) -> tuple[Tensor, ...]:
    i = torch.argsort(x, -1)
    return i, torch.gather(x, 1, i), x.argmax(), (x > 0).sum()


def item(x: Tensor) -> Tensor:
    return x * float(x.shape[0]) + torch.relu(x).sum().item()


def finds(x: Tensor) -> tuple[Tensor, Tensor]:
    y = torch.relu(x) + 1
    return torch.nonzero(y > 1), y * 2


def literals(x: Tensor) -> tuple[Tensor, Tensor]:
    y = torch.relu(x) * torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0])
    y[y > 1] = 0.0
    return y, torch.tensor(3)


def no_elements(x: Tensor) -> tuple[Tensor, ...]:
    return x[:0] * 2, torch.cat([x[:0], x]) + 1


def scalar(x: Tensor) -> tuple[Tensor, ...]:
    y = x.mean()
    return y, y.reshape(1, 1) * 2


def not_finite(x: Tensor) -> tuple[Tensor, ...]:
    least, number = torch.full_like(x, -torch.inf), torch.full_like(x, torch.nan)
    return torch.maximum(x, least) * 2, torch.where(x > 0, x, number)


def half(x: Tensor) -> tuple[Tensor, ...]:
    y = x.to(torch.float16) * 2
    return y, y.float() + 1


def bfloat16(self: Any, x: Tensor) -> Tensor:
    return torch.relu(self.linear(x.to(torch.bfloat16))).float()


def under_autocast(self: Any, x: Tensor) -> Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        y = self.linear(x)
    return torch.relu(y.float()) * 2


def attention(self: Any, x: Tensor) -> Tensor:
    q, k, v = self.linear(x).view(2, 6, 3, 2, 4).permute(2, 0, 3, 1, 4)
    out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return out.transpose(1, 2).reshape(2, 6, 8)


def doubles(module: nn.Module, args: Any, output: Tensor) -> Tensor:
    return output * 2


def attends(self: Any, query: Tensor, key: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(query, self.linear(key), key)


def change_weights(model: Any) -> None:
    """In the ways that people do: in place, behind PyTorch's back; by loading; by new memory."""
    with torch.no_grad():
        weight = model.linear.weight
        if weight.mean() > 500:
            weight.data = torch.ones_like(weight)
        elif weight.mean() > 50:
            model.load_state_dict({k: v + 1000 for k, v in model.state_dict().items()})
        else:
            weight.data.add_(100)


def toggle_training(model: Any) -> None:
    model.train(not model.training)


# --- networks ------------------------------------------------------------------------------------


class TransformerBlock(nn.Module):
    """An embedding, attention and two products, as in a language model."""

    def __init__(self, width: int = 16, heads: int = 2) -> None:
        super().__init__()
        self.heads = heads
        self.embedding = nn.Embedding(11, width)
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.feed = nn.Sequential(nn.Linear(width, 32), nn.GELU(), nn.Linear(32, width))

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        batch, length, width = x.shape
        qkv = self.qkv(self.norms[0](x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.feed(self.norms[1](x))


class ResidualBlock(nn.Module):
    """Two convolutions with batch norms and what they skip, a pooling and a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 4, 3, padding=1)
        self.second = nn.Conv2d(4, 4, 3, padding=1, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(4), nn.BatchNorm2d(4)])
        self.classes = nn.Linear(4, 5)

    def forward(self, image: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.norms[0](self.first(image))), 2)
        x = F.relu(self.norms[1](self.second(x)) + x)
        return self.classes(F.adaptive_avg_pool2d(x, 1).flatten(1))


class Recurrent(nn.Module):
    """An LSTM cell in a loop."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(6, 8)

    def forward(self, steps: Tensor) -> Tensor:
        hidden = memory = torch.zeros(steps.shape[1], 8)
        for step in steps:
            hidden, memory = self.cell(step, (hidden, memory))
        return hidden


def perceptron() -> nn.Module:
    """Two layers with a batch norm and dropout between them."""
    norm, drop = nn.BatchNorm1d(8), nn.Dropout(0.3)
    return nn.Sequential(nn.Linear(6, 8), norm, nn.ReLU(), drop, nn.Linear(8, 4))
