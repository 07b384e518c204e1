"""MetaSchedule's search on one PrimFunc, round after round, going on from what is recorded.

The loop is that of TVM's task scheduler for a single task: generate candidates, build, measure,
record, train the cost model. It is written out because a round must end with everything saved,
and a run with the time that it was given.
"""

from __future__ import annotations

import logging
import sys
import time
import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from bench.metaschedule.build import Artifact, build
from bench.metaschedule.measure import Measured, Tensor
from bench.metaschedule.records import Database, History, Records, Round

# MetaSchedule proposes a few less than it is asked for: so four rounds make 256 trials.
TRIALS_PER_ROUND = 68
# What MetaSchedule records for a candidate that did not build or run.
_FAILED = (1e10,)
_UNLIMITED = 1 << 30
# MetaSchedule draws tiles blindly and throws away what exceeds the GPU's limits. Of a depthwise
# convolution at batch 128 one draw in 700 is left; with its defaults (at least 50 left, at most
# 5 populations drawn without any) it gives up before the first trial.
_MIN_DRAWN = 16
_MAX_EMPTY_DRAWS = 64

Measure = Callable[[Artifact], Measured]
OnRound = Callable[[History], None]


@dataclass(frozen=True, slots=True)
class Limits:
    """When to stop, and what to use.

    Attributes:
        trials: to have in the database in the end, or a few more: rounds are whole.
        deadline: of ``time.monotonic``; no round begins that would end after it, if it takes as
            long as the longest before.
        threads: for the search and for building.
        per_round: trials of one round.
        population: of the evolutionary search; MetaSchedule's default.
    """

    trials: int
    deadline: float = float("inf")
    threads: int = 2
    per_round: int = TRIALS_PER_ROUND
    population: int = 512


def tune(
    function: Any,
    target: Any,
    records: Records,
    measure: Measure,
    limits: Limits,
    *,
    waited_s: Callable[[], float] = lambda: 0.0,
    conditions: str = "",
    on_round: OnRound = lambda _: None,
) -> History:
    """Tune one PrimFunc; saves after every round.

    Args:
        function: unscheduled, of static shapes.
        target: from :func:`make_target`.
        records: where the database is, or will be.
        measure: times an artifact; see :class:`bench.metaschedule.measure.GpuTimer`.
        limits: when to stop.
        waited_s: seconds that ``measure`` has waited for the GPU so far: they do not count.
        conditions: of this run, for the history.
        on_round: hears the history after every round.

    Returns:
        The history, this run's rounds included.

    Raises:
        DatabaseError: the records are damaged.
    """
    start = time.perf_counter()
    history = records.read_history()
    if conditions not in ("", *history.conditions):
        history = replace(history, conditions=(*history.conditions, conditions))
    with records.open() as database:
        if len(database.tvm) >= limits.trials or history.exhausted:
            return history
        search = _Search(function, target, database, limits)
        clock = _Clock(history.last, start, waited_s)
        longest = 0.0
        while len(database.tvm) < limits.trials:
            begin = time.monotonic()
            if begin + longest >= limits.deadline:
                break
            candidates = search.candidates()
            if candidates is None:
                # Before the first trial it is not the space that failed, but drawing from it.
                history = replace(history, exhausted=bool(history.rounds))
                database.save(history)
                break
            _try(search, candidates, clock, measure, target, limits.threads)
            history = history.after(clock.totals(database))
            database.save(history)
            on_round(history)
            longest = max(longest, time.monotonic() - begin)
        search.close()
    return history


def _try(
    search: _Search,
    candidates: Sequence[Any],
    clock: _Clock,
    measure: Measure,
    target: Any,
    threads: int,
) -> None:
    """Build, measure and record candidates, and learn from them."""
    clock.lap("search_s")
    built = build([candidate.sch.mod["main"] for candidate in candidates], target, threads)
    clock.lap("build_s")
    results = [item if isinstance(item, str) else measure(item) for item in built]
    clock.lap("measure_s")
    search.learn(candidates, results)
    clock.lap("search_s")


def make_target(device: Any) -> Any:
    """The target to search and compile for: a CUDA device's limits, as MetaSchedule needs them.

    Without the ``a`` of ``sm_90a`` nothing is lost: its rules know no instruction that needs it.
    """
    from tvm.target import Target

    facts = dict(device.target)
    arch = str(facts["arch"]).rstrip("af")
    return Target({**facts, "arch": arch, "host": {"kind": "llvm"}})


def as_module(function: Any) -> Any:
    """The workload that records are looked up by: the function alone, its symbol ``main``."""
    import tvm

    # What fusion thinks of it says nothing about its loops, and changes.
    plain = function.without_attr("op_pattern")
    return tvm.IRModule({"main": plain.with_attr("global_symbol", "main")})


def tensors_of(function: Any) -> tuple[Tensor, ...]:
    """Shape and dtype of each parameter."""
    return tuple(
        (tuple(int(extent) for extent in p.ty.shape), str(p.ty.dtype)) for p in function.params
    )


class _Search:
    """MetaSchedule's evolutionary search, brought to where the database is."""

    def __init__(self, function: Any, target: Any, database: Database, limits: Limits) -> None:
        from tvm.s_tir import meta_schedule as ms

        self._database = database.tvm
        self._target = target
        module = as_module(function)
        with _no_tensor_intrinsics():
            self._context = ms.TuneContext(
                module,
                target=target,
                space_generator=ms.space_generator.PostOrderApply(
                    sch_rules=_rules(), postprocs="cuda", mutator_probs="cuda"
                ),
                search_strategy=ms.search_strategy.EvolutionarySearch(
                    population_size=limits.population,
                    init_min_unmeasured=_MIN_DRAWN,
                    max_fail_count=_MAX_EMPTY_DRAWS,
                ),
                rand_state=1 + len(self._database),
                num_threads=limits.threads,
                logger=_quiet(),
            )
        self._model = ms.cost_model.XGBModel(num_tuning_cores=1)
        self._workload = self._database.commit_workload(module)
        self._measured: set[int] = set()
        self._learn_from_records()
        spaces = self._context.generate_design_space()
        self._context.pre_tuning(_UNLIMITED, limits.per_round, spaces, self._database, self._model)

    def candidates(self) -> list[Any] | None:
        """Candidates that were never measured; None where the search finds no more.

        The strategy leaves out what it proposed itself, but not what earlier runs measured.
        """
        while True:
            proposed = self._context.generate_measure_candidates()
            if proposed is None:
                return None
            fresh = [c for c in proposed if _hash(c) not in self._measured]
            if fresh:
                return fresh

    def learn(self, candidates: Sequence[Any], results: Sequence[Measured]) -> None:
        """Record the results and train the model; a text is the reason of a failure."""
        from tvm.s_tir.meta_schedule.database import TuningRecord
        from tvm.s_tir.meta_schedule.runner import RunnerResult

        answers = []
        for candidate, result in zip(candidates, results, strict=True):
            failed = isinstance(result, str)
            seconds = _FAILED if failed else result
            self._database.commit_tuning_record(
                TuningRecord(
                    candidate.sch.trace,
                    self._workload,
                    seconds,
                    self._target,
                    candidate.args_info,
                )
            )
            self._measured.add(_hash(candidate))
            answers.append(RunnerResult(None if failed else seconds, result if failed else None))
        self._model.update(self._context, candidates, answers)
        self._context.notify_runner_results(candidates, answers)

    def close(self) -> None:
        """Let the strategy's state go."""
        self._context.post_tuning()

    def _learn_from_records(self) -> None:
        """What a run that did all rounds itself would know by now."""
        from tvm.s_tir.meta_schedule.runner import RunnerResult

        records = self._database.get_all_tuning_records()
        candidates = [record.as_measure_candidate() for record in records]
        self._measured |= {_hash(candidate) for candidate in candidates}
        answers = [
            RunnerResult(seconds, None) if is_valid(seconds) else RunnerResult(None, "failed")
            for seconds in (_seconds(record) for record in records)
        ]
        self._model.update(self._context, candidates, answers)


def _rules() -> list[Any]:
    """MetaSchedule's rules for CUDA, tiles in dynamic instead of static shared memory.

    Of static shared memory CUDA allows 48 KiB, which few draws at these sizes respect; dynamic
    shared memory may take all that the GPU has, as in MetaSchedule's rules for tensor cores.
    """
    from tvm.s_tir.meta_schedule import schedule_rule as rule

    tiling = rule.MultiLevelTiling(
        structure="SSSRRSRS",
        tile_binds=["blockIdx.x", "vthread.x", "threadIdx.x"],
        max_innermost_factor=64,
        vector_load_lens=[1, 2, 3, 4, 8, 16],
        reuse_read=rule.ReuseType(req="must", levels=[4], scope="shared.dyn"),
        reuse_write=rule.ReuseType(req="must", levels=[3], scope="local"),
    )
    return [
        tiling if isinstance(item, rule.MultiLevelTiling) else item
        for item in rule.ScheduleRule.create("cuda")
    ]


class _Clock:
    """Where the seconds go, in all runs together."""

    def __init__(self, before: Round, start: float, waited_s: Callable[[], float]) -> None:
        self._spent = {name: getattr(before, name) for name in ("search_s", "build_s", "measure_s")}
        self._waited_s = waited_s
        self._last = start - waited_s()

    def lap(self, name: str) -> None:
        """What passed since the last lap was for ``name``; waiting for the GPU is left out."""
        now = time.perf_counter() - self._waited_s()
        self._spent[name] += now - self._last
        self._last = now

    def totals(self, database: Database) -> Round:
        """All so far."""
        seconds = [_seconds(record) for record in database.tvm.get_all_tuning_records()]
        valid = [sum(own) / len(own) for own in seconds if is_valid(own)]
        return Round(
            trials=len(seconds),
            valid=len(valid),
            seconds=sum(self._spent.values()),
            best_s=min(valid, default=None),
            **self._spent,
        )


def is_valid(seconds: Sequence[float]) -> bool:
    """Whether a record's candidate ran."""
    return bool(seconds) and max(seconds) < min(_FAILED)


def _seconds(record: Any) -> list[float]:
    return [float(value) for value in record.run_secs or ()]


def _hash(candidate: Any) -> int:
    import tvm_ffi

    return int(tvm_ffi.structural_hash(candidate.sch.mod))


def _quiet() -> logging.Logger:
    """MetaSchedule tells every failed mutation; they are part of the search."""
    logger = logging.getLogger("bench.metaschedule")
    logger.setLevel(logging.ERROR)
    return logger


@contextmanager
def _no_tensor_intrinsics() -> Iterator[None]:
    """Spare the context's import of TVM's tensor intrinsics: 15 s, and the rules use none."""
    name = "tvm.s_tir.tensor_intrin"
    if name in sys.modules:
        yield
        return
    sys.modules[name] = types.ModuleType(name)
    try:
        yield
    finally:
        del sys.modules[name]
