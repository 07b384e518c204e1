"""What becomes of a damaged file: right, refused by an error of ours, or something worse."""

from __future__ import annotations

import resource
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

import numpy as np

from bench.mutations import mutate
from bench.mutations.subject import X, compiled

# Of a worker's addresses: TVM, LLVM, PoCL and torch map most of it, and touch little.
_ADDRESS_SPACE = 16 << 30


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of damage.

    Attributes:
        mutate: makes a file of a good one.
        runs: whether the model is called if it loads. A forged file is native code that nobody
            vouches for: that it is refused where it makes no sense is all that can be asked.
    """

    mutate: Callable[[bytes, Random], bytes]
    runs: bool


FILES = {
    "damaged file": Kind(mutate.damaged_file, runs=True),
    "damaged member": Kind(mutate.damaged_member, runs=True),
    "forged manifest": Kind(mutate.forged_manifest, runs=False),
    "forged code": Kind(mutate.forged_code, runs=False),
}
CACHE = "cache entry"


class Judge:
    """Damages files of one model, in a folder of its own, and uses them.

    Args:
        folder: for its files.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        model = compiled(folder / "cache")
        self._expected = model(X)
        model.save(folder / "good.tvmtile")
        self._good = (folder / "good.tvmtile").read_bytes()

    def __call__(self, kind: str, seed: int) -> str:
        """``"right"``, ``"harmless"`` (loaded, not run), or ``"refused: ..."``.

        Raises:
            Exception: whatever is not an error of ours, or what makes it wrong.
        """
        from tvm_tile import TileError

        random = Random(f"{kind} {seed}")
        try:
            return self._cached(random) if kind == CACHE else self._loaded(FILES[kind], random)
        except TileError as error:
            return f"refused: {type(error).__name__}"

    def _loaded(self, kind: Kind, random: Random) -> str:
        import tvm_tile

        path = self._folder / "damaged.tvmtile"
        path.write_bytes(kind.mutate(self._good, random))
        model = tvm_tile.load(path)
        model.explain("all")
        if not kind.runs:
            return "harmless"
        self._compare(model(X))
        return "right"

    def _cached(self, random: Random) -> str:
        folder = self._folder / "damaged"
        shutil.copytree(self._folder / "cache", folder)
        try:
            mutate.damage_cache(folder, random)
            self._compare(compiled(folder)(X))
            self._compare(compiled(folder)(X))
        finally:
            for inner in folder.iterdir():
                if inner.is_dir():
                    inner.chmod(0o700)
            shutil.rmtree(folder)
        return "right"

    def _compare(self, result: np.ndarray) -> None:
        if not np.array_equal(result, self._expected):
            raise ValueError(f"wrong by {np.abs(result - self._expected).max()}")


def make_worker() -> Callable[[str], tuple[str, float, int]]:
    """In a worker process: from ``"kind/seed"`` to what became of it, seconds, and kilobytes."""
    judge = Judge(Path(tempfile.mkdtemp(prefix="tvm_tile-mutations-")))
    resource.setrlimit(resource.RLIMIT_AS, (_ADDRESS_SPACE, _ADDRESS_SPACE))

    def work(job: str) -> tuple[str, float, int]:
        kind, _, seed = job.partition("/")
        start = time.perf_counter()
        try:
            outcome = judge(kind, int(seed))
        except Exception as error:  # the finding
            outcome = f"untyped: {type(error).__name__}: {str(error)[:200]}"
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return outcome, time.perf_counter() - start, peak

    return work
