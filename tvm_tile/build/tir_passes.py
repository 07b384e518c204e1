"""TVM's passes from scheduled loops to host code and kernels, and two of ours among them.

TVM's own lists are functions that run all at once, so they are written out here. They lack what
only options would add.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm_tile import compat


def lower_module(mod: Any, target: Any, behind: Sequence[Any] = ()) -> compat.LoweredModule:
    """Host code and kernels of a scheduled PrimFunc.

    Args:
        mod: a TVM IRModule that holds it: TensorIR, every GPU loop bound to threads, or one of
            TVM's thread-level dialect (TIRx).
        target: target, as made by :func:`tvm_tile.compat.make_target`.
        behind: passes for host code and kernels, once these are functions of their own.

    Raises:
        Exception: whatever TVM's passes raise; callers turn it into a BuildError.
    """
    is_blocks = all((f.attrs or {}).get("s_tir", False) for f in mod.functions.values())
    if is_blocks:
        return compat.lower_by(mod, target, [*block_passes(), *behind], "default")
    return compat.lower_by(mod, target, [*thread_passes(), *behind], "tirx")


def block_passes() -> list[Any]:
    """Passes for TensorIR whose loops are bound to threads; each is a TVM pass."""
    return [*_opening_passes(), *_flattening_passes()]


def open_blocks(mod: Any) -> Any:
    """An IRModule whose scheduled blocks are loops, their places safe from TVM's FlattenBuffer.

    What TVM's pipeline for blocks does before that pass finds nothing to do in it.
    """
    import tvm

    return tvm.transform.Sequential(_opening_passes())(mod)


def _opening_passes() -> list[Any]:
    """Passes from blocks to loops over tensors of several dimensions."""
    from tvm import s_tir

    from tvm_tile.build.exact.quotients import TruncateQuotients

    blocks = s_tir.transform
    return [
        blocks.CanonicalizeLoop(),
        blocks.LowerCrossThreadReduction(),
        blocks.LowerInitBlock(),
        blocks.PlanAndUpdateBufferAllocationLocation(),
        blocks.ConvertBlocksToOpaque(),
        blocks.LiftThreadBinding(),
        blocks.ManifestSharedMemoryLocalStage(),
        blocks.CompactBufferAllocation(),
        blocks.LowerAutoCopy(),
        blocks.UnifyThreadBinding(),
        blocks.LowerMatchBuffer(),
        blocks.StmtSimplify(),
        blocks.InjectPermutedLayout(),
        blocks.AnnotateIrregularLoop(),
        blocks.InjectSoftwarePipeline(),
        blocks.TransformMmaBufferLayout(),
        blocks.LowerOpaqueBlock(),
        TruncateQuotients(),
    ]


def _flattening_passes() -> list[Any]:
    """Passes from loops over tensors of several dimensions to packed functions."""
    from tvm import s_tir, tirx

    from tvm_tile.build.exact.bfloat16 import RoundBfloat16
    from tvm_tile.build.exact.guarded_loads import GuardLoads
    from tvm_tile.build.exact.narrow_bindings import StoreNarrowBindings
    from tvm_tile.build.leaving import LeaveEarly
    from tvm_tile.build.vector_calls import ChooseWholeVectors, TakeCallsApart

    blocks, loops = s_tir.transform, tirx.transform
    return [
        loops.FlattenBuffer(),
        RoundBfloat16(),
        StoreNarrowBindings(),
        loops.BF16ComputeLegalize(),
        loops.NarrowDataType(32),
        blocks.LoopPartition(),
        TakeCallsApart(),
        loops.VectorizeLoop(True),
        ChooseWholeVectors(),
        blocks.InjectVirtualThread(),
        blocks.InjectDoubleBuffer(),
        loops.StorageRewrite(),
        blocks.HoistIfThenElse(),
        loops.UnrollLoop(),
        blocks.RenormalizeSplitPattern(),
        loops.StmtSimplify(),
        loops.RemoveNoOp(),
        GuardLoads(),
        loops.CommonSubexprElim(),
        StoreNarrowBindings(),
        loops.FP8ComputeLegalize(),
        blocks.VerifyVTCMLimit(),
        blocks.LowerVtcmAlloc(),
        loops.VerifyMemory(),
        loops.AnnotateEntryFunc(),
        blocks.ThreadSync("shared"),
        blocks.ThreadSync("shared.dyn"),
        blocks.ThreadSync("warp"),
        blocks.InferFragment(),
        blocks.LowerThreadAllreduce(),
        blocks.MergeSharedMemoryAllocations(),
        LeaveEarly(),
        loops.SplitHostDevice(),
        loops.MakePackedAPI(),
        loops.FP8StorageLegalize(),
        loops.BF16StorageLegalize(),
    ]


def thread_passes() -> list[Any]:
    """Passes for TVM's thread-level dialect (TIRx); each is a TVM pass."""
    from tvm import s_tir, tirx
    from tvm.backend.cuda import transforms as cuda_transforms

    from tvm_tile.build.exact.bfloat16 import RoundBfloat16
    from tvm_tile.build.exact.narrow_bindings import StoreNarrowBindings
    from tvm_tile.build.exact.quotients import TruncateQuotients
    from tvm_tile.build.vector_calls import ChooseWholeVectors, TakeCallsApart

    loops = tirx.transform
    return [
        loops.LowerTIRx(),
        s_tir.transform.UnifyThreadBinding(),
        loops.StmtSimplify(),
        loops.LowerTIRxOpaque(),
        TruncateQuotients(),
        loops.FlattenBuffer(),
        RoundBfloat16(),
        StoreNarrowBindings(),
        loops.BF16ComputeLegalize(),
        loops.NarrowDataType(32),
        TakeCallsApart(),
        loops.VectorizeLoop(True),
        ChooseWholeVectors(),
        loops.UnrollLoop(),
        loops.StmtSimplify(),
        loops.CommonSubexprElim(),
        StoreNarrowBindings(),
        loops.FP8ComputeLegalize(),
        loops.VerifyMemory(),
        loops.AnnotateEntryFunc(),
        loops.SplitHostDevice(),
        cuda_transforms.LowerIket(),
        loops.MakePackedAPI(),
        loops.FP8StorageLegalize(),
        loops.BF16StorageLegalize(),
    ]
