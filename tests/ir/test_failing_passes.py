"""What fails on the way from operators to groups is a typed error, with the pass's name."""

from __future__ import annotations

import pytest
import tvm
from scheduled import relax_module
from tvm import IRModule
from tvm.relax import op

import tvm_tile
from tvm_tile import find_device
from tvm_tile.errors import BuildError, UnsupportedOperatorError
from tvm_tile.passes import sequence
from tvm_tile.plug_in import blocks_pipeline
from tvm_tile.stages.fusing import fuse

H200 = find_device("nvidia/h200")
NO_LOOPS = r"operator of the model[^§]*bool not supported for absolute op[^§]*cast the operator"


@tvm.transform.module_pass(opt_level=0, name="Trips")
class Trips:
    """A pass of ours with a defect."""

    def transform_module(self, mod: IRModule, ctx: tvm.transform.PassContext) -> IRModule:
        raise KeyError("it trips")


def model(dtype: str) -> IRModule:
    return relax_module(op.abs, ((4, 8),), dtype)


def test_an_operator_that_has_no_loops() -> None:
    with pytest.raises(UnsupportedOperatorError, match=NO_LOOPS) as caught:
        tvm_tile.compile(model("bool"), device="emulated")
    assert isinstance(caught.value.__cause__, tvm.error.InternalError)


@pytest.mark.parametrize("weld", [True, False])
@pytest.mark.parametrize("name", ["WidenLate", "MultiplyPowers"])  # before LegalizeOps, after
def test_a_pass_of_ours(monkeypatch: pytest.MonkeyPatch, name: str, weld: bool) -> None:
    monkeypatch.setattr(sequence, name, Trips)
    with pytest.raises(BuildError, match=r"Trips fails: KeyError: .*it trips") as caught:
        fuse(model("float32"), H200, weld=weld)
    assert isinstance(caught.value.__cause__, KeyError)


def test_in_the_pipeline_of_relax(monkeypatch: pytest.MonkeyPatch) -> None:
    # What a pass in Python raises comes out of TVM as it is.
    target = tvm.target.Target({"kind": "cuda", "arch": "sm_90a"}, host="llvm")
    with target, pytest.raises(UnsupportedOperatorError, match=NO_LOOPS):
        blocks_pipeline()(model("bool"))
    monkeypatch.setattr(sequence, "MultiplyPowers", Trips)
    with target, pytest.raises(BuildError, match="Trips fails"):
        blocks_pipeline()(model("float32"))
