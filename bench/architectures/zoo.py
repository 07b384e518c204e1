"""Which architectures there are, and each as a module with inputs.

Those of timm are their family's smallest on small images; those of transformers have their own
configuration class with every width, depth and table made small. Nothing is downloaded.
"""

from __future__ import annotations

import functools
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

_TOKENS = 16
_IMAGE = 32  # of transformers' models
_TIMM_IMAGE = 64
_VOCABULARY = 90
_SIZED = "timm, of one image size"

# What a configuration of transformers may call its sizes -> the size that it gets here.
_SMALL: dict[str, int] = {
    **dict.fromkeys(("hidden_size", "d_model", "n_embd", "embed_dim", "dim"), 32),
    **dict.fromkeys(("num_hidden_layers", "num_layers", "n_layer", "n_layers"), 2),
    **dict.fromkeys(("encoder_layers", "decoder_layers"), 2),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads"), 4),
    **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 4),
    **dict.fromkeys(("intermediate_size", "ffn_dim", "d_ff", "n_inner", "hidden_dim"), 48),
    **dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim", "ffn_hidden_size"), 48),
    **dict.fromkeys(("max_position_embeddings", "n_positions"), 64),
    **dict.fromkeys(("head_dim", "d_kv", "patch_size"), 8),
    **{"vocab_size": 99, "num_key_value_heads": 2, "embedding_size": 16, "type_vocab_size": 2},
    **{"image_size": _IMAGE, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2},
}


@dataclass(frozen=True, slots=True)
class Architecture:
    """One architecture.

    Attributes:
        library: ``"timm"`` or ``"transformers"``.
        name: what the library calls it: a model of timm, a model type of transformers.
    """

    library: str
    name: str

    @property
    def key(self) -> str:
        return f"{self.library}/{self.name}"

    def build(self) -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
        """The module, in evaluation mode and with one tensor as its result, and its inputs."""
        from bench.suites.networks.seeded import seeded

        make = _from_timm if self.library == "timm" else _from_transformers
        # Some begin with zeros for weights, or with so small ones that only biases would be seen.
        return seeded(lambda: make(self.name), gain=1.0), (self._input(),)

    def _input(self) -> torch.Tensor:
        import torch

        generator = torch.Generator().manual_seed(1)
        if self.library == "transformers" and not _takes_images(self.name):
            # Not below 3: the first ones are special tokens, some of which hide what follows.
            return torch.randint(3, _VOCABULARY, (1, _TOKENS), generator=generator)
        extent = _IMAGE if self.library == "transformers" else _TIMM_IMAGE
        return torch.randn((1, 3, extent, extent), generator=generator)


def architectures() -> tuple[Architecture, ...]:
    """All of them."""
    names = _names()
    timm = [*names["timm"], *names[_SIZED]]
    return (
        *(Architecture("timm", name) for name in timm),
        *(Architecture("transformers", name) for name in names["transformers"]),
    )


@functools.cache
def _names() -> dict[str, list[str]]:
    return dict(json.loads((Path(__file__).parent / "names.json").read_text(encoding="utf-8")))


def _from_timm(name: str) -> torch.nn.Module:
    from bench.suites.networks.timm_library import classifier

    sized = {"img_size": _TIMM_IMAGE} if name in _names()[_SIZED] else {}
    return classifier(name, num_classes=10, **sized)


def _from_transformers(name: str) -> torch.nn.Module:
    import torch
    import transformers

    class First(torch.nn.Module):
        """The first of a model's results: its last hidden state."""

        def __init__(self, model: torch.nn.Module) -> None:
            super().__init__()
            self.model = model

        def forward(self, given: torch.Tensor) -> Any:
            return self.model(given, **unwanted, return_dict=False)[0]

    model = transformers.AutoModel.from_config(_configuration(name))
    has_cache = getattr(model.config, "use_cache", None) is not None
    unwanted = {"use_cache": False} if has_cache and not _takes_images(name) else {}
    return First(model)


def _configuration(name: str) -> Any:
    os.environ.setdefault("HF_HUB_OFFLINE", "1")  # configurations are made here, never fetched
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    kind = CONFIG_MAPPING[name]
    whole = kind()
    sizes = {
        option: size
        for option, size in _SMALL.items()
        if isinstance(getattr(whole, option, ""), int | None)
        and not isinstance(getattr(whole, option), bool)
    }
    return kind(**sizes)


def _takes_images(name: str) -> bool:
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING
    from transformers.models.auto.modeling_auto import MODEL_MAPPING

    return bool(MODEL_MAPPING[CONFIG_MAPPING[name]].main_input_name == "pixel_values")
