"""Predictions of many models for some devices: what they have in common is looked for once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

from tvm_tile.build.constants import ConstantPool
from tvm_tile.build.unbuilt import Unbuilt
from tvm_tile.compiling import Compiler, import_asked
from tvm_tile.device import Device
from tvm_tile.device.detect import resolve_device
from tvm_tile.errors import OptionError
from tvm_tile.frontend import Imported, Params
from tvm_tile.frontend.asked import Asked
from tvm_tile.graph.open_extents import Open
from tvm_tile.options import Options, checked_options, require_no_runs, with_options
from tvm_tile.passes import FirstChoices, matrix_dtypes
from tvm_tile.passes.ir.shared_steps import sharing_steps
from tvm_tile.report.shown import Report
from tvm_tile.report.stopwatch import Stopwatch
from tvm_tile.runtime import HeldMemory
from tvm_tile.stages.guarded import one_compilation
from tvm_tile.stages.opening import Opening

_KEYWORDS = "device", "inputs", "example_inputs", "params", "options"
"""What :func:`predict` takes beside options."""

_MOST_CHOICES = 4096  # for a device: some 100 KB each


class Oracle:
    """Tells what models would take on a GPU, or on several, one model after another.

    A search over models asks it for each candidate: kernels of layers that candidates have in
    common are chosen once, a model is imported once for all devices on which it is the same, and
    fused once as far as that depends on no device. Threads may share an oracle; their predictions
    take turns. One that is sent to another process (pickled) is for the same devices, and knows
    nothing there at first.

    Args:
        devices: device records, or whatever names one, as of :func:`tvm_tile.compile`; the GPU of
            this machine by default.
        options: how the models would be compiled; also by name, as of :func:`tvm_tile.compile`.

    Raises:
        UnknownDeviceError: there is no such device.
        OptionError: an option is unknown, or wants kernels to run; or two devices have one name.
    """

    def __init__(
        self,
        *devices: Any,
        options: Options | Mapping[str, Any] | None = None,
        **named: Any,
    ) -> None:
        self._options = checked_options(options, named, _KEYWORDS)
        require_no_runs(self._options)
        self._devices = tuple(resolve_device(device) for device in devices or ("auto",))
        _require_names(self._devices)
        records = [with_options(record, self._options) for record in self._devices]
        self._places = tuple(_Place(record, FirstChoices(record)) for record in records)

    def __reduce__(self) -> tuple[Any, ...]:
        return _oracle, (self._devices, self._options)

    def __call__(
        self,
        model: Any,
        *,
        inputs: Mapping[str, Sequence[int | Open]] | None = None,
        example_inputs: Sequence[Any] | Mapping[str, Any] | None = None,
        params: Params | None = None,
    ) -> Report:
        """The report of a model on the oracle's device, the first where it has several.

        Args and errors are those of :func:`tvm_tile.predict`.
        """
        return self._predict(Asked(model, inputs, example_inputs, params), self._places[:1])[0]

    def on_all(
        self,
        model: Any,
        *,
        inputs: Mapping[str, Sequence[int | Open]] | None = None,
        example_inputs: Sequence[Any] | Mapping[str, Any] | None = None,
        params: Params | None = None,
    ) -> dict[str, Report]:
        """The reports of a model on all of the oracle's devices, by their names.

        Args and errors are those of :func:`tvm_tile.predict`.
        """
        asked = Asked(model, inputs, example_inputs, params)
        found = self._predict(asked, self._places)
        return {report.device: report for report in found}

    def _predict(self, asked: Asked, places: Sequence[_Place]) -> list[Report]:
        """The reports of a model at some places, imported once for those that take it alike."""
        imported: dict[Any, tuple[Imported, Opening | None]] = {}
        reports = []
        # For one device, modules between passes would be kept for nobody.
        sharing = sharing_steps() if len(places) > 1 else nullcontext()
        with one_compilation(), sharing:
            for place in places:
                watch = Stopwatch()
                importer = partial(
                    import_asked, place.device, asked, self._options, needs_values=False
                )
                if place.kind not in imported:
                    imported[place.kind] = importer()
                watch.lap("import")
                reports.append(place.report(*imported[place.kind], importer, self._options, watch))
        return reports


def _oracle(devices: Sequence[Device], options: Options) -> Oracle:
    """An oracle that knows nothing yet."""
    return Oracle(*devices, options=options)


def _require_names(devices: Sequence[Device]) -> None:
    """Refuse different devices of one name, by which reports are told apart."""
    names = {device.name: device for device in devices}
    if len(names) < len(set(devices)):
        raise OptionError(
            "devices are told apart by the names of their records",
            f"several of {', '.join(names)} have one name",
            "give them others: dataclasses.replace(device, name='vendor/other')",
        )


@dataclass(frozen=True, slots=True)
class _Place:
    """A device, and what has been chosen for it."""

    device: Device
    first: FirstChoices

    @property
    def kind(self) -> tuple[Any, ...]:
        """What a model is imported by; see :func:`~tvm_tile.compiling.import_asked`."""
        return matrix_dtypes(self.device), self.device.supports_grid_barrier

    def report(
        self,
        imported: Imported,
        opening: Opening | None,
        importer: Any,
        options: Options,
        watch: Stopwatch,
    ) -> Report:
        """The report of an imported model here."""
        compiler = Compiler(self.device, options, None, ConstantPool(), HeldMemory())
        behind = compiler.behind_stages(
            Unbuilt(self.device), imported, watch, importer, opening=opening, first=self.first
        )
        watch.lap("schedule and lower")
        self.first.forget(_MOST_CHOICES)
        return behind.report(self.device, options, watch)


def predict(
    model: Any,
    device: Any = "auto",
    *,
    inputs: Mapping[str, Sequence[int | Open]] | None = None,
    example_inputs: Sequence[Any] | Mapping[str, Any] | None = None,
    params: Params | None = None,
    options: Options | Mapping[str, Any] | None = None,
    **named: Any,
) -> Report:
    """What a compiled model would take on a GPU, without one, and without its compiler.

    Kernels are chosen as :func:`tvm_tile.compile` does, and none is built: persistent ones are
    taken to have as many registers as they may, and kernels that do not build are not found.

    A module's weights need no values: those on PyTorch's device ``meta`` are taken to be weights
    that each call is given, so that products of one input stay products of their own.

    Args and errors are those of :func:`tvm_tile.compile`, but for ``topk`` and ``verify``, for
    which kernels run.

    Returns:
        The report that the compiled model would have: ``predicted_seconds`` of a run, its kernels,
        launches, traffic and memory.

    Raises:
        OptionError: an option is unknown, or wants kernels to run.
    """
    oracle = Oracle(device, options=options, **named)
    return oracle(model, inputs=inputs, example_inputs=example_inputs, params=params)
