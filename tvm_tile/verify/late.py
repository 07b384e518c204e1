"""Verification of models that came out of the cache, which are compiled again for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

from tvm_tile.errors import InputError
from tvm_tile.frontend.asked import Asked
from tvm_tile.report.verification import Verification
from tvm_tile.runtime import CompiledModel
from tvm_tile.runtime.explained import ModelVerifier
from tvm_tile.verify.model import weakly

CompileAll = Callable[[Mapping[str, Asked]], Mapping[str, CompiledModel]]
"""Compiles models that are asked for together."""


class CompiledAgain:
    """Models that are compiled when somebody verifies one of them, and not kept in memory until
    then.

    Args:
        asked: the models, by the names of entries.
        compile_all: compiles them.
    """

    def __init__(self, asked: Mapping[str, Asked], compile_all: CompileAll) -> None:
        self._models = {name: weakly(one.model) for name, one in asked.items()}
        self._said = {
            name: (one.sizes, one.example_inputs, one.params, one.weights)
            for name, one in asked.items()
        }
        self._compile_all = compile_all

    @cached_property
    def models(self) -> Mapping[str, CompiledModel]:
        """The compiled models, by name.

        Raises:
            InputError: nobody holds the model any more that one was compiled from.
        """
        models = {name: model() for name, model in self._models.items()}
        if any(model is None for model in models.values()):
            raise InputError(
                "a model that came out of the cache is verified beside what it was compiled from",
                "nobody holds that any more",
                "keep the model, or give its file",
            )
        asked = {name: Asked(models[name], *said) for name, said in self._said.items()}
        return self._compile_all(asked)


class LateVerifier:
    """The verifier of a model that is compiled again, once it is asked for anything.

    Args:
        name: the name of its entry.
        again: the models.
    """

    def __init__(self, name: str, again: CompiledAgain) -> None:
        self._name = name
        self._again = again

    def scripts(self) -> Mapping[str, str]:
        """The TensorIR of the kernels, by their names."""
        return self._verifier.scripts()

    def __call__(self, compiled: Any, inputs: Sequence[Any] | None = None) -> Verification:
        """Verify; see :meth:`tvm_tile.runtime.CompiledModel.verify`."""
        return self._verifier(compiled, inputs)

    @property
    def _verifier(self) -> ModelVerifier:
        verifier = self._again.models[self._name].verifier
        assert verifier is not None  # of what was compiled here
        return verifier
