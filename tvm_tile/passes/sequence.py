"""The order of passes: from operators to functions, and on to the virtual machine's calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import tvm
from tvm import relax

from tvm_tile.device import Device
from tvm_tile.errors import BuildError, TileError, UnsupportedOperatorError
from tvm_tile.graph.user_names import Flows, handed_on
from tvm_tile.loops.remembered import remembering
from tvm_tile.passes.ir.shared_steps import SharedSteps
from tvm_tile.passes.lower.capture_graphs import CaptureGraphs
from tvm_tile.passes.lower.check_ends import CheckEnds
from tvm_tile.passes.lower.lift_workspaces import LiftWorkspaces
from tvm_tile.passes.lower.mark_dependent_launches import MarkDependentLaunches
from tvm_tile.passes.lower.outline_branches import OutlineBranches
from tvm_tile.passes.operators.channels_last import ChannelsLast
from tvm_tile.passes.operators.dispatch_open_sorts import DispatchOpenSorts
from tvm_tile.passes.operators.drop_neutral import DropNeutral
from tvm_tile.passes.operators.empty_tensors import EmptyConstants, EmptyResults, EmptySums
from tvm_tile.passes.operators.fold_constants import FoldConstants
from tvm_tile.passes.operators.group_products import GroupProducts
from tvm_tile.passes.operators.infinite_extrema import InfiniteExtrema
from tvm_tile.passes.operators.inline_constants import InlineConstants
from tvm_tile.passes.operators.multiply_powers import MultiplyPowers
from tvm_tile.passes.operators.name_buffers import NameBuffers
from tvm_tile.passes.operators.narrow_products import NarrowProducts
from tvm_tile.passes.operators.read_transposed import ReadTransposed
from tvm_tile.passes.operators.separate_sinks import SeparateSinks
from tvm_tile.passes.operators.share_equal_values import ShareEqualValues
from tvm_tile.passes.operators.simplify_places import SimplifyPlaces
from tvm_tile.passes.operators.slice_splits import SliceSplits
from tvm_tile.passes.operators.widen_late import WidenLate
from tvm_tile.passes.scheduling.first_choices import FirstChoices, predicted_cost
from tvm_tile.passes.state.separate_in_place import SeparateInPlace
from tvm_tile.passes.weld.fuse_operators import FuseOperators
from tvm_tile.passes.weld.fuse_tiles import FuseTiles, Record
from tvm_tile.passes.weld.join_writes import JoinWrites
from tvm_tile.passes.weld.limit_fusion import LimitFusion
from tvm_tile.passes.weld.mark_draws import MarkDraws
from tvm_tile.passes.weld.mark_gathers import MarkGathers
from tvm_tile.passes.weld.mark_pads import MarkPads
from tvm_tile.passes.weld.mark_reductions import MarkReductions
from tvm_tile.passes.weld.mark_spreads import MarkSpreads
from tvm_tile.passes.weld.mark_streamed import MarkStreamed
from tvm_tile.passes.weld.place_parts import PlaceParts
from tvm_tile.passes.weld.repeat_masks import RepeatMasks
from tvm_tile.passes.weld.split_rows import SplitRows
from tvm_tile.tile.products.matrix_cores import matrix_core_dtypes
from tvm_tile.tile.products.mma import mma_dtypes
from tvm_tile.tile.products.warpgroup import dtypes_by_depth, warpgroup_dtypes
from tvm_tile.tile.weld.side_by_side import Cost

_LEGALIZING = "LegalizeOps"

Refused = dict[Any, str]
"""``content_of`` a function -> why it is made of no others, or scheduled by no rule of ours."""


def fusion_passes(
    device: Device,
    fusion: Sequence[tvm.transform.Pass],
    grouping: Sequence[tvm.transform.Pass] = (),
    *,
    as_stored: bool = False,
    is_open: bool = False,
) -> list[tvm.transform.Pass]:
    """The passes that make loops of operators and groups of loops; plain reshapes become views.

    What ``grouping`` joins, while they are operators, becomes loops at once. All constants are read
    as they are stored, if ``as_stored``. Functions of open extents are those of no other model.
    """
    multiplied = matrix_dtypes(device)
    return [
        OutlineBranches(),
        relax.transform.ConvertToDataflow(),
        SliceSplits(),
        DropNeutral(),
        relax.transform.CanonicalizeBindings(),
        relax.transform.DeadCodeElimination(),
        SeparateSinks(),
        SeparateInPlace(),
        NarrowProducts(multiplied),
        *grouping,
        GroupProducts(),
        ReadTransposed(dtypes_by_depth(device) | matrix_core_dtypes(device), as_stored, multiplied),
        relax.transform.DecomposeOpsForInference(),
        relax.transform.CanonicalizeBindings(),
        ChannelsLast(multiplied),
        WidenLate(),
        ShareEqualValues(),
        DispatchOpenSorts(),
        relax.transform.LegalizeOps(remembering(across_models=not is_open)),
        EmptyResults(),
        EmptySums(),
        InfiniteExtrema(),
        MultiplyPowers(),
        SimplifyPlaces(),
        *fusion,
        relax.transform.RewriteDataflowReshape(),
        relax.transform.DeadCodeElimination(),
    ]


def matrix_dtypes(device: Device) -> frozenset[str]:
    """Element types of the operands that a device's matrix units multiply."""
    return warpgroup_dtypes(device) | mma_dtypes(device) | matrix_core_dtypes(device)


def operator_loops() -> list[tvm.transform.Pass]:
    """The passes that make loops of each operator by itself, whatever its extents."""
    return [
        relax.transform.ConvertToDataflow(),
        DropNeutral(),
        relax.transform.DecomposeOpsForInference(),
        relax.transform.CanonicalizeBindings(),
        relax.transform.DeadCodeElimination(),
        DispatchOpenSorts(),
        relax.transform.LegalizeOps(remembering(across_models=False)),
    ]


def fused_cost(
    device: Device, first: FirstChoices | None = None, refused: Refused | None = None
) -> Callable[[tvm.IRModule], Cost | None]:
    """A function that predicts the cost of a part of a module, for
    :class:`~tvm_tile.passes.JoinProducts`.

    Args:
        device: the device that it is compiled for.
        first: scheduler of functions, shared with whoever schedules them afterwards.
        refused: why functions must not be made of others, by their contents.

    Returns:
        A function of a module with ``main``, operators in one dataflow block, that fuses it as the
        pipeline does; its result is ``None`` where no rule of ours takes a kernel of it.
    """
    first = first or FirstChoices(device)

    def cost(part: tvm.IRModule) -> Cost | None:
        passes = fusion_passes(device, welding(device, None, first, refused))
        return predicted_cost(run_passes(passes, part, keeps_names=False), first)

    return cost


def run_passes(
    passes: Sequence[tvm.transform.Pass],
    mod: tvm.IRModule,
    *,
    keeps_names: bool = True,
    shared: SharedSteps | None = None,
) -> tvm.IRModule:
    """Run passes in their order; values keep the names that they have in the user's model, unless
    nobody is to see the result. What is known of ``shared`` steps is not done again.

    Raises:
        UnsupportedOperatorError: TVM cannot write an operator's loops.
        BuildError: a pass fails, which is named.
    """
    flows = Flows()
    for step in passes:
        known = None if shared is None else shared.find(step, mod)
        if known is not None:
            mod = known
            continue
        before = mod
        try:
            # Alone, so that it is known who failed.
            passed = tvm.transform.Sequential([step])(mod)
            mod = handed_on(mod, passed, flows) if keeps_names else passed
        except TileError:
            raise
        except Exception as error:
            found = str(error).strip().partition("\n")[0]
            if step.info.name == _LEGALIZING:
                raise UnsupportedOperatorError(
                    "TVM must have loops for every operator of the model, of its data types",
                    found,
                    "cast the operator's inputs to types that it is defined for",
                ) from error
            raise BuildError(
                "the model must pass every stage",
                f"{step.info.name} fails: {type(error).__name__}: {found}",
                "report it, with the model",
            ) from error
        if shared is not None:
            shared.keep(step, before, mod)
    return mod


def stock_fusion() -> list[tvm.transform.Pass]:
    """The passes by which TVM fuses of itself."""
    return [
        relax.transform.AnnotateTIROpPattern(),
        MarkPads(),
        FoldConstants(),
        *_fusion(),
    ]


def welding(
    device: Device,
    record: Record | None = None,
    first: FirstChoices | None = None,
    refused: Refused | None = None,
    *,
    is_open: bool = False,
) -> list[tvm.transform.Pass]:
    """The passes of stock fusion, told more about reductions, and again; then those by which the
    model takes kernels apart and joins them."""
    return [
        *_patterns(),
        FoldConstants(is_open),
        InlineConstants(),
        RepeatMasks(is_open),
        *_fusion(),
        # Once more, for what feeds reductions.
        MarkReductions(),
        *_patterns(),
        *_fusion(),
        # And for what follows them: a mean's division, the rounding of a sum to half precision.
        MarkReductions(with_followers=True),
        *_patterns(),
        *_fusion(),
        SplitRows(device, first),
        MarkStreamed(device),
        FuseTiles(device, record, first, refused),
        JoinWrites(device, first, refused),
        PlaceParts(device, record, first, refused),
    ]


def _patterns() -> list[tvm.transform.Pass]:
    """The passes that tell TVM's fusion about functions that are to be welded."""
    marks = [MarkPads(), MarkDraws(), MarkGathers(), MarkSpreads()]
    return [relax.transform.AnnotateTIROpPattern(), *marks]


def _fusion() -> list[tvm.transform.Pass]:
    """The passes of TVM's fusion, with groups no larger than a kernel can take."""
    return [
        LimitFusion(),
        FuseOperators(),
        relax.transform.FuseTIR(),
        NameBuffers(),
    ]


def preparing_passes(
    device: Device, early: bool | Literal["auto"], seconds: Mapping[str, float]
) -> tvm.transform.Pass:
    """The passes ahead of building, so that no scheduled function is built twice.

    Args:
        device: the device that they are made for.
        early: kernels of graphs that start while the one before them ends: none, all that can, or
            those that the model says it pays for.
        seconds: name of a function -> predicted time of a call.
    """
    marks = [] if early is False else [MarkDependentLaunches(device, early is True, seconds)]
    return tvm.transform.Sequential([LiftWorkspaces(), *marks])


def lowering_passes(
    device: Device, passing: Sequence[tvm.transform.Pass] = ()
) -> list[tvm.transform.Pass]:
    """The passes that lower calls and memory to the virtual machine's terms.

    Behind ``passing``, if anything, ``main`` is called in another way than the model says.
    """
    graph = [CaptureGraphs()] if device.supports_graphs else []
    return [
        relax.transform.ToNonDataflow(),
        relax.transform.RemovePurityChecking(),
        CheckEnds(),
        EmptyConstants(),
        relax.transform.CallTIRRewrite(),
        # Outputs without the tuples that they came in, which would hold their memory.
        relax.transform.CanonicalizeBindings(),
        relax.transform.DeadCodeElimination(),
        relax.transform.StaticPlanBlockMemory(),
        *graph,
        *passing,
        relax.transform.LowerAllocTensor(),
        relax.transform.KillAfterLastUse(),
        relax.transform.LowerRuntimeBuiltin(),
        relax.transform.ComputePrimValue(),
        relax.transform.VMShapeLower(),
        relax.transform.AttachGlobalSymbol(),
    ]
