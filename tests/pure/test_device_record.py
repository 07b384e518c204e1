"""Device records as files: nothing is lost on the way, and nothing broken comes in."""

from __future__ import annotations

import json
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tvm_tile.device import (
    Device,
    MatrixInstruction,
    Measurement,
    MemoryLevel,
    Reading,
    devices,
    find_device,
)
from tvm_tile.device.detect import resolve_device
from tvm_tile.device.record import from_json, read_record, to_json, write_record
from tvm_tile.errors import DeviceRecordError, UnknownDeviceError

H200 = find_device("nvidia/h200")
POSITIVE = st.floats(min_value=1e-12, max_value=1e18)
RATES = st.dictionaries(st.text(max_size=8), POSITIVE).map(lambda d: tuple(sorted(d.items())))
TEXT = st.text(max_size=12)
READINGS = st.builds(Reading, TEXT, TEXT, POSITIVE, TEXT, st.none() | st.floats(0, 1))
MEASUREMENTS = st.builds(
    Measurement,
    TEXT,
    TEXT,
    TEXT,
    st.dictionaries(TEXT, TEXT).map(lambda d: tuple(d.items())),
    st.lists(READINGS, max_size=4).map(tuple),
)


def content(device: Device = H200) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(to_json(device))
    return loaded


@pytest.mark.parametrize("device", devices(), ids=lambda device: device.name)
def test_a_file_gives_back_the_record(device: Device, tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    write_record(device, path)
    assert read_record(path) == device
    assert hash(read_record(path)) == hash(device)
    assert [file.name for file in tmp_path.iterdir()] == ["record.json"]


@given(RATES, POSITIVE, st.integers(1, 10**15), st.none() | MEASUREMENTS)
def test_every_number_survives_exactly(
    rates: tuple[tuple[str, float], ...],
    clock: float,
    capacity: int,
    measured: Measurement | None,
) -> None:
    device = replace(
        H200,
        matrix_flops=rates,
        clock=clock,
        l2_capacity=capacity,
        measured=measured,
        matrix_instructions=(MatrixInstruction((16, 8, 16), "float16", "float32", "mma"),),
    )
    assert from_json(to_json(device)) == device


@pytest.mark.parametrize("name", [field.name for field in fields(Device)])
def test_an_incomplete_record_names_what_is_missing(name: str) -> None:
    record = content()
    del record["device"][name]
    with pytest.raises(DeviceRecordError, match=f"no {name}"):
        from_json(json.dumps(record))


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        ("clock", "fast", "device.clock must be a number"),
        ("clock", True, "device.clock must be a number"),
        ("clock", float("nan"), "device.clock must be a number"),
        ("clock", float("inf"), "device.clock must be a number"),
        ("clock", 0, "device.clock must be positive"),
        ("l2_capacity", 1.5, "device.l2_capacity must be a whole number"),
        ("warp_size", -32, "device.warp_size must be positive"),
        ("register_unit", 0, "device.register_unit must be positive"),
        ("reserved_shared_memory", -1, "device.reserved_shared_memory must be zero or more"),
        ("name", 7, "device.name must be a text"),
        ("supports_graphs", 1, "device.supports_graphs must be true or false"),
        ("peak_flops", {"float16": 1e12}, "include float32"),
        ("peak_flops", {"float32": -1e12}, "device.peak_flops.float32 must be positive"),
        ("peak_flops", {"float32": None}, "device.peak_flops.float32 must be a number"),
        ("peak_flops", [["float32", 1e12]], "device.peak_flops must be an object"),
        ("memories", [], "register, shared and global"),
        ("memories", {}, "device.memories must be a list"),
        ("kernel_language", "metal", "one of cuda, rocm, opencl"),
        ("target", {"kind": "cuda"}, "its arch"),
        ("target", {"kind": "cuda", "arch": "sm_90a"}, "sorted by key"),
        ("target", {"arch": "sm_90a", "kind": "cuda"}, "capacity of shared memory"),
        ("target", {"arch": 1.5}, "device.target.arch must be"),
        ("grid_barrier_latency", None, "just where supports_grid_barrier"),
        ("measured", {"date": "today"}, "no gpu, driver, versions, readings"),
        ("measured", [], "device.measured must be an object"),
        ("surprise", 1, "surprise"),
    ],
)
def test_what_no_device_can_have_is_refused(key: str, value: Any, problem: str) -> None:
    record = content()
    record["device"][key] = value
    with pytest.raises(DeviceRecordError) as raised:
        from_json(json.dumps(record))
    assert problem in str(raised.value)


def test_a_wrong_memory_is_named() -> None:
    record = content()
    record["device"]["memories"][1]["level"] = "texture"
    with pytest.raises(DeviceRecordError, match=r"memories\[1\].level must be one of register"):
        from_json(json.dumps(record))
    record["device"]["memories"][1] |= {"level": "shared", "bandwidth": 0}
    with pytest.raises(DeviceRecordError, match=r"memories.shared.bandwidth must be positive"):
        from_json(json.dumps(record))


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", "7", '{"format": 2}', '{"format": 4, "device": {}}', "[" * 10**5],
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(DeviceRecordError):
        from_json(text)


@given(st.integers(0, len(to_json(H200)) - 3))
def test_a_truncated_file_is_refused(length: int) -> None:
    with pytest.raises(DeviceRecordError):
        from_json(to_json(H200)[:length])


def test_a_file_serves_as_a_device(tmp_path: Path) -> None:
    mine = replace(H200, name="nvidia/mine", clock=1.5e9)
    path = tmp_path / "Mine.json"
    write_record(mine, path)
    assert find_device(str(path)) == mine
    assert resolve_device(f" {path} ") == mine


def test_a_file_that_does_not_serve_is_named(tmp_path: Path) -> None:
    missing, broken, binary = (
        tmp_path / f"{name}.json" for name in ("missing", "broken", "binary")
    )
    broken.write_text(to_json(H200)[:-100], encoding="utf-8")
    binary.write_bytes(b"\xff\xfe\x00")
    for path in (missing, broken, binary, tmp_path / "x.json" / "y.json"):
        with pytest.raises(DeviceRecordError) as raised:
            find_device(str(path))
        assert str(path) in raised.value.current
        assert "tvm-tile calibrate" in raised.value.remedy
    with pytest.raises(UnknownDeviceError):
        find_device(str(tmp_path / "record.txt"))


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    write_record(H200, path)
    with pytest.raises(ValueError, match="JSON compliant"):
        write_record(replace(H200, clock=float("nan")), path)
    assert read_record(path) == H200
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ({"part_power": -0.5}, "device.times.chip.part_power must be positive"),
        ({"block_cycles": 0.0}, "device.times.chip.block_cycles must be positive"),
        ({"block_cycles": "many"}, "device.times.chip.block_cycles must be a number"),
        ({"seconds": 1.0}, "seconds"),
        (None, "device.times.chip must be an object"),
        ({"group_unit": None}, "device.times.chip.group_unit must be given, as there is wgmma"),
        ({"warp_unit": None}, "device.times.chip.warp_unit must be given, as there is mma"),
        (
            {"warp_unit": {**asdict(H200.times.chip)["warp_unit"], "rate_share": 0.0}},
            "device.times.chip.warp_unit.rate_share must be positive",
        ),
    ],
)
def test_times_that_no_kernel_can_take_are_refused(
    value: dict[str, Any] | None, problem: str
) -> None:
    record = content()
    times = record["device"]["times"]
    times["chip"] = None if value is None else times["chip"] | value
    with pytest.raises(DeviceRecordError) as raised:
        from_json(json.dumps(record))
    assert problem in str(raised.value)


def test_times_that_are_left_out_are_named() -> None:
    record = content()
    del record["device"]["times"]["chip"]["meeting_cycles"]
    with pytest.raises(DeviceRecordError, match="no meeting_cycles"):
        from_json(json.dumps(record))


def test_records_from_before_there_were_times_are_refused_with_a_remedy() -> None:
    record = content() | {"format": 2}
    with pytest.raises(DeviceRecordError, match="format 9") as raised:
        from_json(json.dumps(record))
    assert "tvm-tile calibrate" in raised.value.remedy


@pytest.mark.parametrize("name", ["h100", "h200"])
def test_the_shipped_records_are_what_is_written(name: str) -> None:
    file = Path(__file__).parent.parent.parent / f"tvm_tile/device/records/nvidia_{name}.json"
    assert file.read_text(encoding="utf-8") == to_json(find_device(f"nvidia/{name}"))


def test_the_shipped_record_has_all_of_shared_memory() -> None:
    assert H200.memory(MemoryLevel.SHARED).capacity == 227 << 10
