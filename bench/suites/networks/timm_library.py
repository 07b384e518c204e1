"""Image classifiers of the timm library, also where torchvision is missing."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn

_TORCHVISION = (
    "torchvision",
    *("torchvision.datasets", "torchvision.models", "torchvision.models.feature_extraction"),
    *("torchvision.ops", "torchvision.ops.misc"),
    *("torchvision.transforms", "torchvision.transforms.functional"),
)


def classifier(name: str, **options: Any) -> nn.Module:
    """A classifier (B, 3, size, size) -> (B, 1000) with timm's own random weights."""
    with _without_torchvision():
        import timm
    return timm.create_model(name, pretrained=False, **options)


@contextmanager
def _without_torchvision() -> Iterator[None]:
    """Let timm import where torchvision is missing: the models use none of it."""
    if "timm" in sys.modules or importlib.util.find_spec("torchvision") is not None:
        yield
        return
    for name in _TORCHVISION:
        sys.modules[name] = _Placeholder(name)
    try:
        yield
    finally:
        for name in _TORCHVISION:
            del sys.modules[name]


class _AnyAttribute(type):
    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _AnyAttribute(name, (), {})


class _Placeholder(types.ModuleType):
    """A module in which every name is an empty class."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__: list[str] = []
        self.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=True)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return sys.modules.get(f"{self.__name__}.{name}") or _AnyAttribute(name, (), {})
