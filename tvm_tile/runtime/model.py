"""A compiled model: call it, time it, explain it, save it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from tvm_tile.build.program import Program
from tvm_tile.errors import BoundError, DeviceError, InputError, RunError, TileError
from tvm_tile.graph.signature import NO_EFFECTS, Effects, Signature
from tvm_tile.report.shown import Profile, Report
from tvm_tile.report.verification import Verification
from tvm_tile.runtime import artifact
from tvm_tile.runtime.arrays import ArrayKind, check_input, own_torch, ready_torch
from tvm_tile.runtime.copies import clone, copy_into
from tvm_tile.runtime.drivers.timing import Timing
from tvm_tile.runtime.explained import Explained, ModelVerifier
from tvm_tile.runtime.extents import Graphed, KnownCalls
from tvm_tile.runtime.given import check_repeats, in_order
from tvm_tile.runtime.handing_over import on_device, returned, write_back
from tvm_tile.runtime.held import HeldMemory
from tvm_tile.runtime.launch import LoadedProgram, load_program
from tvm_tile.runtime.manifest import WHOLE, SavedEntry, SavedModel
from tvm_tile.runtime.random_inputs import Extents, random_inputs_at
from tvm_tile.runtime.stamps import watch_veus
from tvm_tile.runtime.state import Kept, ModelState, check_written


class CompiledModel(Explained):
    """A model compiled for one device.

    Nothing is loaded before the first call, so a model for a GPU may be compiled, explained
    and saved where there is no GPU. Calls from several threads run one after another. A process
    that was forked after a call cannot call the model: drivers and PoCL do not survive a fork.

    Args:
        program: host code, VM bytecode and machine code.
        device_name: the device's name, for people.
        inputs: signatures of a call's inputs, in order.
        outputs: signatures of its results, in order.
        report: report of the compilation.
        verifier: compares it with the model that it was compiled from, while that is at hand.
        effects: changes that a call makes besides.
        held: state and constants on its device that other models share; its own by default.
    """

    def __init__(
        self,
        program: Program,
        device_name: str,
        inputs: tuple[Signature, ...],
        outputs: tuple[Signature, ...],
        report: Report,
        verifier: ModelVerifier | None = None,
        effects: Effects = NO_EFFECTS,
        held: HeldMemory | None = None,
    ) -> None:
        super().__init__(program, device_name, report, verifier)
        self.inputs = inputs
        self.outputs = outputs
        self.effects = effects
        self._copied = frozenset(program.copied_outputs)
        self._is_open = any(signature.open_axes for signature in inputs)
        self._graphed, self._calls = Graphed(), KnownCalls(inputs)
        self._loaded: LoadedProgram | None = None
        self._kept: Kept | None = None
        self._held = held or HeldMemory()
        self._process = os.getpid()

    def __call__(self, *args: Any, **by_name: Any) -> Any:
        """Run the model.

        What the model keeps (:attr:`state`) and inputs that it writes to have their new values
        when the call has ended, as those of the module have that it was made from.

        Args:
            args: arrays in the order of ``inputs``: NumPy arrays, torch tensors, or anything
                that speaks DLPack; dtype and shape exactly as in ``inputs``.
            by_name: the remaining inputs by name.

        Returns:
            One array for one output, else a tuple, of the first input's kind: NumPy for
            NumPy, torch on the same device for torch, a DLPack-capable TVM tensor otherwise
            (NumPy when the model takes no input).

        Raises:
            InputError: wrong count, name, dtype, rank or shape; nothing has run then.
            DeviceError: the model's device is not present, or was used before this process was
                forked.
            RunError: TVM, a driver or a library of arrays failed; a BoundError where a loop inside
                a kernel went beyond one of :class:`tvm_tile.Bounds`, or a recursion.
        """
        values = in_order(self.inputs, args, by_name)
        kinds = self._check(values)
        with self.running():
            loaded = self._loaded_for(values)
            with loaded.guard():
                tensors, kept = on_device(kinds, values, loaded.device), self._keep(loaded)
                kept.check_apart(zip(kinds, values, strict=True))
                results = loaded.main(*loaded.arguments(tensors))
            with loaded.guard():
                fields = [results] if hasattr(results, "shape") else list(results)
                count = len(self.outputs)
                outputs = returned(fields[:count], kinds, values, self._copied)
                if self.effects:
                    self._write(kept.tensors, fields, kinds, values)
                return outputs

    def call_torch(self, tensors: Sequence[Any]) -> tuple[Any, ...]:
        """Run the model on torch tensors, with less ado than a call makes.

        Shapes and types are left to TVM's own checks, whose errors name no input; those of weights
        that lie where weights lay before are not checked.

        Args:
            tensors: tensors in the order of ``inputs``, at least one.

        Returns:
            The outputs, one or several, on the first input's device.

        Raises:
            DeviceError: as in a call.
            RunError: a tensor does not fit, or as in a call.
        """
        loaded = self._loaded
        if loaded is None or self._process != os.getpid():
            with self.running():
                loaded = self.loaded()
        if loaded.hip is not None or self.effects or self._is_open:
            outputs = self(*tensors)
            return outputs if isinstance(outputs, tuple) else (outputs,)
        try:
            count, device = loaded.inputs, loaded.device
            given = [ready_torch(tensor, device) for tensor in tensors[:count]]
            with self._held.lock:
                if loaded.weights is not None:
                    given += loaded.weights.taken(tensors[count:], in_torch=True)
                results = loaded.main(*given)
            fields = (results,) if hasattr(results, "shape") else results
            like, copied = given[0], self._copied
            return tuple([own_torch(f, like, copy=i in copied) for i, f in enumerate(fields)])
        except BoundError:
            raise
        except Exception as error:
            raise self._failure(error) from error

    def time(
        self, *args: Any, repeats: int = 30, extents: Extents | None = None, **by_name: Any
    ) -> Timing:
        """Measure a call with inputs already on the device; copies in and out do not count.

        Args:
            args: inputs, as in a call; so is ``by_name``. Without any, random ones are taken.
            repeats: timed calls, at least 1, 30 by default, after a few that warm up.
            extents: values of open extents by name, for random inputs; those that are not named
                have their greatest values.

        Returns:
            Median and interquartile range in seconds. On a GPU each sample lies between two
            events of the device; when emulated it is wall-clock time of the CPU, which says
            nothing about any GPU.

        Raises:
            InputError: as in a call, or ``repeats`` < 1; ``extents`` beside inputs, or of another
                name or range than the model's. DeviceError and RunError as in a call.
        """
        check_repeats("repeats", repeats)
        with self._placed(args, by_name, extents) as (loaded, tensors):
            timing = loaded.time(tensors, repeats)
            self._timing = timing.median_s, timing.iqr_s
            return timing

    def profile(
        self,
        *args: Any,
        runs: int = 10,
        veus: bool = False,
        extents: Extents | None = None,
        **by_name: Any,
    ) -> Profile:
        """Measure each kernel of a call, beside what it was predicted to take.

        Some calls are timed as by :meth:`time`; then others are watched, which may take a little
        longer. NVIDIA's GPUs are watched by CUPTI, which no other profiler may use meanwhile.

        Args:
            args: arguments as in :meth:`time`; so are ``extents`` and ``by_name``.
            runs: calls that are timed, and as many that are watched; at least 1, 10 by default.
            veus: whether to run copies of persistent kernels, too, that tell when each rTask ran,
                which takes a compiler, on NVIDIA's GPUs; False by default.

        Raises:
            ProfileError: CUPTI is missing or fails, or there are no vEUs; others as of `time`.
        """
        check_repeats("runs", runs)
        with self._placed(args, by_name, extents) as (loaded, tensors):
            source = loaded.tracer.source
            timing = loaded.time(tensors, runs)
            self._timing = timing.median_s, timing.iqr_s
            told = watch_veus(self.program, self.report.plans, self._load, tensors) if veus else ()
            found = loaded.watch(tensors, runs)
            self._profile = Profile(self.report, source, *self._timing, found, told)
            return self._profile

    @property
    def state(self) -> ModelState:
        """State that the model keeps between its calls, by the names in its source.

        These are mutated buffers of PyTorch's modules, such as caches and counters; most models
        have none.

        Raises:
            DeviceError: the model's device is not present.
        """
        with self.running():
            loaded = self.loaded()
            loaded.device.sync()
            return ModelState(self._keep(loaded), self.running)

    def reset(self) -> None:
        """Give the state the values that it had when the model was compiled, or saved.

        Raises:
            DeviceError, RunError: as in a call; before the first one there is nothing to do.
        """
        with self.running():
            if self._kept is not None:
                with self._kept.loaded.guard():
                    self._kept.restore(self.effects.state)

    @property
    def is_emulated(self) -> bool:
        """Whether the CPU runs its kernels: right numbers, and times that mean nothing."""
        return self.program.language == "opencl"

    def verify(self, inputs: Sequence[Any] | None = None) -> Verification:
        """Compare each kernel, and the whole model, with what they should compute.

        Each different kernel runs next to what NumPy makes of the same unscheduled function on
        random inputs, then the whole model next to its source, in ONNX Runtime or PyTorch: a file
        is opened again, and an object must still be there, for it is not kept in memory.

        Args:
            inputs: arrays in the order of the model's ``inputs``; by default random ones, with open
                extents at their greatest, their least and further values.

        Returns:
            What was compared and what differs: ``is_right``, and ``render()`` for people.

        Raises:
            InputError: the model was loaded from a file, which keeps no source; or as in a call.
            DeviceError: the model's device is not present.
        """
        if self.verifier is None:
            raise InputError(
                "a model is verified where it was compiled",
                "this one was loaded from a file, which has the machine code alone",
                "compile its source again and verify that",
            )
        self._verified = self.verifier(self, inputs)
        return self._verified

    def save(self, path: str | Path, *, key: str | Path | None = None, state: bool = False) -> None:
        """Write a self-contained ``.tvmtile`` file, all or nothing.

        Args:
            path: the file's path; an existing file is replaced only once the new one is complete.
            key: a PEM file with an Ed25519 private key, to sign the model with; none by default.
            state: whether a loaded model begins with the state that this one has now, and
                ``reset()`` there comes back to that; else, by default, with what this began with.

        Raises:
            OSError: the folder cannot be written.
            SavedModelError: the folder does not exist, or the key cannot be used.
        """
        saved = SavedModel(self.device_name, {WHOLE: self.saved_entry(state=state)})
        artifact.write(saved, Path(path), key)

    def saved_entry(self, *, state: bool) -> SavedEntry:
        """Entry that a file holds of this model; see :meth:`save`."""
        effects = self.effects
        if state and self._kept is not None:
            with self.running(), self._kept.loaded.guard():
                effects = replace(effects, state=self._kept.snapshot())
        return SavedEntry(self.program, self.inputs, self.outputs, self.report, effects)

    def __repr__(self) -> str:
        inputs = ", ".join(map(str, self.inputs))
        outputs = ", ".join(map(str, self.outputs))
        return f"CompiledModel({self.device_name}: ({inputs}) -> ({outputs}))"

    @contextmanager
    def running(self) -> Iterator[None]:
        """Around all that runs code of the model: one thread at a time, and errors of ours only."""
        if self._process != os.getpid():
            self._after_fork()
        with self._held.lock:
            try:
                yield
            except TileError:
                raise
            except Exception as error:  # TVM, drivers and libraries of arrays raise what they like
                raise self._failure(error) from error

    def _failure(self, error: Exception) -> RunError:
        return RunError(
            f"the model must load and run on {self.device_name}",
            f"{type(error).__name__}: {str(error)[:2000]}",
            "report it, with the model; if it comes from a file, save it again",
        )

    def _after_fork(self) -> None:
        if self._loaded is not None or self._held.is_on_device:
            raise DeviceError(
                "a model must not have been called before the process was forked",
                f"process {self._process} has called it, and this is its child {os.getpid()}",
                'start processes with multiprocessing.get_context("spawn"), load it there',
            )
        # A thread that stayed behind may have held the lock.
        self._held.lock, self._process = threading.Lock(), os.getpid()

    def loaded(self) -> LoadedProgram:
        """The program in memory, loaded when first needed: within :meth:`running`."""
        if self._loaded is None:
            self._loaded = self._load(self.program)
        return self._loaded

    def _load(self, program: Program) -> LoadedProgram:
        return load_program(program, self.device_name, self.inputs, self._held, self.effects.state)

    def _loaded_for(self, values: tuple[Any, ...]) -> LoadedProgram:
        """The program in memory for a call; anew where it has graphs for too many extents."""
        if self._is_open and not self._graphed.has_room(self._calls.shapes_of(values)):
            loaded = self.loaded()
            loaded.device.sync()
            self._loaded, self._kept, self._graphed = None, None, Graphed()
        return self.loaded()

    @contextmanager
    def _placed(
        self, args: tuple[Any, ...], by_name: dict[str, Any], extents: Extents | None
    ) -> Iterator[tuple[LoadedProgram, list[Any]]]:
        """The program, and inputs on its device; what runs then leaves inputs and state alone."""
        if extents is not None or not (args or by_name):
            args = (*random_inputs_at(self.inputs, extents or {}, (*args, *by_name)),)
        values = in_order(self.inputs, args, by_name)
        kinds = self._check(values)
        with self.running():
            loaded = self._loaded_for(values)
            with loaded.guard():
                tensors = on_device(kinds, values, loaded.device)
                for position in self.effects.written_inputs:
                    tensors[position] = clone(tensors[position])
                kept = self._keep(loaded)
                kept.check_apart(zip(kinds, values, strict=True))
                before = kept.snapshot()
                try:
                    yield loaded, tensors
                finally:
                    kept.restore(before)

    def _keep(self, loaded: LoadedProgram) -> Kept:
        """The state's tensors, made when first needed."""
        if self._kept is None:
            self._kept = Kept(loaded, self.effects.state, self._held)
        return self._kept

    def _write(
        self,
        kept: Sequence[Any],
        fields: list[Any],
        kinds: list[ArrayKind],
        values: tuple[Any, ...],
    ) -> None:
        """Give inputs and state their new values, which are behind the outputs."""
        homes: list[tuple[int, Callable[[Any], None]]] = [
            (kinds[i].memory(values[i])[0], partial(kinds[i].write, values[i]))
            for i in self.effects.written_inputs
        ]
        for tensor in (kept[i] for i in self.program.returned_state):
            homes.append((tensor.data_ptr(), partial(copy_into, tensor, wait=False)))
        behind = range(len(self.outputs), len(fields))
        write_back([(fields[i], i in self._copied) for i in behind], homes)

    def _check(self, values: tuple[Any, ...]) -> list[ArrayKind]:
        signatures = self._calls.at(values) if self._is_open else self.inputs
        signed = zip(values, signatures, strict=True)
        kinds = [check_input(value, signature) for value, signature in signed]
        if self.effects.written_inputs:
            given = list(zip(kinds, values, self.inputs, strict=True))
            check_written(given, self.effects.written_inputs)
        return kinds
