"""The only module that adapts to TVM's moving API.

Whatever another module needs from TVM's internals (lowering, code generation, the byte
formats of its runtime modules) is a function here, so that a new TVM release is one file's
work. TVM is imported inside the functions: importing this module costs nothing.
"""

from __future__ import annotations

import functools
import importlib.metadata
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tvm_tile.errors import InstallationError
from tvm_tile.files.scratch import scratch_folder

if TYPE_CHECKING:
    from tvm_tile.device.device import Device

TVM_VERSION = "0.27.0.post1"
FFI_SERIES = "0.1.14"

# What AMD's kernels are lowered as: it has bfloat16 and no float8, of which TVM then makes shifts
# of bytes, and dlight, which looks for a number alone, finds no tensor cores.
_LIKE_CUDA = "sm_80a"
_DL_ROCM = 10  # how DLPack numbers AMD's GPUs: what the host's code then asks for

# TVM's callbacks are process-wide globals; one code generation at a time may replace them.
_CALLBACK_LOCK = threading.RLock()


@dataclass(frozen=True, slots=True)
class LoweredKernel:
    """One GPU kernel after TVM's lowering, ready for code generation.

    Attributes:
        name: the kernel's symbol; the host code looks it up by this name.
        module: a TVM IRModule with the kernel and the device functions that it calls.
        target: the TVM target it was lowered for.
        arg_types: ``"handle"``, ``"tensormap"`` or a scalar dtype, one an argument.
        launch_params: tags of the launch parameters behind the arguments, such as ``"blockIdx.x"``.
        alone: positions of pointers whose memory the kernel reaches through no other, where this is
            not so of all.
    """

    name: str
    module: Any
    target: Any
    arg_types: tuple[str, ...]
    launch_params: tuple[str, ...]
    alone: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class LoweredModule:
    """PrimFuncs after lowering: the host's IRModule and one record a kernel."""

    host: Any
    kernels: tuple[LoweredKernel, ...]


def check_installation() -> None:
    """Refuse package versions that are known to crash together; imports no TVM.

    Raises:
        InstallationError: apache-tvm is missing or not the pinned version, or
            apache-tvm-ffi is not of the series that this TVM was built against (with
            0.1.15 TVM ends in a segmentation fault at the first tensorize).
    """
    tvm, ffi = installed_versions()
    remedy = f'pip install "apache-tvm=={TVM_VERSION}" "apache-tvm-ffi>=0.1.14.post0,<0.1.15"'
    if not _is_version(tvm, TVM_VERSION):
        raise InstallationError(f"apache-tvm must be {TVM_VERSION}", tvm, remedy)
    if not _is_version(ffi, FFI_SERIES):
        requirement = f"apache-tvm-ffi must be of the series {FFI_SERIES} (others crash this TVM)"
        raise InstallationError(requirement, ffi, remedy)


def installed_versions() -> tuple[str, str]:
    """Versions of apache-tvm and apache-tvm-ffi; ``"not installed"`` where one is missing."""

    def version(package: str) -> str:
        try:
            return importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            return "not installed"

    return version("apache-tvm"), version("apache-tvm-ffi")


def _is_version(installed: str, wanted: str) -> bool:
    return installed == wanted or installed.startswith((wanted + ".", wanted + "+"))


def make_target(device: Device, host: Any = None) -> Any:
    """The TVM target that kernels of a device are lowered for.

    AMD's are lowered as CUDA, of AMD's limits and waves: the text is HIP's as well (see
    ``build/hip.py``).

    Args:
        device: the GPU.
        host: the target of the code that launches them; by default LLVM for this machine.
    """
    from tvm.target import Target

    target = dict(device.target)
    if target["kind"] == "rocm":
        del target["mcpu"]
        target |= {"kind": "cuda", "arch": _LIKE_CUDA, "target_device_type": _DL_ROCM}
    return Target(target).with_host(Target("llvm") if host is None else host)


def start_schedule(func: Any) -> Any:
    """A TVM ``Schedule`` of a PrimFunc that takes arguments as they are.

    TVM's own checks their types at run time, which takes 50 us, where most steps take 2.
    """
    return _unchecked_schedule()(func, error_render_level="fast")


@functools.cache
def _unchecked_schedule() -> Any:
    from tvm.s_tir import Schedule

    def copy(self: Any) -> Any:
        copied = unchecked.__new__(unchecked)
        copied.__move_handle_from__(Schedule.copy(self))
        return copied

    steps = {n: s.__wrapped__ for n, s in vars(Schedule).items() if hasattr(s, "__wrapped__")}
    unchecked: Any = type("Schedule", (Schedule,), {**steps, "copy": copy})
    return unchecked


def lower_by(mod: Any, target: Any, passes: Sequence[Any], dialect: str) -> LoweredModule:
    """Lower a scheduled PrimFunc to host code and kernels.

    Args:
        mod: a TVM IRModule that holds it.
        target: the TVM target, as made by :func:`make_target`.
        passes: TVM passes, from blocks or the thread-level dialect to packed functions.
        dialect: the pipeline of TVM's that finishes them: ``default`` or ``tirx``.

    Returns:
        The host's IRModule (packed functions that launch the kernels) and the kernels.

    Raises:
        Exception: whatever TVM's passes raise; callers turn it into a BuildError.
    """
    import tvm
    from tvm.tirx.build import split_host_device_mods

    _, finalize_host, finalize_device = tvm.tirx.get_tir_pipeline(dialect)
    # "#pragma unroll" instead of megabytes of unrolled text: the compilers unroll as well.
    config = {"tirx.UnrollLoop": {"explicit_unroll": False}}
    with target, tvm.transform.PassContext(config=config):
        mod = tvm.tirx.transform.BindTarget(target)(mod)
        host, devices = split_host_device_mods(tvm.transform.Sequential(passes)(mod))
        host = finalize_host()(host)
        kernels = [
            kernel
            for device_target, module in devices.items()
            for kernel in split_kernels(finalize_device()(module), device_target)
        ]
    return LoweredModule(host, tuple(kernels))


def split_kernels(module: Any, target: Any) -> Iterator[LoweredKernel]:
    """The kernels of a finalized device module, each in a module of its own."""
    import tvm
    from tvm.ir import CallingConv

    functions = sorted(module.functions.items(), key=lambda item: str(item[0].name_hint))
    is_kernel = {
        var.name_hint: int(function.attrs.get("calling_conv", 0))
        == int(CallingConv.DEVICE_KERNEL_LAUNCH)
        for var, function in functions
    }
    # Device functions that kernels call are few and private: every kernel gets all of them.
    helpers = {var: function for var, function in functions if not is_kernel[var.name_hint]}
    for var, function in functions:
        if is_kernel[var.name_hint]:
            yield LoweredKernel(
                name=str(function.attrs["global_symbol"]),
                module=tvm.IRModule({var: function, **helpers}, attrs=module.attrs),
                target=target,
                arg_types=tuple(_argument_type(param) for param in function.params),
                launch_params=tuple(
                    str(tag) for tag in function.attrs.get("tirx.kernel_launch_params", ())
                ),
            )


def _argument_type(param: Any) -> str:
    from tvm.ir import PointerType
    from tvm.tirx import TensorMapType

    if isinstance(param.ty, PointerType):
        return "tensormap" if isinstance(param.ty.element_type, TensorMapType) else "handle"
    return str(param.ty.dtype)


def runs_on_host(function: Any) -> bool:
    """Whether TVM means a PrimFunc for the host, as it does for computations of shapes."""
    target = function.attrs.get("target")
    if target is not None:
        return str(target.kind.name) in ("llvm", "c")
    return bool(function.attrs.get("tirx.is_host_func", False))


def writes_memory(host: Any) -> bool:
    """Whether lowered host code itself stores into a buffer, as loops bound to no thread do.

    TVM's own check (VerifyMemory) lets such loops through; on a GPU they would end in a
    segmentation fault.
    """
    import tvm_ffi
    from tvm.tirx import BufferStore

    def stop(_store: Any) -> Any:
        return tvm_ffi.VisitInterrupt()

    return any(
        tvm_ffi.structural_walk(function.body, (BufferStore, stop)) is not None
        for function in host.functions.values()
    )


def generate_source(kernel: LoweredKernel) -> str:
    """CUDA or OpenCL C text of one kernel.

    With a CUDA driver in reach, TVM would compile the text at once; the compile callback is
    replaced meanwhile, because the text is compiled, in parallel, afterwards.
    """
    import tvm

    language = str(kernel.target.kind.name)
    generate = tvm.get_global_func(f"target.build.{language}")
    with replaced_function("tvm_callback_cuda_compile", lambda _source: b"not compiled"):
        module = generate(kernel.module, kernel.target)
    return str(module.inspect_source("cuda" if language == "cuda" else "cl"))


@contextmanager
def replaced_function(name: str, function: Any) -> Iterator[None]:
    """Have another function in TVM's registry meanwhile; threads take turns."""
    import tvm_ffi

    with _CALLBACK_LOCK:
        previous = tvm_ffi.get_global_func(name, allow_missing=True)
        tvm_ffi.register_global_func(name, function, override=True)
        try:
            yield
        finally:
            if previous is None:
                tvm_ffi.registry.remove_global_func(name)
            else:
                tvm_ffi.register_global_func(name, previous, override=True)


def generate_host(host: Any) -> bytes:
    """LLVM bitcode of a lowered host module; empty when it holds no function.

    The checks of every argument of every call are left out. A model's inputs are checked
    before it runs, and all shapes inside are static; with the checks, loading a model, which
    ends in machine code, takes seven times as long.
    """
    import tvm
    from tvm.target import Target
    from tvm.tirx.build import codegen_build

    if not host.functions:
        return b""
    with tvm.transform.PassContext(config={"tirx.disable_assert": True}), Target("llvm"):
        module = codegen_build(host, Target("llvm"))
    return _written_bytes(module, "host.bc", "bc")


def generate_vm(mod: Any, write: Callable[[Any], None]) -> tuple[bytes, Any]:
    """Bytecode of a Relax module's functions.

    Args:
        mod: a Relax module after all Relax passes, calls lowered to the VM's.
        write: called with TVM's ``ExecBuilder`` first, for functions that it writes itself.

    Returns:
        The bytes of TVM's VMExecutable, constants inside, and an IRModule with the
        PrimFuncs, which are still to be lowered.
    """
    from tvm import relax
    from tvm.relax import _ffi_api, vm_build

    builder = relax.ExecBuilder()
    constants = dict(mod.attrs.get("const_name_to_constant", {})) if mod.attrs else {}
    write(builder)
    remainder = vm_build._vmcodegen(builder, mod, "bytecode")
    executable = _ffi_api.VMLink(builder, None, None, [], constants)
    return _written_bytes(executable, "vm.bin", ""), vm_build._filter_tir(remainder)


def _written_bytes(module: Any, name: str, file_format: str) -> bytes:
    # TVM writes these modules to files only.
    with scratch_folder() as folder:
        path = folder / name
        module.write_to_file(str(path), file_format)
        return path.read_bytes()


def load_vm(data: bytes) -> Any:
    """A VMExecutable runtime module from its bytes."""
    import tvm

    return tvm.get_global_func("ffi.Module.load_from_bytes.relax.VMExecutable")(data)


def load_host(data: bytes) -> Any:
    """A runtime module, compiled in memory by LLVM, from bitcode."""
    import tvm

    with scratch_folder() as folder:
        # The loader goes by the suffix; it reads bitcode as well as text.
        path = folder / "host.ll"
        path.write_bytes(data)
        return tvm.runtime.load_module(str(path))


def cuda_module_from_cubin(
    name: str, arg_types: Sequence[str], launch_params: Sequence[str], cubin: bytes
) -> Any:
    """A CUDA runtime module that holds one kernel's machine code.

    TVM has the loader only where its CUDA runtime found a driver; callers ask for the device
    before.
    """
    import tvm

    loader = tvm.get_global_func("ffi.Module.load_from_bytes.cuda")
    return loader(serialize_kernel(name, arg_types, launch_params, "cubin", cubin))


def serialize_kernel(
    name: str, arg_types: Sequence[str], launch_params: Sequence[str], code_format: str, code: bytes
) -> bytes:
    """TVM's serialized form of a CUDA module that holds one kernel.

    ``[format][{name: (name, arg dtypes, launch parameters, arg tags)}][code]``, every string
    and list led by its length as a little-endian uint64, as TVM's ``Serializer`` writes it.
    """

    def text(value: bytes) -> bytes:
        return struct.pack("<Q", len(value)) + value

    def items(values: Sequence[bytes]) -> bytes:
        return struct.pack("<Q", len(values)) + b"".join(values)

    symbol = text(name.encode())
    info = (
        symbol
        + items([_dtype_code(arg) for arg in arg_types])
        + items([text(tag.encode()) for tag in launch_params])
        # ArgExtraTags::kTensorMap is 1: the launch then passes the map itself by value.
        + items([struct.pack("<i", int(arg == "tensormap")) for arg in arg_types])
    )
    return text(code_format.encode()) + items([symbol + info]) + text(code)


def _dtype_code(arg_type: str) -> bytes:
    """A DLDataType as TVM serializes it: code and bits (uint8), lanes (uint16)."""
    import tvm_ffi

    if arg_type in ("handle", "tensormap"):
        return struct.pack("<BBH", 3, 64, 1)
    dtype = tvm_ffi.dtype(arg_type)
    return struct.pack("<BBH", int(dtype.type_code), int(dtype.bits), int(dtype.lanes))


def make_virtual_machine(module: Any, device: Any, *, pooled: bool) -> Any:
    """TVM's Relax virtual machine over a VMExecutable module; TVM may pool its memory."""
    from tvm.runtime.vm import VirtualMachine

    return VirtualMachine(module, device, "pooled" if pooled else "naive")


# What TVM's schedule primitives and passes raise when a step does not apply.
TVM_ERRORS: tuple[type[Exception], ...] = (
    RuntimeError,
    ValueError,
    TypeError,
    IndexError,
    AttributeError,
    KeyError,
)
