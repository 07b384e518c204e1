"""DeepSpeech 2, speech recognition."""

from __future__ import annotations

import torch
from torch import nn

from bench.suites.networks.lstm import StackedLSTM, VendorLSTM


class DeepSpeech2(nn.Module):
    """Spectrograms (B, 1, frames, features) to logits (steps * B, classes).

    Amodei et al., "Deep Speech 2: End-to-End Speech Recognition in English and Mandarin", 2016,
    in the form that Rammer measured: two convolutions, which leave a quarter of the frames,
    unidirectional LSTMs, a batch norm and a linear layer.
    """

    def __init__(self, features: int, filters: int, layers: int, hidden: int, classes: int) -> None:
        super().__init__()
        self.convolutions = nn.Sequential(
            nn.Conv2d(1, filters, (41, 11), stride=(2, 2), padding=(20, 5), bias=False),
            *(nn.ReLU6(), nn.BatchNorm2d(filters)),
            nn.Conv2d(filters, filters, (21, 11), stride=(2, 1), padding=(10, 5), bias=False),
            *(nn.ReLU6(), nn.BatchNorm2d(filters)),
        )
        self.recurrent: nn.Module = StackedLSTM(layers, filters * ((features + 1) // 2), hidden)
        self.norm = nn.BatchNorm1d(hidden)
        self.classify = nn.Linear(hidden, classes)

    def forward(self, spectrogram: torch.Tensor) -> torch.Tensor:
        steps = self.convolutions(spectrogram).permute(2, 0, 3, 1).flatten(2)
        return self.classify(self.norm(self.recurrent(steps).flatten(0, 1)))


def vendor_deepspeech2(module: DeepSpeech2) -> DeepSpeech2:
    """The same with cuDNN's LSTM in place of the cells; changes the module itself."""
    assert isinstance(module.recurrent, StackedLSTM)
    module.recurrent = VendorLSTM(module.recurrent)
    return module
