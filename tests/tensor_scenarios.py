"""Scenarios of what tensors models are given, and of how compiled models are called."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any

import torch
from scenarios import Compiled, after, two_layers
from torch import Tensor, nn
from torch_backend_cases import drawn

# --- where tensors lie ---------------------------------------------------------------------------


@after("inductor/test_torchinductor.py: test_unaligned_input, test_misaligned_address_issue1")
def memory_that_begins_elsewhere(compiled: Compiled) -> Any:
    run = compiled(lambda x: torch.relu(x) @ x.t())
    memory = drawn(64)
    with torch.no_grad():
        return [run(memory[at : at + 20].view(4, 5)) for at in (0, 1, 16, 3, 7)]


@after("inductor/test_torchinductor.py: test_input_mutation (unaligned), dynamo/test_repros.py")
def written_where_it_begins_elsewhere(compiled: Compiled) -> Any:
    run = compiled(lambda x: x.mul_(2).sum(0))
    memory = drawn(64)
    with torch.no_grad():
        results = [run(memory[at : at + 20].view(4, 5)) for at in (0, 1, 3)]
    return results, memory


@after("inductor/test_torchinductor.py: test_expanded_reduction, test_as_strided")
def memory_that_is_read_twice(compiled: Compiled) -> Any:
    run = compiled(lambda x: torch.tanh(x) + x.sum(0))
    row, windows = drawn(1, 5), drawn(12).as_strided((4, 5), (2, 1))
    with torch.no_grad():
        return run(row.expand(4, 5)), run(windows), run(drawn(5, 4).t()), run(drawn(4, 10)[:, ::2])


@after("inductor/test_torchinductor.py: test_sizehint_issue1, test_zero_dim_reductions")
def nothing_and_scalars(compiled: Compiled) -> Any:
    def run(x: Tensor) -> Any:
        return (
            torch.relu(x) * 2,
            x.sum(),
            x.new_zeros(0, 3) + 1,
            torch.cat([x.flatten(), x.flatten()]),
        )

    run = compiled(run)
    with torch.no_grad():
        return [run(x) for x in (drawn(), drawn(0), drawn(3, 0, 2), drawn(1), drawn(1, 1))]


@after("inductor/test_torchinductor.py: test_channels_last_conv_strides, test_conv_backward")
def channels_last_with_gradients(compiled: Compiled) -> Any:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
    model = model.to(memory_format=torch.channels_last)
    x = drawn(2, 3, 6, 6).to(memory_format=torch.channels_last).requires_grad_()
    result = compiled(model)(x)
    result.sum().backward()
    return result.stride(), result, x.grad, [p.grad for p in model.parameters()]


@after("dynamo/test_misc.py: test_as_strided_on_base_with_mutation_works")
def as_strided_of_what_was_written(compiled: Compiled) -> Any:
    def run(x: Tensor) -> Tensor:
        y = x.as_strided((2, 2), (3, 1), 1)
        y.add_(10)
        return torch.relu(x) * 2

    x = drawn(3, 3)
    with torch.no_grad():
        return compiled(run)(x), x


# --- element types -------------------------------------------------------------------------------


@after("inductor/test_torchinductor.py: test_dtype_sympy_expr, test_to_dtype, test_bool")
def all_element_types(compiled: Compiled) -> Any:
    def run(x: Tensor, y: Tensor) -> Any:
        return x + y, x * 2, x == y, (x > 0) & (y > 0), x.float() / 3, torch.where(x > y, x, y)

    types = (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64, torch.bool)
    pairs = [((drawn(4, 5) * 5).to(kind), (drawn(4, 5, seed=1) * 5).to(kind)) for kind in types]
    run = compiled(run)
    with torch.no_grad():
        return [run(*pair) for pair in pairs]


@after("dynamo/test_backends.py: test_inplace_normalize")
def types_that_are_promoted(compiled: Compiled) -> Any:
    def run(a: Tensor, b: Tensor) -> Tensor:
        x = torch.cos(a)
        x += b
        return torch.sin(x) + torch.arange(4) / 2 + torch.tensor(2, dtype=torch.int8)

    with torch.no_grad():
        return compiled(run)(drawn(4), drawn(4, seed=1).double())


@after("functorch/test_aotdispatch.py: test_complex_linear")
def complex_products(compiled: Compiled) -> Any:
    torch.manual_seed(0)
    model = nn.Linear(6, 5, dtype=torch.complex64)
    x = torch.complex(drawn(3, 6), drawn(3, 6, seed=1))
    return compiled(lambda x: torch.relu(model(x).abs() * 2) + 1)(x).detach()


@after("inductor/test_torchinductor.py: test_conj, dynamo: lazy conjugates")
def conjugated_inputs(compiled: Compiled) -> Any:
    run = compiled(lambda x: (torch.view_as_real(x * 2).sum(-1) + 1, torch.relu(x.imag)))
    x = torch.complex(drawn(3, 4), drawn(3, 4, seed=1))
    with torch.no_grad():
        return run(x), run(x.conj())


@after("functorch/test_aotdispatch.py: test_embedding_bag_view_dynamic")
def sparse_gradients(compiled: Compiled) -> Any:
    torch.manual_seed(0)
    model = nn.EmbeddingBag(20, 8, sparse=True)
    rows, bags = torch.tensor([1, 2, 4, 5, 4]), torch.tensor([0, 2])
    result = compiled(lambda rows, bags: torch.relu(model(rows, bags).view(-1)) * 2)(rows, bags)
    result.sum().backward()
    return result, model.weight.grad.to_dense()


# --- how models are called -----------------------------------------------------------------------


@after("dynamo/test_backends.py: test_example_inputs")
def numbers_and_tuples(compiled: Compiled) -> Any:
    run = compiled(lambda a, bc, d: a / d - bc[0] / bc[1])
    return [run(drawn(2), (drawn(2), drawn(2, seed=1)), d) for d in (4, 4.5, 5, 7.25, True)]


@after("dynamo/test_misc.py: test_ordered_dict_alias_reconstruct, test_dict_order_keys_tensors")
def dictionaries(compiled: Compiled) -> Any:
    def run(given: dict[str, Tensor]) -> Any:
        return OrderedDict((name, torch.relu(x) * i) for i, (name, x) in enumerate(given.items()))

    run = compiled(run)
    one = run({"a": drawn(3), "b": drawn(4)})
    other = run({"b": drawn(4), "a": drawn(3)})
    assert list(other) == ["b", "a"]
    return dict(one), dict(other)


@after("dynamo/test_unspec.py: test_no_recompilations, test_unspec_float_input")
def numbers_that_change(compiled: Compiled) -> Any:
    def run(x: Tensor, n: int, f: float) -> Tensor:
        return torch.relu(x[:n]) * f + n

    run = compiled(run)
    with torch.no_grad():
        return [
            run(drawn(6, 5), n, f) for n, f in ((2, 0.5), (3, 1.5), (4, 2.5), (6, 1e-3), (0, 1.0))
        ]


@after("dynamo/test_dynamic_shapes.py, dynamo/test_misc.py: test_dynamic_dim_mark")
def sizes_marked_as_open(compiled: Compiled) -> Any:
    model = two_layers()
    run = compiled(lambda x: model(x).mean(0) * x.shape[0])
    results = []
    for size in (5, 3, 8):
        x = drawn(size, 10)
        torch._dynamo.mark_dynamic(x, 0)
        with torch.no_grad():
            results.append(run(x))
    return results


@after("dynamo/test_repros.py: test_reformer_train / dynamic backward")
def open_sizes_with_gradients(compiled: Compiled) -> Any:
    model = two_layers()
    run = compiled(lambda x: model(x)[: x.shape[0] // 2] * x.shape[0], dynamic=True)
    results = []
    for size in (4, 6, 5):
        model.zero_grad()
        x = drawn(size, 10).requires_grad_()
        y = run(x)
        y.sum().backward()
        results.append((y.detach(), x.grad, model[0].weight.grad.clone()))
    return results


@after("dynamo/test_misc.py: test_numpy_basic")
def numpy_inside(compiled: Compiled) -> Any:
    def run(x: Tensor) -> Tensor:
        y = torch.relu(x).numpy() * 2
        return torch.from_numpy(y.sum(0)) + 1

    with torch.no_grad():
        return compiled(run)(drawn(3, 4))


@after("dynamo/test_decorators.py: test_disable_for_custom_op, test_allow_in_graph")
def a_function_that_is_not_compiled(compiled: Compiled) -> Any:
    @torch.compiler.disable
    def left_alone(x: Tensor) -> Tensor:
        return torch.sort(x.flatten())[0]

    with torch.no_grad():
        return compiled(lambda x: torch.relu(left_alone(x * 2)) + 1)(drawn(3, 4))


@after("dynamo/test_misc.py: test_nested_closure, dynamo/test_repros.py: nested compile")
def compiled_within_compiled(compiled: Compiled) -> Any:
    inner = compiled(lambda x: torch.tanh(x) * 2)
    with torch.no_grad():
        return compiled(lambda x: inner(x + 1) - inner(x))(drawn(3, 4))


@after("dynamo/test_misc.py: test_generate_tensor_from_list_of_numpy_primitive_type, test_rng")
def random_numbers_of_generators(compiled: Compiled) -> Any:
    def run(x: Tensor) -> Any:
        noise = torch.randn_like(x)
        kept = torch.bernoulli(torch.full_like(x, 0.5))
        return x * 2 + noise, torch.nn.functional.dropout(torch.relu(x), 0.5) * kept

    run = compiled(run)
    results = []
    for _ in range(2):
        torch.manual_seed(5)
        with torch.no_grad():
            results += [run(drawn(3, 4)), torch.rand(2)]
    return results


@after("dynamo/test_misc.py: test_threading_local, test_compiled_module_truthiness")
def many_threads_at_two_sizes(compiled: Compiled) -> Any:
    model = two_layers()
    run = compiled(model)
    found: dict[int, Tensor] = {}

    def work(number: int) -> None:
        with torch.no_grad():
            for _ in range(3):
                found[number] = run(drawn(2 + number % 2, 10, seed=number))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [found[number] for number in range(4)]


@after("dynamo/test_backends.py: test_backend_graph_freeze")
def frozen_parameters(compiled: Compiled) -> Any:
    model = two_layers().eval()
    with torch._dynamo.config.patch(prepare_freezing=True), torch.no_grad():
        return compiled(model)(drawn(3, 10))


@after("dynamo/test_repros.py: test_list_aliasing, test_slice_into_list_mutable, test_setitem")
def lists_that_are_filled(compiled: Compiled) -> Any:
    def run(x: Tensor, kept: list[Tensor]) -> Tensor:
        for i in range(3):
            kept.append(torch.relu(x + i))
        kept[0] += 1
        return torch.stack(kept).sum(0)

    kept: list[Tensor] = []
    with torch.no_grad():
        return compiled(run)(drawn(3, 4), kept), kept


@after("dynamo/test_exceptions.py: test_exception, test_custom_getattr_on_module_exception")
def errors_that_are_caught(compiled: Compiled) -> Any:
    def run(x: Tensor) -> Tensor:
        try:
            y = torch.relu(x)
            raise NotImplementedError
        except NotImplementedError:
            return y * 2 + 1

    with torch.no_grad():
        return compiled(run)(drawn(3, 4))
