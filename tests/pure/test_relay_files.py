"""What a file is, by what is in it."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import numpy as np
import pytest
import relay_corpus
from relay_programs import difference
from test_relay_arrays import saved_params

from tvm_tile.errors import ModelFileError
from tvm_tile.frontend.relay.files import Format, format_of, read_program, renamed

CASE = relay_corpus.CASES["names/plain"]
WEIGHTS = (CASE.folder / "params.bin").read_bytes()


def library(**members: bytes) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return file.getvalue()


def test_formats_are_told_by_content() -> None:
    assert format_of(b"\n " + CASE.text.encode()) is Format.TEXT
    assert format_of(CASE.json) is Format.JSON
    assert format_of(library(x=b"")) is Format.LIBRARY
    assert format_of(WEIGHTS) is None
    assert format_of(b"") is None


def test_paths_bytes_and_strings_are_the_same_program(tmp_path: Path) -> None:
    other_suffix = tmp_path / "model.onnx"
    other_suffix.write_bytes(CASE.json)
    expected, params = read_program(CASE.text, "text")
    assert params is None
    for model in (CASE.text_path, CASE.text.encode(), CASE.json, CASE.json.decode(), other_suffix):
        assert difference(expected, read_program(model, "model")[0]) == ""


@pytest.mark.parametrize("text", ["src/relay.txt", "./relay.txt", "codegen/src/mod/relay.txt"])
def test_a_library_has_its_program_and_weights(text: str) -> None:
    members = {text: CASE.text.encode(), "parameters/default.params": WEIGHTS, "lib.c": b"int"}
    program, params = read_program(library(**members), "library")
    assert difference(program, read_program(CASE.json, "json")[0]) == ""
    assert params is not None
    assert set(params) == set(CASE.params)


def test_a_library_may_have_no_weights() -> None:
    assert read_program(library(**{"relay.txt": CASE.text.encode()}), "library")[1] is None


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (library(a=b""), "0 programs"),
        (library(**{"a/relay.txt": b"", "b/relay.txt": b""}), "2 programs"),
        (library(**{"relay.txt": CASE.text.encode()})[:900], "unexpected end of data"),
        (library(**{"relay.txt": b"\xff"}), "UTF-8"),
        (
            library(**{"relay.txt": CASE.text.encode(), "a.params": WEIGHTS, "b.params": WEIGHTS}),
            "names tensors that another file names",
        ),
        (library(**{"relay.txt": CASE.text.encode(), "a.params": b"x"}), "a.params: it is cut"),
        (b"PK\x03\x04", "begins with b'PK"),
        (b"", "begins with b''"),
        (WEIGHTS, "weights alone are none"),
    ],
)
def test_bad_files_are_refused(data: bytes, said: str) -> None:
    with pytest.raises(ModelFileError) as error:
        read_program(data, "file")
    assert said in str(error.value)


def test_a_link_in_a_library_is_not_followed() -> None:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        info = tarfile.TarInfo("relay.txt")
        info.type, info.linkname = tarfile.SYMTYPE, "/etc/hostname"
        archive.addfile(info)
    with pytest.raises(ModelFileError, match="no ordinary file"):
        read_program(file.getvalue(), "library")


def test_an_absurd_size_is_refused_unread() -> None:
    file = io.BytesIO()
    info = tarfile.TarInfo("relay.txt")
    info.size = 2**40
    file.write(info.tobuf(tarfile.GNU_FORMAT) + bytes(1024))
    with pytest.raises(ModelFileError, match=r"Model Library Format|no ordinary file"):
        read_program(file.getvalue(), "library")


def test_missing_files_and_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="is a folder"):
        read_program(tmp_path, "folder")
    with pytest.raises(ModelFileError, match="is missing"):
        read_program(tmp_path / "no", "no")


def test_weights_get_the_names_that_a_text_has() -> None:
    case = relay_corpus.CASES["names/digits"]
    program, _ = read_program(case.text_path, case.name)
    parameters = {parameter.name for parameter in program.functions["main"].parameters}
    assert set(renamed(case.params, program)) <= parameters
    assert not set(case.params) <= parameters
    unchanged = read_program(case.json, case.name)[0]
    assert set(renamed(case.params, unchanged)) == set(case.params)


def test_weights_of_a_library_are_renamed() -> None:
    text = b'#[version = "0.0.5"]\ndef @main(%v1: Tensor[(1), float32]) { %v1 }'
    weights = saved_params([("1", np.ones(1, "float32"))])
    _, params = read_program(library(**{"relay.txt": text, "a.params": weights}), "library")
    assert params is not None
    assert set(params) == {"v1"}
