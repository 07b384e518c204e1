"""The table of a decode step's kernels, as far as it goes without a GPU."""

from __future__ import annotations

import pytest

import tvm_tile
from tvm_tile.device import find_device
from tvm_tile.report.activities import Activity, ActivityKind

torch = pytest.importorskip("torch")

from bench import decode_kernels as bench  # noqa: E402


class Two(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (torch.softmax(x, -1) @ x).cos()


def test_a_kernel_adds_what_lies_between_its_end_and_the_one_before() -> None:
    model = tvm_tile.compile(Two(), "emulated", example_inputs=(torch.randn(64, 64),))
    first, second = (kernel.name for kernel in model.report.kernels[:2])
    runs = [
        [
            Activity(f"{first}_kernel", 0.0, 3e-6),
            Activity(f"{second}_kernel", 1e-6, 5e-6),  # begins early
            Activity("a copy", 0.0, 1e-3, kind=ActivityKind.COPY),
            Activity(f"{first}_kernel", 2e-6, 9e-6 + late),
        ]
        for late in (0.0, 0.0, 1e-6)
    ]
    one, other = bench.added(runs, model.report)
    assert (one.name, one.calls, other.name, other.calls) == (first, 2, second, 1)
    assert one.seconds == pytest.approx(3.5e-6)
    assert other.seconds == pytest.approx(2e-6)
    text = bench.table("a model", 1e-5, [one, other], model.report, 1e9)
    *_, row, last = text.splitlines()
    assert row.count("|") == last.count("|") == len(bench._HEADING) + 1
    traffic = model.report.kernels[0].traffic
    assert f"{traffic / 3.5e-6 / 1e9:.2f} |" in row


def test_without_a_gpu_it_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench, "detect_device", lambda: find_device("emulated"))
    assert bench.main([]) == 2
    assert "no GPU" in capsys.readouterr().err
