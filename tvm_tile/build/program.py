"""What a build makes: bytes, nothing that lives in TVM."""

from __future__ import annotations

from dataclasses import dataclass

WEIGHTS = "tvm_tile.weights"
"""Attribute of a model's ``main`` while it is built: as :attr:`Program.weights`."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """One GPU kernel.

    Attributes:
        name: its symbol, by which the host code finds it.
        source: the text it was compiled from.
        arg_types: ``"handle"`` (a pointer), ``"tensormap"`` or a scalar dtype, one an argument.
        launch_params: the integers that follow the arguments in a launch, such as
            ``"blockIdx.x"`` (an extent) or ``"tirx.use_dyn_shared_memory"`` (bytes).
        binary: machine code (a cubin on CUDA); empty where the runtime compiles the source.
    """

    name: str
    source: str
    arg_types: tuple[str, ...]
    launch_params: tuple[str, ...]
    binary: bytes


@dataclass(frozen=True, slots=True)
class Program:
    """A compiled model, or functions that belong to none.

    Attributes:
        language: what the kernels are written in: ``"cuda"`` or ``"opencl"`` (emulated).
        arch: the GPU architecture of their machine code, such as ``"sm_90a"``; may be empty.
        vm: bytes of TVM's VMExecutable, with the model's constants; empty without a model.
        host: LLVM bitcode of the functions that launch the kernels; may be empty.
        kernels: every kernel, by name.
        copied_outputs: positions of outputs that may share memory with a constant or an
            input, so that they are copied before a caller gets to write into them.
        weights: how many of the model's inputs, its last, ``main`` takes as one tuple, behind which
            it takes the number of the place where they lie.
    """

    language: str
    arch: str
    vm: bytes
    host: bytes
    kernels: tuple[Kernel, ...]
    copied_outputs: tuple[int, ...]
    weights: int = 0
