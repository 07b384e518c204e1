"""Programs that TVM 0.17 saved compute what its own executor computed of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from relay_corpus import CASES, REFUSED, Case

import tvm_tile
from bench.cpu_build import run_on_cpu
from tvm_tile import RelayText
from tvm_tile.frontend import Imported, import_model
from tvm_tile.passes.lower.outline_branches import OutlineBranches

pytestmark = pytest.mark.bank(6)

# Of the largest value; "fast" are Relay's own approximations.
TOLERANCES = {"fp32": 2e-5, "fp16": 5e-3, "exact": 0.0, "fast": 2e-3}
REFUSED_CASES = frozenset(
    name for name, case in CASES.items() if case.expect == "may be refused"
) - {"control/ref", "ops/argmax_ties_last"}
EMULATED = ("control/while_loop", "zoo/mlp", "onnx/lstm", "passes/nhwc", "quantised/qnn_block")


def imported(case: Case) -> Imported:
    """From JSON where there is one, which has all digits of the program's numbers."""
    model = case.json_path if case.json_path.is_file() else case.text_path
    names = dict.fromkeys(case.inputs)
    shapes = {
        name: array.shape for name, array in zip(case.inputs, case.input_arrays(), strict=True)
    }
    sizes = shapes if len(names) == len(case.inputs) else None
    return import_model(model, params=case.params or None, inputs=sizes)


def check(case: Case, found: list[np.ndarray]) -> None:
    """Compare outputs with the recorded ones."""
    wanted = case.output_arrays()
    assert len(found) == len(wanted)
    for own, want in zip(found, wanted, strict=True):
        assert own.shape == want.shape
        assert own.dtype == want.dtype
        kind, _, step = case.tolerance.partition(" ")
        left, right = own.astype("float64"), want.astype("float64")
        finite = np.abs(right[np.isfinite(right)])
        room = float(step) * 1.001 if step else TOLERANCES[kind] * finite.max(initial=0.0)
        np.testing.assert_allclose(left, right, rtol=0, atol=room, equal_nan=True)


@pytest.mark.parametrize(
    "name", [n for n, case in CASES.items() if n not in REFUSED_CASES and not case.seeded]
)
def test_a_program_computes_what_it_computed(name: str) -> None:
    case = CASES[name]
    mod = OutlineBranches()(imported(case).mod)  # TVM's own machine has one storage for both
    check(case, run_on_cpu(mod, case.input_arrays(), optimization=0))


@pytest.mark.parametrize("name", sorted(REFUSED_CASES))
def test_what_has_no_counterpart_is_refused_by_name(name: str) -> None:
    with pytest.raises(tvm_tile.UnsupportedOperatorError):
        imported(CASES[name])


@pytest.mark.parametrize("name", EMULATED)
def test_a_programs_kernels_compute_it(name: str) -> None:
    case = CASES[name]
    model = tvm_tile.compile(case.json_path, "emulated", params=case.params or None)
    assert not any(kernel.fallback for kernel in model.report.kernels)
    outputs = model(*case.input_arrays())
    check(case, [np.asarray(o) for o in (outputs if isinstance(outputs, tuple) else (outputs,))])


@pytest.mark.parametrize(
    ("file", "error", "reason"),
    [
        ("no_metadata.relay", tvm_tile.ModelFileError, "show_meta_data=True"),
        ("cut_metadata.relay", tvm_tile.ModelFileError, "metadata"),
        ("cut_text.relay", tvm_tile.ModelFileError, r"line 3, column 66"),
        ("version.relay", tvm_tile.ModelFileError, "0.0.4"),
        ("no_version.relay", tvm_tile.ModelFileError, "version"),
        ("operator.relay", tvm_tile.UnsupportedOperatorError, "nn.mystery"),
        ("unbound.relay", tvm_tile.ModelFileError, "%99"),
        ("array.json", tvm_tile.ModelFileError, "root"),
        ("primfunc.json", tvm_tile.ModelFileError, "no Relay function main"),
        ("cut.json", tvm_tile.ModelFileError, "cut.json"),
        ("open_shape.relay", tvm_tile.DynamicShapeError, "inputs="),
        ("random.relay", tvm_tile.UnsupportedOperatorError, "random.uniform"),
        ("cycle.json", tvm_tile.ModelFileError, "contains itself"),
    ],
)
def test_bad_files(file: str, error: type[tvm_tile.TileError], reason: str) -> None:
    with pytest.raises(error, match=reason):
        import_model(REFUSED / file)


@pytest.mark.parametrize("file", ["cut_params.bin", "not_params.bin"])
def test_bad_parameters(file: str) -> None:
    with pytest.raises(tvm_tile.ModelFileError, match=file):
        import_model(CASES["zoo/mlp"].json_path, params=REFUSED / file)


def test_values_of_others_and_missing_values() -> None:
    case = CASES["zoo/mlp"]
    for change in ({"other": np.ones(3, "float32")}, {}):
        params = {**case.params, **change}
        first = sorted(params)[0]
        del params[first]
        with pytest.raises(tvm_tile.ModelError, match=first):
            import_model(case.json_path, params=params, inputs={"data": (1, 1, 28, 28)})
    with pytest.raises(tvm_tile.ModelError, match="value"):
        import_model(case.json_path, params={"other": np.ones(3, "float32")})
    wrong = {name: array.astype("float64") for name, array in case.params.items()}
    with pytest.raises(tvm_tile.ModelError, match="type"):
        import_model(case.json_path, params=wrong)
    with pytest.raises(tvm_tile.ModelError, match="names other"):
        import_model(case.json_path, inputs={"other": (3,)})
    with pytest.raises(tvm_tile.ModelError, match="params="):
        import_model(case.json_path, params=[1, 2])  # type: ignore[arg-type]


def test_parameters_come_as_a_file_as_bytes_or_by_name(tmp_path: Path) -> None:
    case = CASES["zoo/mlp"]
    content = (case.folder / "params.bin").read_bytes()
    file = tmp_path / "weights"
    file.write_bytes(content)
    for params in (str(file), file, content, case.params):
        found = import_model(RelayText(case.text), params=params)
        assert [signature.name for signature in found.inputs] == ["data"]


def test_parameters_are_those_of_relay_programs() -> None:
    with pytest.raises(tvm_tile.ModelError, match="leave params= out"):
        import_model("model.onnx", params={})
