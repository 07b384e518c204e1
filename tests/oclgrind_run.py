"""Run under ``oclgrind --data-races``: launches the kernels that a pickled file describes."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

import numpy as np
import pyopencl as cl


def main(path: str) -> None:
    (platform,) = (p for p in cl.get_platforms() if "oclgrind" in p.name.lower())
    context = cl.Context(platform.get_devices())
    queue = cl.CommandQueue(context)
    for name, source, blocks, threads, sizes in pickle.loads(Path(path).read_bytes()):
        program = cl.Program(context, source).build()
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
        buffers = [cl.Buffer(context, flags, hostbuf=np.ones(size, "u1")) for size in sizes]
        items = tuple(b * t for b, t in zip(blocks, threads, strict=True))
        getattr(program, name)(queue, items, threads, *buffers)
        queue.finish()
    print("all ran")


if __name__ == "__main__":
    main(sys.argv[1])
