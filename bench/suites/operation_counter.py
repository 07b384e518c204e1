"""Counts what a module's forward pass computes and which parameters it reads."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry


class OperationCounter(TorchDispatchMode):
    """While active, counts every operator that runs; works on meta tensors too.

    Args:
        parameters: the tensors whose reading counts.

    Attributes:
        flops: of products, convolutions and attention; an FMA is two.
    """

    def __init__(self, parameters: Iterable[torch.Tensor]) -> None:
        super().__init__()
        self.flops = 0
        self._unread = {tensor.untyped_storage()._cdata: tensor for tensor in parameters}
        self._read = 0
        self._rows: dict[int, int] = {}
        self._tables: dict[int, torch.Tensor] = {}

    @property
    def bytes_read(self) -> int:
        """Bytes of the parameters that took part; of embeddings, of the rows looked up."""
        rows = sum(
            min(count, len(self._tables[key])) * self._tables[key][0].nbytes
            for key, count in self._rows.items()
        )
        return self._read + rows

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        formula = flop_registry.get(func._overloadpacket)
        if formula is not None:
            self.flops += formula(*args, **kwargs, out_val=out)
        if func._overloadpacket is torch.ops.aten.embedding:
            self._look_up(args[0], args[1].numel())
        elif not func.is_view:
            for leaf in tree_leaves((args, kwargs)):
                if isinstance(leaf, torch.Tensor):
                    read = self._unread.pop(leaf.untyped_storage()._cdata, None)
                    self._read += 0 if read is None else read.nbytes
        return out

    def _look_up(self, table: torch.Tensor, rows: int) -> None:
        key = table.untyped_storage()._cdata
        self._tables[key] = self._unread.get(key, table)
        self._rows[key] = self._rows.get(key, 0) + rows
