"""From a scheduled Relax module to bytes: host code, VM bytecode and machine code."""

from __future__ import annotations

from tvm_tile.build.checking import check_kernel
from tvm_tile.build.lower import Builder, build_program
from tvm_tile.build.naming import rename_by_content
from tvm_tile.build.program import Kernel, Program

__all__ = ["Builder", "Kernel", "Program", "build_program", "check_kernel", "rename_by_content"]
