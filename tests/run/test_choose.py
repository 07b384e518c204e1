"""``tvm_tile.choose``: which device, and how many samples a run."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import tvm_tile
from tvm_tile import Open
from tvm_tile.cli import main
from tvm_tile.device import find_device
from tvm_tile.errors import DynamicShapeError, OptionError
from tvm_tile.oracle import Offer, Offers

DEVICES = "nvidia/h200", "nvidia/a100"


def layer() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(512, 2048), torch.nn.GELU()).eval()


def inputs(samples: int) -> tuple[torch.Tensor, ...]:
    return (torch.zeros(samples, 512),)


def test_each_choice_is_what_is_predicted() -> None:
    sizes = 1, 64
    chosen = tvm_tile.choose(
        dict.fromkeys(sizes, layer()),
        DEVICES,
        example_inputs={n: inputs(n) for n in sizes},
        prices={"nvidia/h200": 4.0, "nvidia/a100": 2.0},
    )
    assert [(one.device, one.samples) for one in chosen.all] == [
        (name, n) for name in DEVICES for n in sizes
    ]
    for one in chosen.all:
        own = tvm_tile.predict(layer(), one.device, example_inputs=inputs(one.samples))
        assert one.seconds == own.predicted_seconds
        assert one.memory >= 4 * 512 * 2048
        assert one.cost == pytest.approx(
            {"nvidia/h200": 4.0, "nvidia/a100": 2.0}[one.device] / 3600 / one.throughput * 1e6
        )
    assert str(chosen).count("\n") == len(chosen.all)
    best = chosen.best
    assert best is not None
    assert best.cost == min(one.cost or 0 for one in chosen.all)


def offers(rows: list[tuple[str, int, float]], latency: float | None = None) -> Offers:
    """Offers that take these seconds, all with the report of one model."""
    report = tvm_tile.predict(torch.nn.ReLU(), "nvidia/h200", example_inputs=(torch.ones(3),))
    only = report.kernels[0]
    found = []
    for name, samples, seconds in rows:
        kernel = replace(only, seconds=seconds, calls=1)
        taken = replace(report, kernels=(kernel,), launches=None)
        found.append(Offer(name, samples, taken, 1e9, 8e10))
    return Offers(tuple(found), latency)


def test_the_front_has_what_nothing_beats() -> None:
    own = offers([("a", 1, 1e-3), ("a", 8, 4e-3), ("b", 1, 2e-3), ("b", 8, 3e-3)])
    assert [(one.device, one.samples) for one in own.front] == [("a", 1), ("b", 8)]
    assert own.best == own.all[3]
    hurried = replace(own, latency=2e-3)
    assert hurried.best == own.all[0]
    assert len(hurried.possible) == 2
    small = Offers(tuple(replace(one, capacity=1.0) for one in own.all))
    assert small.best is None
    assert not small.front


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(OptionError, match="number of samples"):
        tvm_tile.choose({0: layer()}, DEVICES, example_inputs={0: inputs(1)})
    with pytest.raises(OptionError, match="must be a device"):
        tvm_tile.choose({1: layer()}, [], example_inputs={1: inputs(1)})
    with pytest.raises(OptionError, match="nvidia/b200"):
        tvm_tile.choose({1: layer()}, DEVICES, prices={"nvidia/b200": 1.0})
    with pytest.raises(OptionError, match="a price must be a number"):
        tvm_tile.choose({1: layer()}, DEVICES, prices={"nvidia/h200": -1.0})
    with pytest.raises(OptionError, match="latency must be a number"):
        tvm_tile.choose({1: layer()}, DEVICES, latency=float("nan"))
    record = find_device("nvidia/h200")
    slower = replace(record, l2_capacity=record.l2_capacity // 2)
    with pytest.raises(OptionError, match="have one name"):
        tvm_tile.choose({1: layer()}, [record, slower], example_inputs={1: inputs(1)})


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The layer as a file that leaves its batch open."""
    path = tmp_path_factory.mktemp("models") / "layer.pt2"
    batch = torch.export.Dim("batch", min=1, max=64)
    with torch.no_grad():
        program = torch.export.export(layer(), inputs(3), dynamic_shapes=({0: batch},))
    torch.export.save(program, path)
    return path


def test_the_number_of_samples_is_the_batch_that_a_model_leaves_open(opened: Path) -> None:
    chosen = tvm_tile.choose(dict.fromkeys((1, 64), opened), ["nvidia/h200"])
    for one in chosen.all:
        shape = {"input": (one.samples, 512)}
        own = tvm_tile.predict(opened, "nvidia/h200", inputs=shape)
        assert one.seconds == own.predicted_seconds
    one, many = chosen.all
    assert one.seconds < many.seconds
    ranges = {8: {"input": (Open(1, 16), 512)}}
    (given,) = tvm_tile.choose({8: opened}, ["nvidia/h200"], inputs=ranges).all
    own = tvm_tile.predict(opened, "nvidia/h200", inputs={"input": (8, 512)})
    assert given.seconds == own.predicted_seconds
    with pytest.raises(DynamicShapeError, match="from 1 to 64"):
        tvm_tile.choose({65: opened}, ["nvidia/h200"])


def test_devices_are_records_too(opened: Path) -> None:
    record = find_device("nvidia/h200")
    fewer = replace(record, name="nvidia/half", multi_processor_count=66)
    prices = {fewer: 1.0, "nvidia/h200": 2.0}
    chosen = tvm_tile.choose({64: opened}, [record, fewer, record], prices=prices)
    assert [(one.device, one.price) for one in chosen.all] == [
        ("nvidia/h200", 2.0),
        ("nvidia/half", 1.0),
    ]
    assert chosen.all[0].seconds < chosen.all[1].seconds


def test_offers_tell_other_programs_and_a_page(tmp_path: Path) -> None:
    own = offers([("a", 1, 1e-3), ("a", 8, 4e-3), ("b", 1, 2e-3), ("b", 8, 9e-3)], latency=5e-3)
    own = replace(own, all=(*own.all[:2], replace(own.all[2], price=3.6), own.all[3]))
    data = json.loads(own.to_json())
    assert data["latency_seconds"] == 5e-3
    assert data["best"] == 1
    rows = [tuple(one[k] for k in ("device", "samples", "is_possible", "is_on_front"))
            for one in data["offers"]]  # fmt: skip
    assert rows == [
        ("a", 1, True, True),
        ("a", 8, True, True),
        ("b", 1, True, False),
        ("b", 8, False, False),
    ]
    assert data["offers"][2]["price_per_million"] == pytest.approx(3.6 / 3600 / 500 * 1e6)
    assert data["offers"][0]["price_per_hour"] is None
    assert data["offers"][1]["samples_per_second"] == pytest.approx(2000)
    own.save_page(tmp_path / "layer.html")
    text = (tmp_path / "layer.html").read_text(encoding="utf-8")
    assert "<h1>layer</h1>" in text
    for told in ("on the front", "beaten by another", "slower than allowed"):
        assert told in text
    assert "larger than the memory" not in text
    small = replace(own, all=tuple(replace(one, capacity=1.0) for one in own.all))
    small.save_page(tmp_path / "small.html", title="a <b>")
    text = (tmp_path / "small.html").read_text(encoding="utf-8")
    assert "None is possible" in text
    assert "larger than the memory" in text
    assert "<h1>a &lt;b&gt;</h1>" in text


def test_the_command_prints_what_the_function_tells(
    opened: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.html"
    words = ["choose", str(opened), "--device", DEVICES[0], "--device", DEVICES[1]]
    words += ["--batch", "1", "--batch", "64", "--price", "nvidia/h200=4", "--latency", "0.5ms"]
    assert main([*words, "--page", str(page)]) == 0
    heading, *rows = capsys.readouterr().out.splitlines()
    chosen = tvm_tile.choose(
        dict.fromkeys((1, 64), opened), DEVICES, prices={"nvidia/h200": 4.0}, latency=5e-4
    )
    assert heading.split()[:2] == ["device", "samples"]
    told = [" ".join(row).split() for row in chosen.rows()]
    assert [row.split() for row in rows] == told[1:]
    assert "(~)" in rows[2]  # nobody measured an A100
    assert f"<h1>{opened.name}</h1>" in page.read_text(encoding="utf-8")
    assert main([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(chosen.to_json())


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--batch", "8", "--price", "nvidia/b200=3"], "prices are those of the devices"),
        (["--batch", "8", "--input", "input=4x512"], "--batch is the extent of a batch"),
        (["--batch", "8", "--input", "input=[1:4]x512"], "must lie within the range"),
        (["--batch", "100"], "must lie within the range"),
        (["--batch", "8", "--topk", "4"], "builds and runs no kernel"),
        (["--batch", "8", "--page", "/nowhere/page.html"], "the folder of the output must exist"),
    ],
)
def test_the_command_refuses(
    opened: Path, capsys: pytest.CaptureFixture[str], words: list[str], told: str
) -> None:
    assert main(["choose", str(opened), "--device", "nvidia/h200", *words]) == 2
    said = capsys.readouterr()
    assert told in said.err
    assert said.out == ""


@pytest.mark.parametrize(
    "words",
    [[], ["--batch", "0"], ["--batch", "1", "--latency", "5"], ["--batch", "1", "--price", "4"]],
)
def test_words_that_say_nothing_are_refused(opened: Path, words: list[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["choose", str(opened), "--device", "nvidia/h200", *words])
