"""Lesson 19: search among networks for GPUs that you do not have, with the searcher that you know.

Run it with `python tutorials/19_search.py`, behind `pip install optuna`. It needs no GPU and no
compiler for one: all times are predicted. Nothing is trained, either: the number of parameters
stands here for how good a network may become; yours would be trained, or asked of a supernet.
"""

from __future__ import annotations

import random
from collections.abc import Mapping

import optuna
import torch
from torch import nn

import tvm_tile

# 1. A function of Python builds a network from choices. Another network is one choice changed,
#    which is what Retiarii (OSDI 2020) calls a mutator.

SPACE = {"depth": (1, 2, 3), "width": (32, 48, 64), "window": (3, 5, 7), "expansion": (3, 4, 6)}
IMAGE = (torch.zeros(1, 3, 64, 64),)


def build(chosen: Mapping[str, int]) -> nn.Module:
    """A mobile network: a stem, inverted bottlenecks, a classifier."""
    width, window = chosen["width"], chosen["window"]
    inner = width * chosen["expansion"]
    layers: list[nn.Module] = [nn.Conv2d(3, width, 3, 2, 1), nn.Hardswish()]
    for _ in range(chosen["depth"]):
        layers += [nn.Conv2d(width, inner, 1), nn.Hardswish()]
        layers += [nn.Conv2d(inner, inner, window, 1, window // 2, groups=inner), nn.Hardswish()]
        layers += [nn.Conv2d(inner, width, 1)]
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10)]
    return nn.Sequential(*layers).eval()


def mutated(chosen: Mapping[str, int], rng: random.Random) -> dict[str, int]:
    """The choices with another one in a place."""
    place = rng.choice(list(SPACE))
    return {**chosen, place: rng.choice([one for one in SPACE[place] if one != chosen[place]])}


# 2. One oracle judges all candidates. What they have in common is looked for once. A search of
#    your own is a loop.

DEVICES = "nvidia/h200", "nvidia/a100"
oracle = tvm_tile.Oracle(*DEVICES)


def judge(chosen: Mapping[str, int]) -> tuple[float, ...]:
    """Microseconds on each device, and parameters in thousands."""
    model = build(chosen)
    reports = oracle.on_all(model, example_inputs=IMAGE)
    times = [report.predicted_seconds * 1e6 for report in reports.values()]
    return (*times, sum(weight.numel() for weight in model.parameters()) / 1e3)


rng = random.Random(0)
best = {place: options[0] for place, options in SPACE.items()}
first, _, most = judge(best)
for _ in range(3):
    other = mutated(best, rng)
    microseconds, _, thousands = judge(other)
    if thousands / microseconds > most / first:
        best, first, most = other, microseconds, thousands
print("by mutation, most parameters for a microsecond:", best)

# 3. Optuna asks for candidates and is told of them. Here it looks for those that are fast on both
#    devices and have many parameters, of which none is best: the study keeps the front.

optuna.logging.set_verbosity(optuna.logging.WARNING)
study = optuna.create_study(
    directions=["minimize", "minimize", "maximize"], sampler=optuna.samplers.TPESampler(seed=0)
)
for _ in range(6):
    trial = study.ask()
    chosen = {place: trial.suggest_categorical(place, own) for place, own in SPACE.items()}
    study.tell(trial, judge(chosen))

print(f"\nof {len(study.trials)} candidates by Optuna, on the front:")
for trial in sorted(study.best_trials, key=lambda own: own.values):
    times = ", ".join(
        f"{own:.1f} us on {name}" for name, own in zip(DEVICES, trial.values, strict=False)
    )
    print(f"  {times}, {trial.values[-1]:.0f} thousand parameters: {trial.params}")

# 4. Ray Tune wants a function that returns what it measured, by name. It sends that to processes
#    of its own, where the oracle knows nothing at first, so processes that stay are faster:
#
#        from ray import tune
#        from ray.tune.search.optuna import OptunaSearch
#
#        goals = {"microseconds": "min", "thousands": "max"}
#        search = OptunaSearch(metric=list(goals), mode=list(goals.values()))
#        tuner = tune.Tuner(
#            measured,
#            param_space={place: tune.choice(options) for place, options in SPACE.items()},
#            tune_config=tune.TuneConfig(search_alg=search, num_samples=500, reuse_actors=True),
#        )
#        results = tuner.fit()


def measured(configuration: Mapping[str, int]) -> dict[str, float]:
    """A trainable that does not train."""
    microseconds, _, thousands = judge(configuration)
    return {"microseconds": microseconds, "thousands": thousands}


print(f"\nas Ray Tune is told of it: {measured(best)}")

# 5. What a search found is compared at the batches that you serve.

sizes = {n: (torch.zeros(n, 3, 64, 64),) for n in (1, 32)}
found = tvm_tile.choose(dict.fromkeys(sizes, build(best)), DEVICES, example_inputs=sizes)
print(f"\nwhat mutation found, images a run:\n{found}")
