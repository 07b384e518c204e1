"""A call of a Relay operator that gives only some of its attributes."""

from __future__ import annotations

from typing import Any

from relay_operators import run

from tvm_tile.frontend.relay.attributes import completed


def call(name: str, *arguments: Any, **attributes: Any) -> Any:
    """What an operator makes of arrays, its other attributes at their defaults."""
    return run(name, *arguments, **completed(name, attributes))
