"""From a model's operators to fused, unscheduled loops."""

from __future__ import annotations

from dataclasses import dataclass

import tvm

from tvm_tile import compat
from tvm_tile.build import rename_by_content
from tvm_tile.device import Device
from tvm_tile.passes import (
    AlignRows,
    ChooseCodes,
    FirstChoices,
    GroupGates,
    JoinProducts,
    LayOutWeights,
    ListKeys,
    SkipZeros,
)
from tvm_tile.passes.ir.shared_steps import shared_steps
from tvm_tile.passes.operators.share_equal_values import ShareEqualValues
from tvm_tile.passes.sequence import (
    Refused,
    fused_cost,
    fusion_passes,
    run_passes,
    stock_fusion,
    welding,
)
from tvm_tile.passes.state.copy_ends import CopyEnds
from tvm_tile.passes.state.write_state import WriteState
from tvm_tile.report.coded_weights import CodedWeight
from tvm_tile.report.skipped_zeros import SkippedZeros, Zeros
from tvm_tile.report.turned_weights import TurnedWeights
from tvm_tile.tile.coded.choice import LowBit
from tvm_tile.tile.weld.connect import Decision


@dataclass(frozen=True, slots=True)
class Fused:
    """A fused model.

    Attributes:
        mod: module whose functions are unscheduled loops.
        decisions: decisions on each group of functions that could be one kernel.
        turned: weights that are stored in another layout than the model has them in.
        coded: weights that arrive as codes of a few bits, and what became of them.
        zeros: weights with zeros that are skipped, or could be.
    """

    mod: tvm.IRModule
    decisions: tuple[Decision, ...]
    turned: tuple[TurnedWeights, ...]
    coded: tuple[CodedWeight, ...]
    zeros: tuple[SkippedZeros, ...] = ()


def fuse(
    mod: tvm.IRModule,
    device: Device,
    first: FirstChoices | None = None,
    refused: Refused | None = None,
    *,
    weld: bool = True,
    low_bit: LowBit = "auto",
    graphs: bool = False,
    state: int = 0,
    as_stored: bool = False,
    zeros: Zeros | None = None,
    is_open: bool = False,
) -> Fused:
    """A model's operators as fused, unscheduled loops, each function named by its content.

    Args:
        mod: a model in Relax.
        device: the device that it is compiled for.
        first: scheduler of functions, shared with whoever schedules the result.
        refused: why functions must not be made of others, by their contents.
        weld: flag as in :class:`~tvm_tile.stages.forced.Forced`.
        low_bit: which weights stay codes, as in :class:`~tvm_tile.options.Options`.
        graphs: whether launches will be captured as graphs.
        state: number of parameters and results of ``main``, the last ones, that are the model's
            state.
        as_stored: whether weights are read as they are stored, since others read them, too.
        zeros: treatment of zeros of weights, as in :class:`~tvm_tile.options.Options`; ``None``
            where they are not looked for.
        is_open: whether extents are to be open, so that no table of tiles holds for them.

    Raises:
        UnsupportedOperatorError: TVM cannot write an operator's loops.
    """
    decisions: list[Decision] = []
    turned: list[TurnedWeights] = []
    coded: list[CodedWeight] = []
    listed: list[SkippedZeros] = []
    first, record = first or FirstChoices(device), decisions.append
    fusion = stock_fusion()
    if weld:
        fusion = welding(device, record, first, refused, is_open=is_open)

    # Without welding no kernel multiplies codes.
    low_bit = low_bit if weld or low_bit is True else False
    gates, cost = GroupGates(device, first, refused), fused_cost(device, first, refused)
    grouping = [gates, ShareEqualValues(), JoinProducts(cost, record)] if weld else []
    turning = LayOutWeights(device, first, refused, turned.append)
    layouts = [] if as_stored else [turning, AlignRows(device, first, refused)]
    skipping = SkipZeros(device, first, refused, listed.append, zeros == "skip")
    layouts += [skipping] if zeros and weld else []
    tables = [ListKeys(device, first)] if weld and not is_open else []
    ends = [CopyEnds(device)] if graphs else []
    codes = ChooseCodes(device, low_bit, cost, coded.append)
    fusing = fusion_passes(device, fusion, grouping, as_stored=as_stored, is_open=is_open)
    passes = [codes, *fusing, *layouts, *tables, WriteState(state), *ends]
    with compat.make_target(device):
        fused = rename_by_content(run_passes(passes, mod, shared=shared_steps()))
    return Fused(fused, tuple(decisions), tuple(turned), tuple(coded), tuple(listed))
