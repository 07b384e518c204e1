"""The suite of decode steps: its workloads, what a step costs at least, and a run of tiny ones."""

from __future__ import annotations

import copy
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from bench import record as records
from bench.inputs import Placed, draw, reference
from bench.report import decoding
from bench.report.data import suite
from bench.suites import choose, decode, diffusion, prefill
from bench.suites.networks.decode_step import Prompt, decode_step
from tests import tiny_decoders

# Of transformers', whose names change from version to version.
pytestmark = pytest.mark.filterwarnings("ignore:.past_key_values. is deprecated:FutureWarning")


def test_workloads_are_chosen_by_model_context_and_batch() -> None:
    chosen = choose(["decode"], family=["gpt2", "llama-3-8b"], context=["128"], batch=["1", "16"])
    assert [(w.name, w.batch) for w in chosen] == [
        ("llama-3-8b@128", 1),
        ("llama-3-8b@128", 16),
        ("gpt2@128", 1),
        ("gpt2@128", 16),
    ]


@pytest.mark.parametrize("name", tiny_decoders.MODELS)
def test_a_step_may_be_done_again_and_moves_with_its_cache(name: str) -> None:
    workload = next(w for w in tiny_decoders.workloads() if w.family == name and w.batch == 2)
    case = tiny_decoders.case(workload)
    inputs = draw(case, "cpu", 1)
    with torch.no_grad():
        first, tokens = case.module(*inputs)
        again, _ = case.module(*inputs)
        elsewhere, _ = copy.deepcopy(case.module).double()(*inputs)
        behind, _ = Placed("cpu")(case.module)(tokens, inputs[1] + 1)
        former, _ = case.module(*inputs)
    assert torch.equal(first, again)
    assert torch.equal(first, former)  # a copy's cache is its own
    assert not torch.allclose(first, behind)
    assert torch.allclose(first.double(), elsewhere, rtol=1e-3, atol=1e-5)
    assert torch.equal(tokens, first.argmax(-1, keepdim=True))
    assert inputs[1].item() == 20


def test_a_prompt_is_its_steps() -> None:
    made = tiny_decoders.MODELS["llama"]
    prompt, step = (decode_step(*made, 1, 16, torch.float32, "cpu") for _ in range(2))
    tokens = torch.tensor([[5, 3, 8, 1]])
    with torch.no_grad():
        logits, following = Prompt(prompt, 4)(tokens, torch.tensor([2]))
        for place in range(4):
            found, last = step(tokens[:, place : place + 1], torch.tensor([2 + place]))
    assert torch.allclose(logits, found, rtol=1e-4, atol=1e-5)
    assert torch.equal(following, last)


def test_prompts_have_all_lengths_with_each_model() -> None:
    chosen = choose(["prefill"], tokens=["147", "7364"])
    assert len(prefill.workloads()) == 2 * 24
    assert [w.name for w in chosen] == [
        f"{name}@{tokens}" for name in ("llama-3.2-1b", "llama-3-8b") for tokens in (147, 7364)
    ]


def test_parameters_of_placed_modules_are_shared_and_buffers_are_not() -> None:
    module = decode_step(*tiny_decoders.MODELS["llama"], 1, 32, torch.float32, "cpu")
    placed = Placed("cpu")
    one, other = placed(module), placed(module)
    pairs = zip(one.parameters(), other.parameters(), strict=True)
    assert all(mine is its for mine, its in pairs)
    caches = zip(one.cached(), other.cached(), strict=True)
    assert all(mine.data_ptr() != its.data_ptr() for mine, its in caches)


def test_a_step_reads_weights_once_and_the_filled_part_of_the_cache() -> None:
    (model,) = (m for m in decode.FACTS["models"] if m["name"] == "llama-3.2-1b")
    length = 1024 + decode.ROOM
    with torch.device("meta"):
        sizes = {**model["sizes"], "num_hidden_layers": 1}
        step = decode_step(model["kind"], sizes, 1, length, torch.bfloat16, "meta")
    flops, traffic = decode.cost(step, 1, 1024, sizes)
    table, layer = 128256 * 2048, 2048 * (2048 * 2 + 512 * 2 + 3 * 8192) + 3 * 2048
    cache = 2 * 8 * 64 * 1025
    assert traffic == 2 * (table + layer + cache + 128256)
    assert flops == 2 * (table + layer)


def test_what_follows_the_reference_is_found(tmp_path: Path) -> None:
    workload = tiny_decoders.workloads()[0]
    case = tiny_decoders.case(workload)
    inputs = draw(case, "cpu", 1)
    _, look = reference(case, inputs)
    assert look is not None

    class Stage:
        def synchronize(self) -> None:
            pass

    def right() -> object:
        return case.module(*inputs)

    def other() -> object:
        logits, tokens = case.module(*inputs)
        noise = torch.rand_like(logits)
        return logits + noise, tokens + 1

    found = look(right, Stage())  # type: ignore[arg-type]
    assert (found.same_tokens, found.steps) == (decode.GREEDY_STEPS, decode.GREEDY_STEPS)
    assert found.differing_calls == 0 < found.calls <= decode.SAME_CALLS
    wrong = look(other, Stage())  # type: ignore[arg-type]
    assert wrong.same_tokens == 0
    assert wrong.differing_calls == wrong.calls


@pytest.mark.whole
def test_a_run_of_a_tiny_model_is_reported(tmp_path: Path) -> None:
    arguments = "--suite tests.tiny_decoders --families llama --batches 1 --systems tvm_tile,torch"
    command = [sys.executable, "-m", "bench", "run", *arguments.split(), "--device", "emulated"]
    root = Path(__file__).parents[2]
    subprocess.run([*command, "--jobs", "1", "--results", str(tmp_path)], cwd=root, check=True)
    found = list(records.read(tmp_path / "tiny_decoders.jsonl").values())
    assert [record.status for record in found] == ["ok", "ok"]
    assert all(record.same_tokens == record.steps for record in found)
    assert all(record.differing_calls == 0 for record in found)
    page = decoding.section(suite("tiny_decoders", found))
    assert "| llama@20 | tvm_tile top1 | 1 |" in page


def test_diffusion_models_are_given_what_they_take() -> None:
    chosen = choose(["diffusion"], dtype=["bfloat16"])
    names = ["flux-single", "flux-double", "sdxl-unet", "sdxl-decoder"]
    assert [w.name for w in chosen] == names
    taken = [[each.shape for each in diffusion._inputs(workload)] for workload in chosen]
    assert [len(shapes) for shapes in taken] == [5, 5, 3, 1]
    assert taken[0][0][1] + taken[0][1][1] == taken[0][3][0] == 4096
