"""Pytest puts this folder and the one above on the path, so that tests can import its modules."""

from __future__ import annotations

import gc
import os
import zlib
from collections import defaultdict

# There is a worker on each core: threads of one would wait for the other's. Libraries read it when
# they are imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import hypothesis
import numpy as np
import pytest

# What libraries and tests keep is large: to walk through it often is a twentieth of the time.
gc.set_threshold(10_000, 20, 50)

# Tests patch what makes plans; none may come from, or end up in, the user's cache.
os.environ["TVM_TILE_CACHE"] = ""

# Other work on the machine must not fail a test, and a commit is judged by the same examples each
# time; `pytest --hypothesis-profile=search` looks for new ones.
hypothesis.settings.register_profile("search", deadline=None, max_examples=2000)
hypothesis.settings.register_profile("reproducible", deadline=None, derandomize=True)
hypothesis.settings.load_profile("reproducible")


@pytest.fixture(autouse=True)
def same_numbers(request: pytest.FixtureRequest) -> None:
    """What a module draws from its own generator does not depend on which tests ran before."""
    generator = getattr(request.module, "_RNG", None)
    if generator is not None:
        generator.bit_generator.state = np.random.default_rng(0).bit_generator.state


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="rewrite tests/golden from what is scheduled"
    )
    parser.addoption("--whole", action="store_true", help="run banks of like cases as a whole")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is marked ``whole``, and of what is marked ``bank(n)`` all but one case of n.

    Which ones is drawn by their names, so that each parameter has some of all its values; each test
    has one at least. All are run where --whole is given or the command names files, and those for a
    GPU always.
    """
    if config.getoption("--whole") or any(".py" in name for name in config.args):
        return
    banks: dict[str, list[pytest.Item]] = defaultdict(list)
    left_out = {item for item in items if item.get_closest_marker("whole")}
    for item in items:
        if item.get_closest_marker("bank") and not item.get_closest_marker("cuda"):
            banks[item.nodeid.partition("[")[0]].append(item)
    for own in banks.values():
        (share,) = own[0].get_closest_marker("bank").args
        own.sort(key=lambda item: zlib.crc32(item.nodeid.encode()))
        left_out.update(own[-(-len(own) // share) :])
    config.hook.pytest_deselected(items=list(left_out))
    items[:] = [item for item in items if item not in left_out]
