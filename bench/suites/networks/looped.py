"""Cocktailer's networks with PyTorch's loops and branches instead of Python's.

They export whole: what traces them sees ``scan``, ``while_loop`` and ``cond``, not the iterations
of one input.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.nn import functional as F

from bench.suites.networks.blockdrop import BlockDrop
from bench.suites.networks.greedy_decoder import END, START, GreedyDecoder
from bench.suites.networks.kv_attention import KVAttention
from bench.suites.networks.lstm import LastState, StackedLSTM
from bench.suites.networks.nasrnn import NASRNN
from bench.suites.networks.skipnet import SkipNet


def looped(module: nn.Module) -> nn.Module | None:
    """The same function of the same inputs, with the module's weights; None where PyTorch has no
    word for it, as for recursion.

    Of BlockDrop and SkipNet, ``forward`` also takes numbers that are added to what decides about
    each block, so that a caller can say which ones run.
    """
    kinds: dict[type[nn.Module], type[nn.Module]] = {
        LastState: _LSTM,
        NASRNN: _NASRNN,
        KVAttention: _KVAttention,
        GreedyDecoder: _GreedyDecoder,
        BlockDrop: _BlockDrop,
        SkipNet: _SkipNet,
    }
    kind = kinds.get(type(module))
    return None if kind is None else kind(module).eval()


class _Looped(nn.Module):
    def __init__(self, module: Any) -> None:
        super().__init__()
        self.module = module


class _LSTM(_Looped):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        sequence = self.module.sequence
        assert isinstance(sequence, StackedLSTM)
        zeros = x.new_zeros(x.shape[1], sequence.hidden)

        def step(states: Any, value: torch.Tensor) -> Any:
            new = []
            for cell, (h, c) in zip(sequence.cells, states, strict=True):
                h, c = cell(value, h, c)
                new.append((h, c))
                value = h
            return new, ()

        first = [(zeros + 0, zeros + 0) for _ in sequence.cells]
        states, _ = scan(step, first, x)
        return states[-1][0]


class _NASRNN(_Looped):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        zeros = x.new_zeros(x.shape[1], self.module.hidden)

        def step(state: Any, value: torch.Tensor) -> Any:
            return self.module.step(value, *state), ()

        (cell, memory), _ = scan(step, (zeros, zeros + 0), x)
        return cell + memory


class _KVAttention(_Looped):
    def forward(self, x: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> Any:
        own = self.module
        missing = (0, 0, 0, own.length - own.start)

        def body(position: torch.Tensor, x: Any, keys: Any, values: Any) -> Any:
            place = position.reshape(1)
            keys = keys.index_copy(2, place, x @ own.key)
            values = values.index_copy(2, place, x @ own.value)
            scores = (x @ own.query) @ keys.transpose(2, 3) * own.scale
            return position + 1, scores.softmax(-1) @ values @ own.output, keys, values

        start = torch.full((), own.start, device=x.device)
        state = start, x + 0, F.pad(keys, missing), F.pad(values, missing)
        _, x, keys, values = while_loop(lambda position, *_: position < own.length, body, state)
        return keys, values, x


class _GreedyDecoder(_Looped):
    def forward(self, h: torch.Tensor, c: torch.Tensor) -> Any:
        own, batch = self.module, h.shape[0]
        words = torch.full((own.max_length, batch), END, dtype=torch.int64, device=h.device)
        word = torch.full((batch,), START, dtype=torch.int64, device=h.device)

        def goes_on(step: Any, word: Any, words: Any, h: Any, c: Any) -> Any:
            return (word.max() > END) & (step < own.max_length)

        def body(step: Any, word: Any, words: Any, h: Any, c: Any) -> Any:
            h, c = own.cell(own.embedding(word), h, c)
            steered = torch.index_select(own.steering, 0, step.reshape(1)).squeeze(0)
            word = (own.output(h) + steered).argmax(1)
            words = words.index_copy(0, step.reshape(1), word[None])
            return step + 1, word, words, h, c

        step = torch.zeros((), dtype=torch.int64, device=h.device)
        state = step, word, words, h + 0, c + 0
        *_, words, h, _ = while_loop(goes_on, body, state)
        return words, h


class _BlockDrop(_Looped):
    def forward(self, image: torch.Tensor, shift: torch.Tensor | None = None) -> torch.Tensor:
        own = self.module
        logits = own.policy(image)
        wanted = ((logits if shift is None else logits + shift) > 0).to(image.dtype)
        x = own.network.stem(image)
        pairs = zip(own.network.blocks, own.network.shortcuts, strict=True)
        for action, (block, shortcut) in zip(wanted.unbind(1), pairs, strict=True):
            mask = action.reshape(-1, 1, 1, 1)
            x = _unless_none(action.sum() == 0, block, x, shortcut(x), mask)
        return own.network.classify(x.mean((2, 3)))


class _SkipNet(_Looped):
    def forward(self, image: torch.Tensor, shift: torch.Tensor | None = None) -> torch.Tensor:
        own = self.module
        x = own.stem(image)
        x = torch.relu(own.blocks[0](x) + own.shortcuts[0](x))
        h = c = x.new_zeros(x.shape[0], own.gate.state.in_features)
        parts = zip(own.features, own.blocks[1:], own.shortcuts[1:], strict=False)
        for number, (feature, block, shortcut) in enumerate(parts):
            h, c = own.gate(feature(x.mean((2, 3))), h, c)
            logit = own.open(h) if shift is None else own.open(h) + shift[number]
            mask = (logit > 0).to(x.dtype).reshape(-1, 1, 1, 1)
            passed = shortcut(x)
            x = _unless_none(mask.sum() == 0, block, x, passed, mask)
        return own.classify(x.mean((2, 3)))


def _unless_none(
    is_none: torch.Tensor, block: nn.Module, x: Any, passed: torch.Tensor, mask: torch.Tensor
) -> Any:
    """A residual block for the images that want it, unless none does."""

    def some(x: torch.Tensor, passed: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return torch.relu(block(x) + passed) * mask + passed * (1 - mask)

    return torch.cond(is_none, lambda x, passed, mask: passed.clone(), some, (x, passed, mask))
