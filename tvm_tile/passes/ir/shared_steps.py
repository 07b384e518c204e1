"""What passes made of a module for one device, for others for which they are the same passes."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import tvm
from tvm.target import Target


class SharedSteps:
    """Modules, each with what a pass made of it.

    A pass does the same as another of its name whose fields are equal: the device, if it asks for
    one, and whoever is told of its decisions are among them. TVM's own have none.
    """

    def __init__(self) -> None:
        self._made: dict[Hashable, tuple[tvm.IRModule, tvm.IRModule]] = {}

    def find(self, step: tvm.transform.Pass, mod: tvm.IRModule) -> tvm.IRModule | None:
        """What a pass has made of the very module; ``None`` where it has not, or it may vary."""
        key = _key_of(step, mod)
        return None if key is None or key not in self._made else self._made[key][1]

    def keep(self, step: tvm.transform.Pass, mod: tvm.IRModule, made: tvm.IRModule) -> None:
        """Keep what a pass has made of a module; the module is kept as well, and its address."""
        key = _key_of(step, mod)
        if key is not None:
            self._made[key] = mod, made


def _key_of(step: tvm.transform.Pass, mod: tvm.IRModule) -> Hashable | None:
    fields = getattr(step, "_inst", None)
    target = Target.current(allow_none=True)
    key = step.info.name, fields, target and str(target.kind.name), mod.__chandle__()
    try:
        hash(key)
    except TypeError:  # fields that change while it runs
        return None
    return key


_SHARED: ContextVar[SharedSteps | None] = ContextVar("_SHARED", default=None)


def shared_steps() -> SharedSteps | None:
    """The steps that are shared at present; ``None`` where none are."""
    return _SHARED.get()


@contextmanager
def sharing_steps() -> Iterator[None]:
    """Share the steps of all devices that the same module is fused for meanwhile."""
    token = _SHARED.set(SharedSteps())
    try:
        yield
    finally:
        _SHARED.reset(token)
