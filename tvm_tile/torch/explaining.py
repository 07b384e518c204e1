"""Report on a model behind ``torch.compile`` with this backend."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import fx

from tvm_tile.torch.backend import compiled
from tvm_tile.torch.options import BackendOptions
from tvm_tile.torch.report import Explanation, GraphReport


def explain(
    module: Callable[..., Any],
    *args: Any,
    options: Mapping[str, Any] | None = None,
    **kwargs: Any,
) -> Explanation:
    """Call a model as ``torch.compile`` would have it and tell what was compiled and what was not.

    >>> print(tvm_tile.torch.explain(model, x, options={"device": "emulated"}))  # doctest: +SKIP

    Args:
        module: a module or a function.
        args: arguments of the call, which takes place, with all its effects; so are ``kwargs``.
        options: options of the backend; see :func:`tvm_tile.torch.tvm_tile`.

    Returns:
        Per graph what was compiled, what PyTorch runs, and why. A graph of gradients is among them
        where gradients are enabled, as far as PyTorch makes it before it is needed.

    Raises:
        OptionError: an option is unknown or out of its range. And what the model itself raises.
    """
    chosen = BackendOptions.of(options)
    reports: list[GraphReport] = []

    def backend(graph_module: fx.GraphModule, example_inputs: Sequence[Any]) -> Any:
        return compiled(graph_module, example_inputs, chosen, reports.append)

    torch.compile(module, backend=backend)(*args, **kwargs)
    return Explanation(tuple(reports))
