"""Parameters of PyTorch modules in JAX, and products without TF32."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


def jax_array(tensor: torch.Tensor) -> Any:
    """A tensor from any device as a JAX array."""
    import jax.numpy as jnp

    return jnp.asarray(tensor.detach().cpu().numpy())


def jax_weight(layer: nn.Linear) -> Any:
    """A layer's weights as (inputs, outputs)."""
    return jax_array(layer.weight.T)


def exact_matmul(left: Any, right: Any) -> Any:
    """A product in the operands' own precision: by default JAX uses TF32 where the GPU can."""
    import jax
    import jax.numpy as jnp

    return jnp.matmul(left, right, precision=jax.lax.Precision.HIGHEST)
