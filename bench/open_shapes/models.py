"""Models with an extent that is open, and how each is padded."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from bench.suites.model_suite import TOLERANCES
from bench.workload import Input

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class OpenModel:
    """A model of one input, an extent of which is open.

    Attributes:
        name: of the model.
        extent: what is open, for people, such as ``"tokens"``.
        make: builds it with random weights, in float32.
        argument: the name of its input.
        input: at an extent.
        axis: of the input, and of the output, that is open.
        low: the least extent.
        high: the greatest extent.
        dtype: of weights and activations.
        masked: makes of the module one that takes a mask besides, True where an element of the open
            axis is one of the input's; None where what is padded changes nothing else.
    """

    name: str
    extent: str
    make: Callable[[], torch.nn.Module]
    argument: str
    input: Callable[[int], Input]
    axis: int
    low: int
    high: int
    dtype: str = "float16"
    masked: Callable[[torch.nn.Module], torch.nn.Module] | None = None

    @property
    def tolerance(self) -> float:
        """The largest relative error that counts as right."""
        return TOLERANCES[self.dtype]

    def padded_extent(self, extent: int) -> int:
        """The next power of two, or the greatest extent if that is less."""
        return int(min(self.high, 1 << (extent - 1).bit_length()))

    def padded_extents(self) -> tuple[int, ...]:
        """All that inputs are padded to, in ascending order."""
        return tuple(sorted({self.padded_extent(n) for n in range(self.low, self.high + 1)}))

    def mask_input(self, extent: int) -> Input:
        """The mask that ``masked`` modules take, for people's eyes all True."""
        return Input((1, 1, 1, extent), "bool", value=1)


def find_model(name: str) -> OpenModel:
    """A model by its name here, or any other as ``module:attribute``.

    Raises:
        KeyError: no such name.
    """
    module, _, attribute = name.partition(":")
    if not attribute:
        return MODELS[name]
    found: OpenModel = getattr(importlib.import_module(module), attribute)
    return found


@cache
def module_of(name: str, *, is_masked: bool = False) -> Any:
    """The module of a model, in evaluation mode and of its type, the same at each call."""
    import torch

    from bench.suites.networks.seeded import seeded

    model = find_model(name)
    if is_masked:
        assert model.masked is not None, name
        return model.masked(module_of(name)).eval()
    return seeded(model.make).to(getattr(torch, model.dtype))


def _bert() -> torch.nn.Module:
    from bench.suites.networks.bert import Bert

    return Bert(12, 768, 12, 3072, 30522)


def _masked_bert(module: torch.nn.Module) -> torch.nn.Module:
    from bench.suites.networks.masked_bert import MaskedBert

    return MaskedBert(module)


def _llama() -> torch.nn.Module:
    from bench.suites.networks.llama_prefill import LlamaPrefill

    return LlamaPrefill(2, 4096, 14336, 32, 8, 4096)


def _classifier(name: str) -> Callable[[], torch.nn.Module]:
    def make() -> torch.nn.Module:
        from bench.suites.networks.timm_library import classifier

        return classifier(name)

    return make


def _image(batch: int) -> Input:
    return Input((batch, 3, 224, 224), "float16")


def _tokens(count: int) -> Input:
    return Input((1, count), "int64", below=30522)


def _hidden(count: int) -> Input:
    return Input((1, count, 4096), "float16")


MODELS = {
    model.name: model
    for model in (
        OpenModel("bert_base", "tokens", _bert, "tokens", _tokens, 1, 2, 512, masked=_masked_bert),
        OpenModel(
            "vit_small", "batch", _classifier("vit_small_patch16_224"), "x", _image, 0, 1, 64
        ),
        OpenModel("resnet50", "batch", _classifier("resnet50"), "x", _image, 0, 1, 64),
        OpenModel("llama_prefill", "tokens", _llama, "hidden", _hidden, 1, 1, 4096),
    )
}
