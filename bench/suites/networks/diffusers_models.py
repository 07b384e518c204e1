"""Models of ``diffusers``, as functions of tensors alone."""

from __future__ import annotations

from collections.abc import Callable

import torch
from diffusers import AutoencoderKL, UNet2DConditionModel
from diffusers.models.transformers.transformer_flux import (
    FluxSingleTransformerBlock,
    FluxTransformerBlock,
)
from torch import Tensor, nn

_FLUX = (3072, 24, 128)  # channels, heads, channels of a head


class _FluxBlock(nn.Module):
    """A block of FLUX.1's transformer: images and text side by side."""

    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        self.block = block

    def forward(
        self, image: Tensor, text: Tensor, time: Tensor, cos: Tensor, sin: Tensor
    ) -> Tensor:
        """Both streams, (batch, tokens, channels) each, for a time and angles of positions."""
        streams = {"hidden_states": image, "encoder_hidden_states": text, "temb": time}
        return self.block(**streams, image_rotary_emb=(cos, sin))


class _UNet(nn.Module):
    """The UNet of Stable Diffusion XL, at one step in time and for one size of images."""

    def __init__(self) -> None:
        super().__init__()
        self.unet = UNet2DConditionModel(
            sample_size=128,
            block_out_channels=(320, 640, 1280),
            down_block_types=("DownBlock2D", *("CrossAttnDownBlock2D",) * 2),
            up_block_types=(*("CrossAttnUpBlock2D",) * 2, "UpBlock2D"),
            transformer_layers_per_block=(1, 2, 10),
            attention_head_dim=(5, 10, 20),
            cross_attention_dim=2048,
            use_linear_projection=True,
            addition_embed_type="text_time",
            addition_time_embed_dim=256,
            projection_class_embeddings_input_dim=2816,
        )
        sizes = torch.tensor([1024.0, 1024.0, 0.0, 0.0, 1024.0, 1024.0])
        self.register_buffer("sizes", sizes)
        self.register_buffer("time", torch.tensor(500))

    def forward(self, latents: Tensor, text: Tensor, pooled: Tensor) -> Tensor:
        """Noise in the latents, (batch, 4, side, side), given the text's states."""
        added = {"text_embeds": pooled, "time_ids": self.sizes.expand(len(latents), -1)}
        own = {"added_cond_kwargs": added, "return_dict": False}
        noise: Tensor = self.unet(latents, self.time, text, **own)[0]
        return noise


class _Decoder(nn.Module):
    """What makes pixels of the latents of Stable Diffusion XL."""

    def __init__(self) -> None:
        super().__init__()
        channels = (128, 256, 512, 512)
        self.both = AutoencoderKL(
            down_block_types=("DownEncoderBlock2D",) * len(channels),
            up_block_types=("UpDecoderBlock2D",) * len(channels),
            block_out_channels=channels,
            layers_per_block=2,
            sample_size=1024,
        )

    def forward(self, latents: Tensor) -> Tensor:
        """(batch, 4, side, side) to (batch, 3, 8 * side, 8 * side)."""
        pixels: Tensor = self.both.decode(latents, return_dict=False)[0]
        return pixels


MODELS: dict[str, Callable[[], nn.Module]] = {
    "flux-single": lambda: _FluxBlock(FluxSingleTransformerBlock(*_FLUX)).eval(),
    "flux-double": lambda: _FluxBlock(FluxTransformerBlock(*_FLUX)).eval(),
    "sdxl-unet": lambda: _UNet().eval(),
    "sdxl-decoder": lambda: _Decoder().eval(),
}
"""Makes each model, in float32, in evaluation mode."""
