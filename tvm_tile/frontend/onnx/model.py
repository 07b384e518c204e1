"""Read an ONNX model, and settle its inputs. Knows ONNX, not TVM."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx

from tvm_tile.errors import DynamicShapeError, ModelError, ModelFileError
from tvm_tile.errors.closest import did_you_mean
from tvm_tile.frontend.declared import Declared, require_known, shown, unnamed
from tvm_tile.frontend.foreign_files import foreign_format
from tvm_tile.frontend.onnx.check import problems, texts
from tvm_tile.frontend.onnx.kept import write_out_zeros
from tvm_tile.frontend.onnx.rewrite import opset_version, read_names, replace_nodes, walk_nodes
from tvm_tile.frontend.open_inputs import require_names

_log = logging.getLogger(__name__)

#: Tensors up to so many elements may be shapes, axes or sizes, which shape inference reads.
SHAPE_ELEMENTS = 1024


@dataclass(frozen=True, slots=True)
class ValidModel:
    """A model that was read and found valid, once for all who import it.

    Attributes:
        proto: the model, which nobody changes.
    """

    proto: onnx.ModelProto

    @classmethod
    def of(cls, model: str | Path | onnx.ModelProto | ValidModel) -> ValidModel:
        """Read and check a file, or check a model of a caller's, who keeps it as it is.

        Raises:
            ModelFileError: the file is missing, or it is no valid model.
        """
        if isinstance(model, ValidModel):
            return model
        if not isinstance(model, onnx.ModelProto):
            return cls(read_model(Path(model)))
        copy = cls(model).copy()
        validate_model(copy, f"ModelProto {model.graph.name or 'model'!r}")
        return cls(copy)

    def copy(self) -> onnx.ModelProto:
        """The model, to be changed."""
        copy = onnx.ModelProto()
        copy.CopyFrom(self.proto)
        return copy


def read_model(path: Path) -> onnx.ModelProto:
    """Read and validate a model file, with the external weight files beside it.

    Raises:
        ModelFileError: the file is missing, cannot be read, or is not a valid ONNX model.
    """
    if not path.is_file():
        if path.is_dir():
            _refuse_foreign(path)
        raise ModelFileError(
            "the model must be an existing file",
            f"{path} is {'a folder' if path.is_dir() else 'missing'}",
            "check the path; an ONNX model is one file, usually named *.onnx",
        )
    try:
        model = onnx.load(path)
        validate_model(model, str(path))
    except Exception as error:  # protobuf, the operating system and onnx raise their own kinds
        _refuse_foreign(path)
        if isinstance(error, ModelError):
            raise
        raise _corrupt(str(path), error) from error
    return model


def _refuse_foreign(path: Path) -> None:
    """Refuse what is no ONNX model, but one of another format."""
    if (found := foreign_format(path)) is not None:
        raise ModelFileError(
            "a model is a file of ONNX, of torch.export.save (.pt2) or of Relay",
            f"{path} is {found.name}",
            found.remedy,
        )


def validate_model(model: onnx.ModelProto, source: str) -> None:
    """Check a model against the ONNX specification.

    What readers of ONNX commonly forgive is put right before, in place: an old format version,
    and nodes that are not in topological order. Sparse tensors are written out behind it.

    Raises:
        ModelFileError: it is not a valid model; ``source`` names it in the message.
        ModelError: a sparse tensor is too large.
    """
    if model.ir_version == 0 or len(model.graph.output) == 0:
        raise _corrupt(source, "it has no ONNX version or no outputs")
    if not all(isinstance(text, str) for text in texts(model)):
        raise _corrupt(source, "a name or an operator's type is no valid UTF-8")
    for opset in model.opset_import:
        if opset.domain in ("", "ai.onnx") and opset.version > onnx.defs.onnx_opset_version():
            raise ModelFileError(
                f"a model's operator set must be of version {onnx.defs.onnx_opset_version()}, the "
                "newest that the installed onnx knows, or older",
                f"{source}: version {opset.version}",
                "export it to an older opset, or install a newer onnx",
            )
    # Format 3 wants every weight listed as an input, too; many old files leave that out, and
    # from format 4 on they may.
    model.ir_version = max(model.ir_version, 4)
    _sort_nodes(model.graph)
    _name_domains(model)
    # A rank may be unknown here: fix_sizes asks for that of inputs, outputs follow.
    unranked = [value for value in (*model.graph.input, *model.graph.output) if is_unranked(value)]
    for value in unranked:
        value.type.tensor_type.shape.SetInParent()
    for problem in problems(model):
        raise _corrupt(source, problem)
    try:
        onnx.checker.check_model(model)
    except onnx.checker.ValidationError as error:
        raise _corrupt(source, error) from error
    except ValueError as error:  # over 2 GiB: protobuf cannot serialize it for the checker
        _log.info("not checked against the specification: %s", error)
    finally:
        for value in unranked:
            value.type.tensor_type.ClearField("shape")
    try:
        write_out_zeros(model)
    except (ValueError, IndexError) as error:  # where the checker did not look
        raise _corrupt(source, error) from error


def _name_domains(model: onnx.ModelProto) -> None:
    """Move what ONNX Runtime alone takes for standard operators to its domain, in place."""
    version = opset_version(model)
    for node in walk_nodes(model.graph):
        is_norm = node.op_type in ("LayerNormalization", "SimplifiedLayerNormalization")
        if is_norm and not onnx.defs.has(node.op_type, version, node.domain):
            node.domain = "com.microsoft"
            if node.domain not in {opset.domain for opset in model.opset_import}:
                model.opset_import.append(onnx.helper.make_opsetid(node.domain, 1))


def _sort_nodes(graph: onnx.GraphProto) -> None:
    """Move each node behind the ones it reads from, changing the order as little as possible."""
    made_later = {name for node in graph.node for name in node.output if name}
    waiting = list(graph.node)
    ordered: list[onnx.NodeProto] = []
    while waiting:
        blocked = []
        for node in waiting:
            if read_names(node).keys() & made_later:
                blocked.append(node)
            else:
                ordered.append(node)
                made_later.difference_update(node.output)
        if len(blocked) == len(waiting):
            return  # a cycle: the check says so
        waiting = blocked
    if any(a is not b for a, b in zip(ordered, graph.node, strict=True)):
        replace_nodes(graph, ordered)


def is_unranked(value: onnx.ValueInfoProto) -> bool:
    """Whether nothing is said of a tensor's shape."""
    kind = value.type
    return bool(kind.HasField("tensor_type") and not kind.tensor_type.HasField("shape"))


def _corrupt(source: str, reason: object) -> ModelFileError:
    first_line = str(reason).strip().splitlines()[0] if str(reason).strip() else repr(reason)
    return ModelFileError(
        "the model must be a valid ONNX model",
        f"{source}: {first_line}",
        "export or download it again; onnx.checker.check_model says more",
    )


def free_inputs(graph: onnx.GraphProto) -> list[onnx.ValueInfoProto]:
    """The inputs a caller gives: those that no initializer holds a value for."""
    initialized = {tensor.name for tensor in graph.initializer}
    return [value for value in graph.input if value.name not in initialized]


def unwrap_optionals(graph: onnx.GraphProto) -> None:
    """Make inputs that may be left out ordinary ones, in place: a caller gives every input.

    Raises:
        ModelError: an input or output is a sequence or a map.
    """
    for value in (*free_inputs(graph), *graph.output):
        inner = value.type.optional_type.elem_type
        if inner.HasField("tensor_type"):
            tensor = onnx.TypeProto.Tensor()
            tensor.CopyFrom(inner.tensor_type)
            value.type.tensor_type.CopyFrom(tensor)
        kind = value.type.WhichOneof("value")
        if kind not in ("tensor_type", None):
            raise ModelError(
                "inputs and outputs of a model must be tensors",
                f"{value.name!r} is of {kind.removesuffix('_type').replace('_', ' ')} type",
                "export the model so that it takes and returns tensors, not sequences or maps",
            )


def require_types(model: onnx.ModelProto) -> None:
    """Check the element types of all operators' inputs against ONNX's definitions.

    Raises:
        ModelFileError: an operator is given what it is not defined for.
    """
    try:
        onnx.shape_inference.infer_shapes(outline(model), check_type=True)
    except Exception as error:  # of types that do not exist the bindings say so in their own way
        raise _corrupt("its types", error) from error


def dtype_name(code: int) -> str:
    """NumPy's name of an element type of ONNX's."""
    return str(onnx.helper.tensor_dtype_to_np_dtype(code))


def require_type(value: onnx.ValueInfoProto, dtype: str) -> None:
    """Compare the element type that a model lists for an output with the computed one.

    Raises:
        ModelFileError: they differ.
    """
    code = value.type.tensor_type.elem_type
    listed = {int(t) for t in onnx.helper.get_all_tensor_dtypes()}
    if code and (code not in listed or dtype_name(code) != dtype):
        raise _corrupt(f"output {value.name!r}", f"listed with element type {code}, but {dtype}")


def outline(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model without large weights, and without the shapes that it lists for its tensors.

    A model of many gigabytes cannot be serialized, as shape inference does; and the listed shapes
    may be wrong, or of other sizes of the inputs.
    """
    outlined = onnx.ModelProto(ir_version=model.ir_version, opset_import=model.opset_import)
    graph = outlined.graph
    graph.name = "outline"
    graph.input.extend(model.graph.input)
    graph.output.extend(onnx.ValueInfoProto(name=value.name) for value in model.graph.output)
    graph.node.extend(model.graph.node)
    listed = {value.name for value in graph.input}
    for tensor in model.graph.initializer:
        if math.prod(tensor.dims) <= SHAPE_ELEMENTS:
            graph.initializer.append(tensor)
        elif tensor.name not in listed:
            graph.input.append(
                onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
            )
    return outlined


def fix_sizes(model: onnx.ModelProto, sizes: Mapping[str, Sequence[int]]) -> None:
    """Give every input a static shape, in place.

    A named dimension (``batch``) that one input's size settles is settled for all inputs.

    Args:
        model: the model to change.
        sizes: input name -> extents. Inputs whose shape is static need no entry.

    Raises:
        ModelError: an unknown input name, a wrong rank, or a contradiction of a fixed extent.
        DynamicShapeError: an extent stays unknown; all of them are named.
    """
    inputs = {value.name: value for value in free_inputs(model.graph)}
    require_names(sizes, list(inputs))
    named: dict[str, int] = {}
    for name, size in sizes.items():
        _fix_input(inputs[name], tuple(int(extent) for extent in size), named)
    for value in inputs.values():
        for dim in value.type.tensor_type.shape.dim:
            if extent_name(dim) in named:
                dim.dim_value = named[extent_name(dim)]
    _require_static(list(inputs.values()))
    if sizes:
        # Shapes derived from the old, open sizes would contradict the new ones.
        del model.graph.value_info[:]
        for output in model.graph.output:
            if output.type.HasField("tensor_type"):
                output.type.tensor_type.ClearField("shape")


def _fix_input(value: onnx.ValueInfoProto, size: tuple[int, ...], named: dict[str, int]) -> None:
    tensor = value.type.tensor_type
    if not tensor.HasField("shape"):
        for _ in size:
            tensor.shape.dim.add()
        if not size:
            tensor.shape.SetInParent()
    dims, known = tensor.shape.dim, shown(value.name, declared_shape(value))
    if len(dims) != len(size):
        raise ModelError(
            f"the size of input {value.name!r} must have {len(dims)} extents {known}",
            f"{size}",
            "give one extent per dimension, outermost first",
        )
    for dim, extent in zip(dims, size, strict=True):
        expected = dim.dim_value if is_fixed(dim) else named.get(extent_name(dim), extent)
        if extent < 0 or expected != extent:
            raise ModelError(
                f"the size of input {value.name!r} must agree with the model: {known}",
                f"{size}" + (f", with {extent_name(dim)} = {expected}" if extent_name(dim) else ""),
                "give the model's own extents where it fixes them, 0 or more elsewhere",
            )
        if extent_name(dim):
            named[extent_name(dim)] = extent
        dim.dim_value = extent


def _require_static(inputs: Sequence[onnx.ValueInfoProto]) -> None:
    unranked = [value.name for value in inputs if is_unranked(value)]
    if unranked:
        raise DynamicShapeError(
            "the rank of every input must be known when the model is compiled",
            f"an unknown rank of {', '.join(map(repr, unranked))}",
            f"give its size: inputs={{{unranked[0]!r}: (1, ...)}}",
        )
    require_known({value.name: declared_shape(value) for value in inputs}, {})


def declared_shape(
    value: onnx.ValueInfoProto, told: Mapping[int, tuple[int, str]] | None = None
) -> tuple[int | Declared, ...]:
    """The shape of an input whose rank is known.

    Args:
        value: the input. A sequence has no dimensions: the import says what is wrong with it.
        told: axis -> the usual value of an open extent, and who tells it; nothing by default.
    """
    extents: list[int | Declared] = []
    for axis, dim in enumerate(value.type.tensor_type.shape.dim):
        usual, told_by = (told or {}).get(axis, (None, ""))
        name = extent_name(dim) or unnamed(value.name, axis)
        own = Declared(name, usual=usual, told_by=told_by)
        extents.append(int(dim.dim_value) if is_fixed(dim) else own)
    return tuple(extents)


def is_fixed(dim: onnx.TensorShapeProto.Dimension) -> bool:
    """Whether a dimension is a number; some exporters write -1 for an open extent."""
    return bool(dim.HasField("dim_value") and dim.dim_value >= 0)


def extent_name(dim: onnx.TensorShapeProto.Dimension) -> str:
    """The name that makes equal extents one; empty where there is none."""
    # Some exporters write "?" for every open extent: those are as many different ones.
    return "" if dim.dim_param == "?" else str(dim.dim_param)


def bind_constants(model: onnx.ModelProto, constants: Mapping[str, np.ndarray]) -> None:
    """Turn inputs into constants, in place.

    Raises:
        ModelError: a name that is not an input of the model.
    """
    inputs = {value.name: value for value in free_inputs(model.graph)}
    for name, array in constants.items():
        if name not in inputs:
            raise ModelError(
                f"constants= may name the model's inputs: {', '.join(inputs)}",
                f"it names {name!r}",
                did_you_mean(name, inputs, "correct the name"),
            )
        model.graph.input.remove(inputs[name])
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(array), name))
