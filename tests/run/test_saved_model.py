"""Saved models: complete, checked, all or nothing."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.metadata
import json
import os
import stat
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scheduled import compile_model
from tvm.relax import op

import tvm_tile.build.cuda
from tvm_tile.errors import BuildError, RunError, SavedModelError
from tvm_tile.files import whole_file
from tvm_tile.runtime import CompiledModel, artifact, load

MANIFEST = "manifest.json"
REPORT = {"device": "x", "kernels": [], "notes": []}
# Its edge leads from the eighth of one function to the ninth.
DECISION = {"functions": ["f"], "edges": [{"maker": 7, "taker": 8, "size": 1, "is_view": False}]}
X = np.linspace(-2, 2, 6 * 16, dtype="float32").reshape(6, 16)


def body(x: Any) -> Any:
    return op.nn.softmax(op.nn.relu(x), axis=-1)


@pytest.fixture(scope="module")
def model() -> CompiledModel:
    return compile_model(body, (X.shape,))


@pytest.fixture(scope="module")
def good(model: CompiledModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("saved") / "good.tvmtile"
    model.save(path)
    return path


def rewrite(source: Path, path: Path, change: Callable[[dict[str, bytes]], None]) -> Path:
    """A copy with changed members, its zip structure sound."""
    with zipfile.ZipFile(source) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
        comment = archive.comment
    change(members)
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
        archive.comment = comment
    return path


class TestRoundTrip:
    def test_everything_comes_back(self, model: CompiledModel, good: Path) -> None:
        loaded = load(good)
        assert loaded.program == model.program
        assert loaded.device_name == model.device_name
        assert (loaded.inputs, loaded.outputs) == (model.inputs, model.outputs)
        assert loaded.report == model.report
        np.testing.assert_array_equal(loaded(X), model(X))

    def test_another_process_gets_the_same_numbers(
        self, model: CompiledModel, good: Path, tmp_path: Path
    ) -> None:
        np.save(tmp_path / "x.npy", X)
        code = (
            "import sys, numpy\n"
            "from tvm_tile.runtime import load\n"
            "numpy.save(sys.argv[3], load(sys.argv[1])(numpy.load(sys.argv[2])))\n"
        )
        arguments = [str(good), str(tmp_path / "x.npy"), str(tmp_path / "y.npy")]
        subprocess.run([sys.executable, "-c", code, *arguments], check=True, timeout=900)
        np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), model(X))

    def test_a_gpus_machine_code_is_inside_and_no_compiler_is_asked(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        model = compile_model(body, (X.shape,), device_name="nvidia/h200")
        path = tmp_path / "gpu.tvmtile"
        model.save(path)
        with zipfile.ZipFile(path) as archive:
            cubins = [name for name in archive.namelist() if name.endswith(".cubin")]
            assert len(cubins) == len(model.program.kernels) > 0
            assert all(archive.read(name).startswith(b"\x7fELF") for name in cubins)
        monkeypatch.setattr(tvm_tile.build.cuda, "compile_cuda", None)
        assert load(path).program == model.program

    def test_equal_models_are_equal_files(
        self, model: CompiledModel, good: Path, tmp_path: Path
    ) -> None:
        model.save(str(tmp_path / "again.tvmtile"))
        assert (tmp_path / "again.tvmtile").read_bytes() == good.read_bytes()

    def test_permissions_follow_the_users_mask(self, model: CompiledModel, tmp_path: Path) -> None:
        mask = os.umask(0o027)
        try:
            model.save(tmp_path / "m.tvmtile")
        finally:
            os.umask(mask)
        assert stat.S_IMODE((tmp_path / "m.tvmtile").stat().st_mode) == 0o640


class TestAllOrNothing:
    @pytest.mark.parametrize("step", ["fsync", "write"])
    def test_a_failed_save_leaves_the_old_file_and_no_other(
        self, model: CompiledModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
    ) -> None:
        def fail(*_arguments: Any) -> None:
            raise OSError("disk full")

        path = tmp_path / "m.tvmtile"
        path.write_bytes(b"old")
        if step == "fsync":
            monkeypatch.setattr(artifact.os, "fsync", fail)
        else:
            monkeypatch.setattr(artifact.zipfile.ZipFile, "writestr", fail)
        with pytest.raises(OSError, match="disk full"):
            model.save(path)
        assert path.read_bytes() == b"old"
        assert list(tmp_path.iterdir()) == [path]

    def test_a_missing_folder_is_told(self, model: CompiledModel, tmp_path: Path) -> None:
        with pytest.raises(SavedModelError, match=r"folder[^§]*no\n[^§]*create it"):
            model.save(tmp_path / "no" / "m.tvmtile")

    @pytest.mark.parametrize("name", ["model.onnx", "model.pt2", "model.relay"])
    def test_a_model_that_is_not_compiled_is_not_loaded(self, name: str, tmp_path: Path) -> None:
        (tmp_path / name).write_bytes(b"PK or anything")
        with pytest.raises(SavedModelError, match=r"not compiled[^§]*tvm_tile\.compile"):
            tvm_tile.load(tmp_path / name)


def _orphan(folder: Path, age: float) -> Path:
    path = folder / f".tvm_tile-{age}.tmp"
    path.write_bytes(b"half")
    os.utime(path, (time.time() - age,) * 2)
    return path


class TestManyWriters:
    def test_threads_may_save_to_one_path(self, model: CompiledModel, tmp_path: Path) -> None:
        path = tmp_path / "m.tvmtile"
        with ThreadPoolExecutor(4) as pool:
            for done in [pool.submit(model.save, path) for _ in range(24)]:
                done.result()
        assert load(path).program == model.program
        assert list(tmp_path.iterdir()) == [path]

    def test_a_file_system_without_unnamed_files(
        self, model: CompiledModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        dead, young, locked = (_orphan(tmp_path, age) for age in (3600, 1, 7200))
        monkeypatch.setattr(whole_file.os.path, "isdir", lambda _: False)
        with locked.open() as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # its writer lives
            model.save(tmp_path / "m.tvmtile")
        assert load(tmp_path / "m.tvmtile").program == model.program
        assert [path.exists() for path in (dead, young, locked)] == [False, True, True]

    def test_links_and_what_is_no_file(self, model: CompiledModel, tmp_path: Path) -> None:
        kept = tmp_path / "kept"
        kept.write_bytes(b"kept")
        (tmp_path / "link").symlink_to(kept)
        model.save(tmp_path / "link")
        assert (kept.read_bytes(), (tmp_path / "link").is_symlink()) == (b"kept", False)
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(FileExistsError):
            model.save(tmp_path / "pipe")


def _forged(good: Path, path: Path, change: Callable[[Any], None]) -> Path:
    """A copy whose manifest is changed, and whose sums are right again."""
    with zipfile.ZipFile(good) as archive:
        manifest = json.loads(archive.read(MANIFEST))
    change(manifest)
    text = json.dumps(manifest).encode()
    rewrite(good, path, lambda members: members.update({MANIFEST: text}))
    with zipfile.ZipFile(path, "a") as archive:
        archive.comment = hashlib.sha256(text).hexdigest().encode()
    return path


class TestForgery:
    """Sums that are recomputed find nothing; what makes no sense is refused all the same."""

    @pytest.mark.parametrize(
        ("key", "value"),
        [
            ("language", "java"),
            ("language", 3),
            ("arch", "../x"),
            ("device", None),
            ("entry inputs", [{"name": "x", "shape": [-1], "dtype": "float32"}]),
            ("entry inputs", [{"name": "x", "shape": [1.5], "dtype": "float32"}]),
            ("entry inputs", [{"name": "x", "shape": [1], "dtype": "object"}]),
            ("entry inputs", {"x": 1}),
            ("entry outputs", [[]]),
            ("entry copied_outputs", [7]),
            ("entry copied_outputs", [True]),
            ("entry returned_state", [0]),
            ("entry kernels", []),
            ("entry kernels", [{"name": "a b", "arg_types": [], "launch_params": []}] * 2),
            ("entry report", "{"),
            ("entry report", "[]"),
            ("entry report", '{"device": "x", "kernels": [3], "notes": []}'),
            ("entry report", '{"device": "x", "kernels": [], "notes": [3]}'),
            ("entry report", json.dumps({**REPORT, "decisions": [DECISION]})),
            ("entry weights", 3),
            ("entry constants", [0]),
            ("entry name", 7),
            ("entries", []),
            ("entries", {}),
            ("constants", [{"shape": [1], "dtype": "object"}]),
            ("members", []),
            ("members", {"0/vm.bin": {"size": 1}}),
            ("more", 1),
            ("entry more", 1),
        ],
    )
    def test_a_manifest_that_makes_no_sense(
        self, good: Path, tmp_path: Path, key: str, value: Any
    ) -> None:
        def change(manifest: Any) -> None:
            (entry,) = manifest["entries"]
            home = entry if key.startswith("entry ") else manifest
            home[key.removeprefix("entry ")] = value

        path = _forged(good, tmp_path / "m.tvmtile", change)
        with pytest.raises(SavedModelError):
            load(path)

    def test_code_that_does_not_load_is_a_typed_error(self, good: Path, tmp_path: Path) -> None:
        for name in ("0/host.bc", "0/vm.bin", "0/kernels/0.src"):
            garbage = b"garbage " * 9

            def change(manifest: Any, name: str = name, garbage: bytes = garbage) -> None:
                entry = {"size": len(garbage), "sha256": hashlib.sha256(garbage).hexdigest()}
                manifest["members"][name] = entry

            path = _forged(good, tmp_path / "m.tvmtile", change)
            rewrite(path, path, lambda members, n=name, g=garbage: members.update({n: g}))
            model = load(path)
            with pytest.raises((RunError, BuildError)):
                model(X)

    def test_no_more_memory_than_the_file_deserves(self, good: Path, tmp_path: Path) -> None:
        bomb = tmp_path / "bomb.tvmtile"
        with zipfile.ZipFile(good) as source, zipfile.ZipFile(bomb, "w") as archive:
            for name in source.namelist():
                archive.writestr(name, source.read(name))
            with archive.open(
                zipfile.ZipInfo("kernels/9.src"), "w", force_zip64=True
            ) as member:  # stored; its directory entry will lie
                member.write(b"x")
            archive.infolist()[-1].file_size = 6 << 30
            archive.comment = source.comment
        with pytest.raises(SavedModelError, match="would become"):
            load(bomb)

    def test_what_never_ends(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe")
        for path in (tmp_path / "pipe", Path("/dev/zero")):
            with pytest.raises(SavedModelError, match="not a regular file"):
                load(path)

    @pytest.mark.parametrize("path", [None, 3, "a\0b"])
    def test_what_is_no_path(self, path: Any) -> None:
        with pytest.raises(SavedModelError, match="path"):
            load(path)


class TestDamage:
    def test_a_missing_file(self, tmp_path: Path) -> None:
        with pytest.raises(SavedModelError, match="no file"):
            load(tmp_path / "none.tvmtile")

    @pytest.mark.parametrize("content", [b"", b"no zip at all", b"PK\x03\x04"])
    def test_no_saved_model(self, tmp_path: Path, content: bytes) -> None:
        path = tmp_path / "m.tvmtile"
        path.write_bytes(content)
        with pytest.raises(SavedModelError, match="exactly as it was written"):
            load(path)

    def test_a_folder_or_another_zip(self, tmp_path: Path) -> None:
        with pytest.raises(SavedModelError):
            load(tmp_path)
        with zipfile.ZipFile(tmp_path / "m.zip", "w") as archive:
            archive.writestr("hello", "world")
        with pytest.raises(SavedModelError, match=r"manifest\.json"):
            load(tmp_path / "m.zip")

    @settings(
        max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
    )
    @given(fraction=st.floats(0, 1, exclude_max=True))
    def test_truncation_anywhere(self, good: Path, tmp_path: Path, fraction: float) -> None:
        data = good.read_bytes()
        path = tmp_path / "m.tvmtile"
        path.write_bytes(data[: int(len(data) * fraction)])
        with pytest.raises(SavedModelError):
            load(path)

    @settings(
        max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
    )
    @given(fraction=st.floats(0, 1, exclude_max=True), flip=st.integers(1, 255))
    def test_a_changed_byte_is_found_or_harmless(
        self, model: CompiledModel, good: Path, tmp_path: Path, fraction: float, flip: int
    ) -> None:
        data = bytearray(good.read_bytes())
        data[int(len(data) * fraction)] ^= flip
        path = tmp_path / "m.tvmtile"
        path.write_bytes(data)
        with contextlib.suppress(SavedModelError):
            # Some bytes of a zip mean nothing, such as a member's date.
            assert load(path).program == model.program

    def test_every_members_sum_is_checked(self, good: Path, tmp_path: Path) -> None:
        with zipfile.ZipFile(good) as archive:
            names = archive.namelist()
        assert {"manifest.json", "0/vm.bin", "0/host.bc", "0/kernels/0.src"} <= set(names)
        for name in names:

            def append(members: dict[str, bytes], name: str = name) -> None:
                members[name] += b" "

            with pytest.raises(SavedModelError, match=f"{name} has been changed"):
                load(rewrite(good, tmp_path / "m.tvmtile", append))

    def test_every_member_must_be_there(self, good: Path, tmp_path: Path) -> None:
        with zipfile.ZipFile(good) as archive:
            names = archive.namelist()
        for name in names:
            with pytest.raises(SavedModelError, match=name):
                load(rewrite(good, tmp_path / "m.tvmtile", lambda members, n=name: members.pop(n)))

    def test_a_forged_manifest_must_still_make_sense(self, good: Path, tmp_path: Path) -> None:
        with zipfile.ZipFile(good) as archive:
            manifest = json.loads(archive.read("manifest.json"))
        for key in manifest:
            text = json.dumps({k: v for k, v in manifest.items() if k != key}).encode()
            path = rewrite(
                good,
                tmp_path / "m.tvmtile",
                lambda members, t=text: members.update({"manifest.json": t}),
            )
            with zipfile.ZipFile(path, "a") as archive:
                archive.comment = hashlib.sha256(text).hexdigest().encode()
            if key == "tvm_tile":  # only for people
                load(path)
                continue
            with pytest.raises(SavedModelError):
                load(path)


class TestVersions:
    @pytest.mark.parametrize(
        ("package", "version", "fits"),
        [
            ("apache-tvm", "0.28.0", False),
            ("apache-tvm-ffi", "0.1.15", False),
            ("apache-tvm-ffi", "0.1.14.post7", True),
        ],
    )
    def test_other_packages(
        self, good: Path, monkeypatch: pytest.MonkeyPatch, package: str, version: str, fits: bool
    ) -> None:
        installed = importlib.metadata.version
        monkeypatch.setattr(
            importlib.metadata,
            "version",
            lambda name: version if name == package else installed(name),
        )
        if fits:
            load(good)
        else:
            with pytest.raises(SavedModelError, match=f"{version}[\\s\\S]*was saved with"):
                load(good)

    def test_another_format(self, good: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        present = artifact.FORMAT_VERSION
        monkeypatch.setattr(artifact, "FORMAT_VERSION", present + 1)
        with pytest.raises(SavedModelError, match=rf"format {present + 1}[\s\S]*format {present}"):
            load(good)
