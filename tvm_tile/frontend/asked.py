"""A model, and what its user says of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from tvm_tile.errors.arguments import check_examples, checked_sizes
from tvm_tile.frontend.digest import digest_of
from tvm_tile.frontend.read import is_instance, read_model
from tvm_tile.frontend.relay.importing import Params
from tvm_tile.graph.open_extents import Open


class Asked:
    """A model that is to be compiled, read when it is needed, and once.

    Args:
        model: as of :func:`tvm_tile.compile`, as are all others.
        inputs: sizes of its inputs.
        example_inputs: arguments of a module's ``forward``.
        params: values of a Relay program's parameters.
        weights: number of last inputs that are weights.

    Raises:
        ModelError: ``inputs`` or ``example_inputs`` are of no form that they can have.
    """

    def __init__(
        self,
        model: Any,
        inputs: Mapping[str, Sequence[int | Open]] | None = None,
        example_inputs: Sequence[Any] | Mapping[str, Any] | None = None,
        params: Params | None = None,
        weights: int = 0,
    ) -> None:
        check_examples(example_inputs)
        self.model = model
        self.sizes = checked_sizes(inputs, Open)
        self.example_inputs = example_inputs
        self.params = params
        self.weights = weights

    @cached_property
    def source(self) -> Any:
        """The model as :func:`read_model` returns it; a module with open extents itself, as it is
        exported for each of them."""
        if self._is_open_module:
            return self.model
        return read_model(self.model, self.example_inputs, self.params)

    def digest(self) -> bytes | None:
        """A sum of the model as it is now, and of all that is said of it; ``None`` where there is
        none."""
        if self._is_open_module:
            return None
        model = self.source if self._is_module else self.model
        found = digest_of(model, self.params)
        said = repr((sorted(self.sizes.items()), self.weights)).encode()
        return None if found is None else found + said

    @property
    def _is_module(self) -> bool:
        return is_instance(self.model, "torch.nn", "Module")

    @property
    def _is_open_module(self) -> bool:
        extents = (extent for size in self.sizes.values() for extent in size)
        return self._is_module and any(isinstance(extent, Open) for extent in extents)
