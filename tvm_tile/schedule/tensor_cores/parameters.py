"""The parameters of a function that is written instruction by instruction."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tvm.tirx.script import builder as ib


def declare(params: Iterable[Any]) -> dict[str, Any]:
    """Declare the parameters that callers pass; name of each -> its buffer here."""
    return {str(param.name): _declared(param) for param in params}


def _declared(param: Any) -> Any:
    shape = tuple(int(extent) for extent in param.ty.shape)
    return ib.arg(str(param.name), ib.buffer(shape, str(param.ty.dtype)))
