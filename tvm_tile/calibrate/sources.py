"""The texts of the micro-kernels: files of ``kernels/``, and what differs between dtypes."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources

# Threads, registers and steps of the files' constants, for the host's arithmetic.
CORE_THREADS, CORE_CHAINS, CORE_STEPS, CORE_OPERANDS = 256, 8, 64, 4
MMA_THREADS, MMA_ROWS, MMA_COLUMNS, MMA_STEPS = 128, 2, 4, 4
WGMMA_THREADS, WGMMA_SUMS, WGMMA_STEPS = 256, 128, 16
WGMMA_SHARED_BYTES = 4 * (2 * 64 + 256) * 128
COPY_DEPTH, READ_DEPTH, SHARED_THREADS = 4, 8, 256
FILLER_NAMES, FILLER_THREADS = ("first", "second"), 512
PICK_THREADS = 256

_C_TYPES = {"r": "unsigned", "f": "float", "d": "double"}


@dataclass(frozen=True, slots=True)
class CoreStep:
    """A multiply-add of CUDA cores.

    Attributes:
        dtype: type of its operands.
        since: the first compute capability that has it.
        instruction: PTX; ``%0`` is the sum, ``%1`` and ``%2`` the operands.
        constraint: the register's kind in inline assembly.
        lanes: multiply-adds of one instruction and thread.
    """

    dtype: str
    since: tuple[int, int]
    instruction: str
    constraint: str
    lanes: int

    def source(self) -> str:
        """CUDA text of the kernel ``chains``."""
        return (
            f"#define TYPE {_C_TYPES[self.constraint]}\n"
            f'#define STEP(sum, a, b) asm volatile("{self.instruction}" '
            f': "+{self.constraint}"(sum) : "{self.constraint}"(a), "{self.constraint}"(b))\n'
        ) + kernel_text("cuda_cores")


@dataclass(frozen=True, slots=True)
class MatrixStep:
    """A product of matrix units, as ``mma.sync`` has it.

    Attributes:
        dtype: type of its operands.
        since: the first compute capability that has it.
        shape: (m, n, k).
        types: types of result, both operands and sum, as PTX writes them.
        words: registers of one thread for the first operand, the second, and the sums.
        operand: the operands' kind of register in inline assembly.
        sum_kind: the sums'.
        emulated_on: major compute capabilities where the assembler makes it of other
            instructions (and computes what repeats only once), so that its rate says nothing.
    """

    dtype: str
    since: tuple[int, int]
    shape: tuple[int, int, int]
    types: str
    words: tuple[int, int, int]
    operand: str
    sum_kind: str
    emulated_on: tuple[int, ...] = ()

    def is_on(self, compute_version: tuple[int, int]) -> bool:
        """Whether GPUs of this compute capability have the instruction."""
        return compute_version >= self.since and compute_version[0] not in self.emulated_on

    @property
    def operand_count(self) -> int:
        """Registers of operands of one block."""
        a_words, b_words, _ = self.words
        return MMA_THREADS * (MMA_ROWS * a_words + MMA_COLUMNS * b_words)

    @property
    def sum_count(self) -> int:
        """Registers of sums of one thread."""
        return MMA_ROWS * MMA_COLUMNS * self.words[2]

    def source(self) -> str:
        """CUDA text of the kernel ``products``."""
        a_words, b_words, sums = self.words
        shape = "m{}n{}k{}".format(*self.shape)
        names = [f"%{i}" for i in range(sums + a_words + b_words)]
        sum_names, a_names = names[:sums], names[sums : sums + a_words]
        lists = (sum_names, a_names, names[sums + a_words :], sum_names)
        text = (
            f"#define A_WORDS {a_words}\n#define B_WORDS {b_words}\n#define SUMS {sums}\n"
            f"#define WORD {_C_TYPES[self.operand]}\n#define SUM {self._sum_type()}\n"
            "__device__ __forceinline__ void multiply(SUM* sum, const WORD* a, const WORD* b) {\n"
            f'  asm volatile("mma.sync.aligned.{shape}.row.col.{self.types} '
            + ", ".join("{" + ", ".join(items) + "}" for items in lists)
            + ';"\n    : '
            + _registers(f"+{self.sum_kind}", "sum", sums)
            + "\n    : "
            + _registers(self.operand, "a", a_words)
            + ", "
            + _registers(self.operand, "b", b_words)
            + ");\n}\n"
        )
        return text + kernel_text("mma")

    def _sum_type(self) -> str:
        """C's type of a sum."""
        return "int" if self.sum_kind == "r" else _C_TYPES[self.sum_kind]


@dataclass(frozen=True, slots=True)
class WarpGroupStep:
    """A product of Hopper's matrix units, ``wgmma``, of shape m64n256 and 32 bytes along k.

    Attributes:
        dtype: type of its operands.
        depth: elements along k.
        types: types of result and both operands, as PTX writes them.
        flags: operands that PTX wants after the descriptors: scales and, for 16-bit dtypes,
            transposition.
    """

    dtype: str
    depth: int
    types: str
    flags: str

    def source(self) -> str:
        """CUDA text of the kernel ``products``."""
        kind, c_type = ("r", "int") if self.types.startswith("s32") else ("f", "float")
        names = ", ".join(f"%{i}" for i in range(WGMMA_SUMS))
        text = (
            f"#define SUM {c_type}\n"
            "__device__ __forceinline__ void multiply(SUM* sum, unsigned long long a, "
            "unsigned long long b) {\n"
            f'  asm volatile("wgmma.mma_async.sync.aligned.m64n256k{self.depth}.{self.types} '
            f'{{{names}}}, %{WGMMA_SUMS}, %{WGMMA_SUMS + 1}, {self.flags};"\n'
            f"    : {_registers(f'+{kind}', 'sum', WGMMA_SUMS)}\n"
            '    : "l"(a), "l"(b));\n}\n'
        )
        return text + kernel_text("wgmma")


def kernel_text(name: str) -> str:
    """The text of one file of ``kernels/``."""
    file = resources.files("tvm_tile.calibrate") / "kernels" / f"{name}.cu"
    return file.read_text(encoding="utf-8")


def _registers(constraint: str, name: str, count: int) -> str:
    """Operands of inline assembly, one for each register."""
    return ", ".join(f'"{constraint}"({name}[{i}])' for i in range(count))


CORE_STEPS_BY_DTYPE = (
    CoreStep("bfloat16", (8, 0), "fma.rn.bf16x2 %0, %0, %1, %2;", "r", 2),
    CoreStep("float16", (7, 0), "fma.rn.f16x2 %0, %0, %1, %2;", "r", 2),
    CoreStep("float32", (7, 0), "fma.rn.f32 %0, %0, %1, %2;", "f", 1),
    CoreStep("float64", (7, 0), "fma.rn.f64 %0, %0, %1, %2;", "d", 1),
    CoreStep("int8", (7, 0), "dp4a.s32.s32 %0, %1, %2, %0;", "r", 4),
)

MATRIX_STEPS = (
    MatrixStep("bfloat16", (8, 0), (16, 8, 16), "f32.bf16.bf16.f32", (4, 2, 4), "r", "f"),
    MatrixStep("float16", (8, 0), (16, 8, 16), "f32.f16.f16.f32", (4, 2, 4), "r", "f"),
    MatrixStep("float64", (8, 0), (8, 8, 4), "f64.f64.f64.f64", (1, 1, 2), "d", "d"),
    # Hopper has larger ones of float64, which the smaller one does not keep busy.
    MatrixStep("float64", (9, 0), (16, 8, 16), "f64.f64.f64.f64", (8, 4, 4), "d", "d"),
    # Hopper and the first Blackwell have float8 in the instructions of whole warpgroups only.
    MatrixStep(
        "float8_e4m3", (8, 9), (16, 8, 32), "f32.e4m3.e4m3.f32", (4, 2, 4), "r", "f", (9, 10)
    ),
    MatrixStep("int8", (8, 0), (16, 8, 32), "s32.s8.s8.s32", (4, 2, 4), "r", "r"),
    MatrixStep("tf32", (8, 0), (16, 8, 8), "f32.tf32.tf32.f32", (4, 2, 4), "r", "f"),
)

WARP_GROUP_STEPS = (
    WarpGroupStep("bfloat16", 16, "f32.bf16.bf16", "1, 1, 1, 0, 0"),
    WarpGroupStep("float16", 16, "f32.f16.f16", "1, 1, 1, 0, 0"),
    WarpGroupStep("float8_e4m3", 32, "f32.e4m3.e4m3", "1, 1, 1"),
    WarpGroupStep("int8", 32, "s32.s8.s8", "1"),
    WarpGroupStep("tf32", 8, "f32.tf32.tf32", "1, 1, 1"),
)
