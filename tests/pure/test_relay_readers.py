"""Both readers make the same program of each case in the corpus, and refuse bad files by name."""

from __future__ import annotations

import json

import numpy as np
import pytest
import relay_corpus
from relay_programs import difference

from tvm_tile.errors import ModelFileError
from tvm_tile.frontend.relay.arrays import read_params
from tvm_tile.frontend.relay.files import read_program, renamed
from tvm_tile.frontend.relay.json_file import read_json
from tvm_tile.frontend.relay.program import Call, TensorType
from tvm_tile.frontend.relay.text import read_text

IN_BOTH = [case.name for case in relay_corpus.CASES.values() if case.json_path.is_file()]

# What the readers leave to the conversion.
LATER = {"operator.relay", "open_shape.relay", "random.relay"}
SAID = {
    "array.json": "neither a module nor a function",
    "cut.json": "Unterminated string",
    "cut_metadata.relay": "its metadata: Unterminated string",
    "cut_params.bin": "2560 bytes are missing",
    "cut_text.relay": "line 3, column 66: ';' is expected, and the end is there",
    "cycle.json": "contains itself",
    "no_metadata.relay": "show_meta_data=True",
    "no_version.relay": "text that begins with",
    "not_params.bin": "does not begin as saved weights do",
    "primfunc.json": "no Relay function main",
    "unbound.relay": "%99 is bound nowhere before",
    "version.relay": "text version '0.0.4'",
}


@pytest.mark.parametrize("name", IN_BOTH)
def test_text_and_json_are_the_same_program(name: str) -> None:
    case = relay_corpus.CASES[name]
    assert difference(read_text(case.text, name), read_json(case.json, name)) == ""


@pytest.mark.parametrize("name", relay_corpus.CASES)
def test_inputs_and_weights_are_what_main_takes(name: str) -> None:
    case = relay_corpus.CASES[name]
    program, _ = read_program(case.text_path, case.name)
    main = program.functions["main"]
    weights = renamed(case.params, program)
    types = dict(zip(case.inputs, case.input_arrays(), strict=True)) | case.params
    unweighted = [one for one in main.parameters if one.name not in weights]
    assert len(unweighted) == len(case.inputs) or case.seeded
    for parameter in main.parameters:
        array = weights.get(parameter.name, types.get(parameter.name))
        if array is not None and isinstance(parameter.type, TensorType):
            assert str(array.dtype) == parameter.type.dtype
            extents = zip(array.shape, parameter.type.shape, strict=True)
            assert all(known in (None, extent) for extent, known in extents)


def test_all_bad_files_are_accounted_for() -> None:
    expected = json.loads((relay_corpus.REFUSED / "expected.json").read_text(encoding="utf-8"))
    assert set(expected) == LATER | set(SAID)


@pytest.mark.parametrize("name", SAID)
def test_a_bad_file_is_refused(name: str) -> None:
    path = relay_corpus.REFUSED / name
    with pytest.raises(ModelFileError) as error:
        read_params(path.read_bytes(), name) if path.suffix == ".bin" else read_program(path, name)
    assert SAID[name] in str(error.value)


@pytest.mark.parametrize("name", sorted(LATER))
def test_a_sound_program_that_cannot_run_is_read(name: str) -> None:
    program, _ = read_program(relay_corpus.REFUSED / name, name)
    assert "main" in program.functions


def test_a_saved_function_is_a_program() -> None:
    folder = relay_corpus.CASES["names/plain"].folder
    text, _ = read_program(folder / "model.relay", "text")
    function, _ = read_program(folder / "function.json", "function")
    bare, _ = read_program(folder / "no_types.relay", "bare")
    assert difference(text, function) == ""
    assert difference(text, bare) == ""


def test_attributes_are_complete_and_plain() -> None:
    case = relay_corpus.CASES["ops/conv2d_groups"]
    body = read_text(case.text, case.name).functions["main"].body
    while not (isinstance(body, Call) and "groups" in body.attributes):
        body = body.arguments[0] if isinstance(body, Call) else body.fields[0]  # type: ignore[union-attr]
    assert body.attributes["data_layout"] == "NCHW"
    assert body.attributes["out_dtype"] == ""
    assert body.attributes["dilation"] == (1, 1)
    assert all(not isinstance(value, np.generic | list) for value in body.attributes.values())
