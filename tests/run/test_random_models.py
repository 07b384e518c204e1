"""Models with noise are right up to the draw: PyTorch, given the noise that was drawn, agrees."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import tvm_tile


class Telling(nn.Module):
    """A module that returns the normal numbers that it draws behind its result."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        drawn: list[Tensor] = []

        def told(draw: Callable[..., Tensor]) -> Callable[..., Tensor]:
            def draw_and_tell(*args: Any, **kwargs: Any) -> Tensor:
                drawn.append(draw(*args, **kwargs))
                return drawn[-1]

            return draw_and_tell

        functions = {"randn": told(torch.randn), "randn_like": told(torch.randn_like)}
        with mock.patch.multiple(torch, **functions):
            return self.module(*inputs), *drawn


def given_noise(module: nn.Module, inputs: tuple[Tensor, ...], noise: list[Tensor]) -> Tensor:
    """What PyTorch computes, where draws are these, in order."""
    left = iter(noise)

    def draw(*_: Any, **__: Any) -> Tensor:
        return next(left)

    with torch.no_grad(), mock.patch.multiple(torch, randn=draw, randn_like=draw):
        result: Tensor = module(*inputs)
    assert next(left, None) is None
    return result


def check(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
    """Two calls are right, each with noise of its own."""
    module.eval()
    model = tvm_tile.compile(Telling(module), "emulated", example_inputs=inputs)
    results = []
    for _ in range(2):
        found, *noise = model(*inputs)
        wanted = given_noise(module, inputs, noise)
        torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-4 * float(wanted.abs().max()))
        results.append(np.asarray(found))
        assert noise
        for drawn in noise:
            assert abs(float(drawn.std()) - 1) < 0.5
    assert (results[0] != results[1]).any()


class DiffusionStep(nn.Module):
    """A step of DDPM's sampling (Ho and others, 2020), its network a few layers."""

    def __init__(self) -> None:
        super().__init__()
        self.network = nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1),
            nn.GroupNorm(4, 16),
            nn.SiLU(),
            nn.Conv2d(16, 3, 3, padding=1),
        )
        self.register_buffer("betas", torch.linspace(1e-4, 0.02, 50))

    def forward(self, x: Tensor, step: Tensor) -> Tensor:
        beta = self.betas[step]
        left = torch.cumprod(1 - self.betas, 0)[step]
        mean = (x - beta / (1 - left).sqrt() * self.network(x)) / (1 - beta).sqrt()
        return mean + (step > 0) * beta.sqrt() * torch.randn_like(x)


def test_a_diffusion_step() -> None:
    torch.manual_seed(0)
    check(DiffusionStep(), (torch.randn(2, 3, 16, 16), torch.tensor(20)))


class Speech(nn.Module):
    """VITS of transformers, each character two frames long.

    How long they are the model itself computes, so that the length of its result is the data's.
    """

    def __init__(self) -> None:
        super().__init__()
        transformers = pytest.importorskip("transformers")
        config = transformers.VitsConfig(
            vocab_size=20,
            hidden_size=16,
            num_hidden_layers=2,
            num_attention_heads=2,
            ffn_dim=32,
            flow_size=16,
            spectrogram_bins=9,
            use_stochastic_duration_prediction=False,
            upsample_initial_channel=32,
            upsample_rates=[4, 4],
            upsample_kernel_sizes=[8, 8],
            resblock_kernel_sizes=[3],
            resblock_dilation_sizes=[[1, 3]],
            prior_encoder_num_flows=2,
            prior_encoder_num_wavenet_layers=2,
        )
        self.vits = transformers.VitsModel(config)

    def forward(self, ids: Tensor) -> Tensor:
        vits = self.vits
        mask = torch.ones(*ids.shape, 1)
        encoded = vits.text_encoder(input_ids=ids, padding_mask=mask, return_dict=True)
        means = encoded.prior_means.repeat_interleave(2, 1).transpose(1, 2)
        deviations = encoded.prior_log_variances.repeat_interleave(2, 1).transpose(1, 2).exp()
        latents = means + torch.randn_like(means) * deviations * vits.noise_scale
        frames = torch.ones(ids.shape[0], 1, means.shape[-1])
        return vits.decoder(vits.flow(latents, frames, None, reverse=True) * frames)


@pytest.mark.filterwarnings("ignore")
def test_speech_of_noise() -> None:
    torch.manual_seed(0)
    check(Speech(), (torch.arange(12)[None] % 20,))
