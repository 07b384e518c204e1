"""Rammer's encoder and decoder of LSTMs."""

from __future__ import annotations

import torch
from torch import nn

from bench.suites.networks.lstm import Cell, vendor_lstm


class Seq2Seq(nn.Module):
    """A sequence (steps, B, hidden) to the decoder's last output (B, hidden).

    Every encoder layer runs over the whole sequence. The decoder starts from the cell state of
    the last one, and from zero states; each of its outputs is its next input.
    """

    def __init__(
        self, encoder_layers: int, decoder_layers: int, decoder_steps: int, hidden: int
    ) -> None:
        super().__init__()
        self.decoder_steps = decoder_steps
        self.encoder = nn.ModuleList(Cell(hidden, hidden) for _ in range(encoder_layers))
        self.decoder = nn.ModuleList(Cell(hidden, hidden) for _ in range(decoder_layers))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        zeros = torch.zeros_like(x[0])
        sequence = x.unbind(0)
        value = zeros
        for cell in self.encoder:
            h, c = zeros, zeros
            outputs = []
            for value in sequence:
                h, c = cell(value, h, c)
                outputs.append(h)
            sequence, value = outputs, c
        states = [(zeros, zeros) for _ in self.decoder]
        for _ in range(self.decoder_steps):
            for i, cell in enumerate(self.decoder):
                states[i] = cell(value, *states[i])
                value = states[i][0]
        return value


class VendorSeq2Seq(nn.Module):
    """A :class:`Seq2Seq` with cuDNN's LSTM, one step a call in the decoder."""

    def __init__(self, module: Seq2Seq) -> None:
        super().__init__()
        self.decoder_steps = module.decoder_steps
        self.encoder = vendor_lstm(list(module.encoder))
        self.decoder = vendor_lstm(list(module.decoder))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        _, (_, c) = self.encoder(x)
        value = c[-1:]
        zeros = x.new_zeros(self.decoder.num_layers, *x.shape[1:])
        states = (zeros, zeros)
        for _ in range(self.decoder_steps):
            value, states = self.decoder(value, states)
        return value[0]
