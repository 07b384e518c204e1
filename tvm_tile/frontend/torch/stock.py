"""TVM's own converters, for the operators that ours do not cover yet. To be deleted."""

from __future__ import annotations

from typing import Any

from torch import fx
from tvm import relax
from tvm.relax.frontend.torch.exported_program_translator import ExportedProgramImporter

from tvm_tile.frontend.torch.convert import Converter

# Random ones that TVM makes identities or constants of, and those that are wrong.
_NEVER = frozenset(
    {
        *("bernoulli.p", "dropout.default", "native_dropout.default", "randn.default"),
        *("randn_like.default", "exponential.default", "cond"),
    }
)


class Stock(ExportedProgramImporter):
    """TVM's converters, writing with our builder."""

    @staticmethod
    def knows(operator: Any) -> bool:
        """Whether TVM has a converter of an operator."""
        name = operator.__name__
        return name not in _NEVER and name in _STOCK.convert_map

    @staticmethod
    def converter(
        node: fx.Node, builder: relax.BlockBuilder, values: dict[Any, Any]
    ) -> Converter | None:
        """TVM's converter of a node, in our form; ``None`` where it has none."""
        name = node.target.__name__
        if name not in _STOCK.convert_map:
            return None
        stock = Stock()
        if name in _NEVER or name not in stock.convert_map:
            return None
        stock.block_builder = builder
        stock.env = values

        def convert(emit: Any, **_: Any) -> Any:
            made = stock.convert_map[name](node)
            if isinstance(node.meta["val"], tuple | list):
                if isinstance(made, relax.Expr) and isinstance(made.ty, relax.TupleType):
                    return [relax.TupleGetItem(made, i) for i in range(len(made.ty.fields))]
                count = len(node.meta["val"])
                return [made, *[None] * (count - 1)] if isinstance(made, relax.Expr) else made
            if isinstance(made.ty, relax.TupleType):
                return relax.TupleGetItem(made, 0)
            return made

        return convert


_STOCK = Stock()
