"""TVM's MetaSchedule, Ansor's successor: the best of the schedules that it tuned beforehand."""

from __future__ import annotations

from pathlib import Path

from bench.metaschedule.records import DatabaseError, History, Records
from bench.systems.system import NotSupported, Prepared, Session
from bench.systems.torch_eager import no_gpu
from bench.systems.tvm_tile import destination_style
from bench.workload import Case, Workload

FOLDER = Path(__file__).parent.parent / "results" / "metaschedule"


class MetaSchedule:
    """The records of ``python -m bench.metaschedule``; nothing is searched here.

    Args:
        folder: where they are.
    """

    name = "metaschedule"
    preload = ("torch", "torch.export", "tvm", "tvm_tile.frontend.torch", "bench.functions")

    def __init__(self, folder: Path = FOLDER) -> None:
        self._folder = folder

    @property
    def variant(self) -> str:
        """The most trials that any operator had; the note of a record has its own number."""
        histories = (_records_of(path) for path in self._folder.glob("*.history.json"))
        trials = [records.read_history().last.trials for records in histories]
        return str(max(trials, default=0))

    def missing(self) -> str:
        """It runs kernels that were tuned before, on the GPU that is there."""
        if not any(self._folder.glob("*.records.json.xz")):
            return "no operator is tuned: python -m bench.metaschedule"
        return no_gpu()

    def version(self) -> str:
        """TVM's, of which it is a part."""
        import tvm

        return f"tvm {tvm.__version__}"

    def warm_up(self) -> None:
        """Nothing: what is slow about it was done before."""

    def prepare(self, workload: Workload, case: Case, session: Session) -> Prepared:
        """Build the fastest schedule of the records."""
        from bench.functions import fused_function
        from bench.metaschedule.build import build
        from bench.metaschedule.search import as_module, make_target
        from tvm_tile import find_device

        records = Records(self._folder, workload.name, workload.dtype)
        if workload.suite != "ops" or not records.exist():
            raise NotSupported(_not_tuned(workload))
        device = find_device(session.device)
        function = fused_function(case, device)
        target = make_target(device)
        history = _checked(records)
        with records.open() as database:
            module = None if function is None else as_module(function)
            if module is None or not database.tvm.has_workload(module):
                raise NotSupported("its records are of another function: tune it anew")
            schedule = database.tvm.query_schedule(module, target, "main")
        if schedule is None:
            raise NotSupported(f"none of {history.last.trials} trials ran")
        (built,) = build([schedule.mod["main"]], target, 1)
        if isinstance(built, str):
            raise NotSupported(f"its best schedule does not build: {built}")
        with session.gpu:
            loaded = built.load()
        last = history.last
        return Prepared(
            start=lambda inputs: destination_style(loaded["main"], case, inputs),
            kernels=len(built.kernels),
            note=f"best of {last.trials} trials, of which {last.valid} ran",
            spent_s=last.seconds,
        )


def _checked(records: Records) -> History:
    try:
        return records.read_history()
    except DatabaseError as error:
        raise NotSupported(str(error)) from error


def _not_tuned(workload: Workload) -> str:
    if (workload.suite, workload.dtype) != ("ops", "float32"):
        return "only operators of ops in float32 are tuned"
    return f"not tuned: python -m bench.metaschedule --operators {workload.name}"


def _records_of(path: Path) -> Records:
    workload, _, dtype = path.name.partition(".")[0].rpartition("_")
    return Records(path.parent, workload, dtype)
