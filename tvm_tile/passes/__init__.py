"""Thin Relax passes: read the IR, ask for a decision, rewrite.

``sequence.py`` is their order. A pass is a frozen dataclass whose fields are its options; those
that are named here run in pipelines of others, too.
"""

from __future__ import annotations

from tvm_tile.passes.coschedule.coschedule_tasks import CoscheduleTasks
from tvm_tile.passes.ir.count_calls import conditional_calls, has_open_loops
from tvm_tile.passes.lower.exact_loops import ExactLoops
from tvm_tile.passes.lower.keep_graph_results import KeepGraphResults
from tvm_tile.passes.lower.lift_workspaces import LiftWorkspaces
from tvm_tile.passes.lower.mark_dependent_launches import MarkDependentLaunches
from tvm_tile.passes.operators.channels_last import ChannelsLast
from tvm_tile.passes.operators.choose_codes import ChooseCodes
from tvm_tile.passes.operators.dispatch_open_sorts import DispatchOpenSorts
from tvm_tile.passes.operators.inline_constants import InlineConstants
from tvm_tile.passes.operators.multiply_powers import MultiplyPowers
from tvm_tile.passes.operators.narrow_products import NarrowProducts
from tvm_tile.passes.operators.read_transposed import ReadTransposed
from tvm_tile.passes.operators.separate_sinks import SeparateSinks
from tvm_tile.passes.operators.simplify_places import SimplifyPlaces
from tvm_tile.passes.operators.widen_late import WidenLate
from tvm_tile.passes.scheduling.first_choices import FirstChoices, content_of
from tvm_tile.passes.scheduling.measure_candidates import MeasureCandidates, given_name
from tvm_tile.passes.scheduling.plan_function import (
    DLIGHT,
    LAST,
    STATEMENTS,
    Plan,
    PlanFunction,
    Remembered,
)
from tvm_tile.passes.scheduling.schedule_tiles import (
    ScheduleTiles,
    foreign_calls,
    schedule_module,
    with_blocks_only,
)
from tvm_tile.passes.scheduling.stored_plans import StoredPlans
from tvm_tile.passes.sequence import fused_cost, matrix_dtypes
from tvm_tile.passes.weld.align_rows import AlignRows
from tvm_tile.passes.weld.fuse_tiles import FuseTiles
from tvm_tile.passes.weld.group_gates import GroupGates
from tvm_tile.passes.weld.join_products import JoinProducts
from tvm_tile.passes.weld.join_writes import JoinWrites
from tvm_tile.passes.weld.lay_out_weights import LayOutWeights
from tvm_tile.passes.weld.list_keys import ListKeys
from tvm_tile.passes.weld.mark_reductions import MarkReductions
from tvm_tile.passes.weld.mark_spreads import MarkSpreads
from tvm_tile.passes.weld.one_function import is_joined
from tvm_tile.passes.weld.place_parts import PlaceParts
from tvm_tile.passes.weld.repeat_masks import RepeatMasks
from tvm_tile.passes.weld.skip_zeros import SkipZeros
from tvm_tile.passes.weld.split_rows import SplitRows

__all__ = [
    "DLIGHT",
    "LAST",
    "STATEMENTS",
    "AlignRows",
    "ChannelsLast",
    "ChooseCodes",
    "CoscheduleTasks",
    "DispatchOpenSorts",
    "ExactLoops",
    "FirstChoices",
    "FuseTiles",
    "GroupGates",
    "InlineConstants",
    "JoinProducts",
    "JoinWrites",
    "KeepGraphResults",
    "LayOutWeights",
    "LiftWorkspaces",
    "ListKeys",
    "MarkDependentLaunches",
    "MarkReductions",
    "MarkSpreads",
    "MeasureCandidates",
    "MultiplyPowers",
    "NarrowProducts",
    "PlaceParts",
    "Plan",
    "PlanFunction",
    "ReadTransposed",
    "Remembered",
    "RepeatMasks",
    "ScheduleTiles",
    "SeparateSinks",
    "SimplifyPlaces",
    "SkipZeros",
    "SplitRows",
    "StoredPlans",
    "WidenLate",
    "conditional_calls",
    "content_of",
    "foreign_calls",
    "fused_cost",
    "given_name",
    "has_open_loops",
    "is_joined",
    "matrix_dtypes",
    "schedule_module",
    "with_blocks_only",
]
