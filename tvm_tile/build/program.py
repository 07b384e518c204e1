"""The result of a build: bytes, nothing that lives in TVM."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

from tvm_tile.errors import ModelError

WEIGHTS = "tvm_tile.weights"
"""Attribute of a model's ``main`` while it is built: as :attr:`Program.weights`."""

RETURNED_STATE = "tvm_tile.returned_state"
"""Attribute of a model's ``main`` while it is built: as :attr:`Program.returned_state`."""


DEPENDENT_TAG = "tirx.use_programtic_dependent_launch"
"""Launch parameter, as TVM spells it, of kernels that wait for the one before them themselves."""

COOPERATIVE_TAG = "tirx.use_cooperative_launch"
"""Launch parameter of kernels whose blocks are all on the GPU at once."""

SHARED_TAG = "tirx.use_dyn_shared_memory"
"""Launch parameter of kernels whose blocks are given shared memory; the bytes come last of all."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """One GPU kernel.

    Attributes:
        name: its symbol, by which the host code finds it.
        source: the text it was compiled from.
        arg_types: ``"handle"`` (a pointer), ``"tensormap"`` or a scalar dtype, one an argument.
        launch_params: the integers that follow the arguments in a launch, such as
            ``"blockIdx.x"`` (an extent) or :data:`SHARED_TAG` (bytes).
        binary: machine code (a cubin on CUDA); empty where the runtime compiles the source.
    """

    name: str
    source: str
    arg_types: tuple[str, ...]
    launch_params: tuple[str, ...]
    binary: bytes

    @property
    def depends(self) -> bool:
        """Whether the kernel may start before the one ahead of it ends (programmatic dependent)."""
        return DEPENDENT_TAG in self.launch_params


@dataclass(frozen=True, slots=True, eq=False)
class Constant:
    """A tensor that a program takes besides its inputs, such as the weights of a layer.

    Attributes:
        shape: its extents.
        dtype: TVM's name of its element type.
        data: its elements, dense in row-major order. It may be the memory of the model that was
            compiled, which is not copied.
        checksum: CRC-32 of ``data`` when it was compiled; None of what was read from a file, which
            nobody else can write to.
    """

    shape: tuple[int, ...]
    dtype: str
    data: memoryview
    checksum: int | None

    def checked(self) -> memoryview:
        """``data``, once it is known to be what was compiled.

        Raises:
            ModelError: the array has been written to since it was compiled, and the program is made
                for its old values.
        """
        if self.checksum is not None and zlib.crc32(self.data) != self.checksum:
            raise ModelError(
                "a model's weights must stay as they are until it has been loaded or saved",
                f"one of shape {self.shape} has been written to since the model was compiled",
                "compile the model again",
            )
        return self.data


@dataclass(frozen=True, slots=True)
class Program:
    """A compiled model, or functions that belong to none.

    Attributes:
        language: language of the kernels: ``"cuda"`` or ``"opencl"`` (emulated).
        arch: the GPU architecture of their machine code, such as ``"sm_90a"``; may be empty.
        vm: bytes of TVM's VMExecutable, with the model's small constants; empty without a model.
        host: LLVM bitcode of the functions that launch the kernels; may be empty.
        kernels: every kernel, by name.
        copied_outputs: positions of outputs that may share memory with a constant or an
            input, so that they are copied before a caller gets to write into them.
        weights: number of the model's last inputs that ``main`` takes as one tuple, behind which it
            takes the number of the place where they lie.
        constants: tensors behind the weights and the model's state in this tuple; without weights
            and constants there is none, and ``main`` takes the state behind the inputs.
        returned_state: numbers of the tensors of the state of which ``main`` returns new values,
            behind all other results; it writes the others itself.
    """

    language: str
    arch: str
    vm: bytes
    host: bytes
    kernels: tuple[Kernel, ...]
    copied_outputs: tuple[int, ...]
    weights: int = 0
    constants: tuple[Constant, ...] = ()
    returned_state: tuple[int, ...] = ()
