"""Entries of one model, such as a prompt and a step: their weights and state are in common."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from tvm_tile.errors import InputError, SavedModelError
from tvm_tile.errors.closest import did_you_mean
from tvm_tile.graph.signature import State
from tvm_tile.report.detail import Detail, Sort
from tvm_tile.runtime import artifact
from tvm_tile.runtime.held import HeldMemory
from tvm_tile.runtime.manifest import WHOLE, SavedModel
from tvm_tile.runtime.model import CompiledModel
from tvm_tile.runtime.state import Kept, ModelState


class CompiledEntries(Mapping[str, CompiledModel]):
    """The entries of a model, each by its name: ``entries["decode"](token)``.

    On the device each constant is there once, whichever entries read it, and so is each tensor of
    the state, known by its name in the source: what one entry writes, the others find. Calls of all
    entries run one after another.

    Args:
        models: names -> entries, one at least, for one device.
        held: state and constants that they share on their device.
    """

    def __init__(self, models: Mapping[str, CompiledModel], held: HeldMemory) -> None:
        self._models = dict(models)
        self._held = held

    @classmethod
    def load(cls, path: str | Path, *, key: str | Path | None = None) -> CompiledEntries:
        """Load what :meth:`save` wrote; args and errors are those of :func:`tvm_tile.load`.

        Raises:
            SavedModelError: also where the file holds a single model.
        """
        held = HeldMemory()
        models = _read(path, key, held)
        if WHOLE in models:
            raise SavedModelError(
                "a saved model of several entries", f"{path} has one", "use tvm_tile.load"
            )
        return cls(models, held)

    def __getitem__(self, name: str) -> CompiledModel:
        if name not in self._models:
            raise InputError(
                f"the model's entries: {', '.join(self._models)}",
                repr(name),
                did_you_mean(name, self._models, "name one of these"),
            )
        return self._models[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._models)

    def __len__(self) -> int:
        return len(self._models)

    @property
    def state(self) -> ModelState:
        """State that all entries share; see :attr:`CompiledModel.state`.

        Raises:
            DeviceError: the model's device is not present.
        """
        first = next(iter(self._models.values()))
        with first.running():
            loaded = first.loaded()
            loaded.device.sync()
            return ModelState(Kept(loaded, tuple(self._all_state()), self._held), first.running)

    def reset(self) -> None:
        """Give the state the values that it had when the model was compiled, or saved."""
        for model in self._models.values():
            model.reset()

    def explain(self, detail: Detail = "summary", *, sort: Sort = "time") -> str:
        """Text of each entry's ``explain()``, and the number of bytes of constants.

        Args and errors are those of :meth:`CompiledModel.explain`.
        """
        told = {name: model.explain(detail, sort=sort) for name, model in self._models.items()}
        every = [f"{name}:\n{text}" for name, text in told.items()]
        return "\n\n".join([*every, self._describe_constants()])

    def save(self, path: str | Path, *, key: str | Path | None = None, state: bool = False) -> None:
        """Write all entries to one ``.tvmtile`` file, as :meth:`CompiledModel.save` does.

        Args and errors are those of that method.
        """
        artifact.write(saved_of(self._models, state=state), Path(path), key)

    def __repr__(self) -> str:
        return f"CompiledEntries({', '.join(f'{n}: {m!r}' for n, m in self._models.items())})"

    def _all_state(self) -> Iterator[State]:
        """State of all entries, each tensor once."""
        every = (one for model in self._models.values() for one in model.effects.state)
        yield from {one.signature.name: one for one in every}.values()

    def _describe_constants(self) -> str:
        """Words for the bytes of constants, and those that sharing saves."""
        taken = [set(model.program.constants) for model in self._models.values()]
        whole = sum(len(constant.data) for constant in set().union(*taken))
        twice = sum(len(constant.data) for one in taken for constant in one) - whole
        return f"constants: {whole / 1e6:.2f} MB, {twice / 1e6:.2f} MB less than apart"


def saved_of(models: Mapping[str, CompiledModel], *, state: bool = False) -> SavedModel:
    """What a file holds of entries; see :meth:`CompiledModel.save`."""
    saved = {name: model.saved_entry(state=state) for name, model in models.items()}
    return SavedModel(next(iter(models.values())).device_name, saved)


def load(path: str | Path, *, key: str | Path | None = None) -> CompiledModel:
    """Load a model that :meth:`CompiledModel.save` wrote; no compiler is needed.

    **A model is native code, which the first call runs with all rights of this process: load only
    files of people you trust.** The sums in the file, which are checked, find damage; whoever means
    harm can recompute them. With a ``key``, only what its owner has signed is loaded.

    Args:
        path: the ``.tvmtile`` file.
        key: a PEM file with the Ed25519 public key of whoever must have signed the model, with
            ``save(path, key=...)`` or ``tvm-tile sign``; by default nobody need have.

    Returns:
        The model, which is loaded onto its device by its first call.

    Raises:
        SavedModelError: the file is missing, truncated, changed, from versions that do not go with
            the installed ones, or not signed with the other half of ``key``; or it holds several
            entries, for which there is :meth:`CompiledEntries.load`.
    """
    models = _read(path, key, HeldMemory())
    if WHOLE not in models:
        raise SavedModelError(
            "a saved model of one entry",
            f"{path} has the entries {', '.join(models)}",
            "load them with tvm_tile.CompiledEntries.load",
        )
    return models[WHOLE]


def _read(path: str | Path, key: str | Path | None, held: HeldMemory) -> dict[str, CompiledModel]:
    """The models of a saved file, which share ``held``."""
    if not isinstance(path, (str, os.PathLike)) or "\0" in str(path):
        raise SavedModelError("a saved model is given by its path", repr(path), "pass the path")
    return models_of(artifact.read(Path(path), key), held)


def models_of(saved: SavedModel, held: HeldMemory) -> dict[str, CompiledModel]:
    """The models in a saved file, by name, which share ``held``."""
    return {
        name: CompiledModel(
            one.program,
            saved.device_name,
            one.inputs,
            one.outputs,
            one.report,
            effects=one.effects,
            held=held,
        )
        for name, one in saved.entries.items()
    }
