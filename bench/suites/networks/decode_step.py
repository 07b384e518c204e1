"""One step of a language model: a token and its position to logits and the next token."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import nn

_EXPERTS = "num_experts_per_tok"
_FRAMES = "max_source_positions"


class DecodeStep(nn.Module):
    """A decoder of transformers with a static cache, as its own export recipe makes it.

    ``forward`` takes tokens, (batch, 1) of int64, and one position, (1,) of int64, and returns
    logits, (batch, vocabulary), and the next tokens, (batch, 1): the first of the largest logits.
    It writes the tokens' keys and values into the cache at the position: a step of an earlier
    position may follow, and does what it did before.

    Args:
        model: the decoder, whose element type and device the cache takes over.
        batch: sequences.
        length: of the cache, in tokens.
    """

    def __init__(self, model: Any, batch: int, length: int) -> None:
        super().__init__()
        self.decoder = _decoder(model, batch, length)

    def forward(
        self, tokens: torch.Tensor, position: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        logits = self.decoder(input_ids=tokens, cache_position=position)[:, -1]
        return logits, logits.argmax(-1, keepdim=True)

    def cached(self) -> Iterator[torch.Tensor]:
        """Its keys and values."""
        for name, tensor in self.decoder.named_buffers(recurse=False):
            if tensor.is_floating_point():
                assert "_cache_" in name
                yield tensor

    def _apply(self, fn: Callable[[Any], Any], recurse: bool = True) -> DecodeStep:
        """Move the cache as well, which transformers holds beside the buffers that it is."""
        super()._apply(fn, recurse)
        for number, layer in enumerate(self.decoder.static_cache.layers):
            layer.keys = getattr(self.decoder, f"key_cache_{number}")
            layer.values = getattr(self.decoder, f"value_cache_{number}")
            layer.cumulative_length = getattr(self.decoder, f"cumulative_length_{number}")
            layer.device = layer.keys.device
        return self


class Prompt(nn.Module):
    """A decoder over several tokens, which follow one another from a position on.

    ``forward`` takes tokens, (1, tokens) of int64, and the first one's position, (1,) of int64, and
    returns what a step does: logits of the last one, (1, vocabulary), and the next token, (1, 1).

    Args:
        step: the decoder with its cache.
        tokens: of the prompt.
    """

    def __init__(self, step: DecodeStep, tokens: int) -> None:
        super().__init__()
        self.step = step
        self.register_buffer("places", torch.arange(tokens))

    def forward(
        self, tokens: torch.Tensor, position: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        found: tuple[torch.Tensor, torch.Tensor] = self.step(tokens, position + self.places)
        return found


class _Listener(nn.Module):
    """Whisper's decoder, the keys and values of what was heard being in a cache already."""

    def __init__(self, model: Any, batch: int, length: int) -> None:
        from transformers.cache_utils import StaticCache

        super().__init__()
        self.model, config = model, model.config
        heads = config.decoder_attention_heads
        size, dtype, device = config.d_model // heads, model.dtype, model.device
        self.static_cache = StaticCache(max_cache_len=length, config=config)
        self.static_cache.early_initialization(batch, heads, size, dtype, device)
        for number, layer in enumerate(self.static_cache.layers):
            self.register_buffer(f"key_cache_{number}", layer.keys)
            self.register_buffer(f"value_cache_{number}", layer.values)
            self.register_buffer(f"cumulative_length_{number}", layer.cumulative_length)
            for name in (f"heard_key_cache_{number}", f"heard_value_cache_{number}"):
                heard = (batch, heads, getattr(config, _FRAMES), size)
                self.register_buffer(name, torch.zeros(heard, dtype=dtype, device=device))

    def forward(self, input_ids: torch.Tensor, cache_position: torch.Tensor) -> torch.Tensor:
        from transformers.cache_utils import DynamicCache, EncoderDecoderCache

        heard = []
        for number, layer in enumerate(self.static_cache.layers):
            layer.cumulative_length.copy_(cache_position[0])
            names = (f"heard_key_cache_{number}", f"heard_value_cache_{number}")
            heard.append(tuple(getattr(self, name) for name in names))
        cache = EncoderDecoderCache(self.static_cache, DynamicCache(heard))
        for number in range(len(heard)):
            cache.is_updated[number] = True
        # Read nowhere, since keys and values are known; without them nothing would be.
        states = torch.zeros(
            (len(input_ids), 1, self.model.config.d_model),
            dtype=self.model.dtype,
            device=input_ids.device,
        )
        outputs = self.model(
            input_ids=input_ids, encoder_outputs=(states,), past_key_values=cache, use_cache=True
        )
        logits: torch.Tensor = outputs.logits
        return logits


def decode_step(
    kind: str, sizes: Mapping[str, Any], batch: int, length: int, dtype: torch.dtype, device: str
) -> DecodeStep:
    """A step with random weights, all drawn where and as they will be.

    Args:
        kind: the name of transformers' class of its configuration.
        sizes: of the configuration.
        batch: sequences.
        length: of the cache, all of whose rows are filled at random.
        dtype: of weights and cache.
        device: that they are made on.
    """
    import transformers

    with torch.random.fork_rng(), torch.device(device), torch.no_grad():
        torch.manual_seed(0)
        config = getattr(transformers, kind)(**sizes)
        if kind == "WhisperConfig":
            model = transformers.WhisperForCausalLM._from_config(config, dtype=dtype)
        else:
            extra = {"experts_implementation": "batched_mm"} if _EXPERTS in sizes else {}
            model = transformers.AutoModelForCausalLM.from_config(config, dtype=dtype, **extra)
        step = DecodeStep(model.eval().requires_grad_(False), batch, length)
        for tensor in step.cached():
            tensor.normal_()
    return step


def _decoder(model: Any, batch: int, length: int) -> nn.Module:
    if hasattr(model.config, _FRAMES):
        return _Listener(model, batch, length)
    import transformers
    from transformers.integrations.executorch import TorchExportableModuleWithStaticCache

    cache = {"batch_size": batch, "max_cache_len": length}
    model.generation_config = transformers.GenerationConfig(
        use_cache=True, cache_implementation="static", cache_config=cache
    )
    made: nn.Module = TorchExportableModuleWithStaticCache(
        model, batch_size=batch, max_cache_len=length
    )
    return made
