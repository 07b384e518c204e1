"""The kernel that holds a GPU: the driver gets what it is meant to, here from a stand-in for it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from warp_emulator import COMPILER

pytest.importorskip("cuda.bindings.driver")

DRIVER = r"""
#include <stdio.h>
#include <string.h>

int load(void **module, const void *image) {
  printf("%s|", strstr((const char *)image, ".entry tvm_tile_hold(") ? "loaded" : "not PTX");
  *module = (void *)17;
  return 0;
}
int find(void **function, void *module, const char *name) {
  printf("%s of %ld|", name, (long)module);
  *function = (void *)34;
  return 0;
}
int launch(void *function, unsigned x, unsigned y, unsigned z, unsigned threads, unsigned v,
           unsigned w, unsigned shared, void *stream, void **parameters, void **extra) {
  printf("%ld: %u %u %u of %u %u %u, %u bytes, stream %ld, %llu ns, %ld\n", (long)function, x, y,
         z, threads, v, w, shared, (long)stream, *(unsigned long long *)parameters[0], (long)extra);
  fflush(stdout);
  return 700;
}
int other(void) { return 0; }
int cuGetProcAddress_v2(const char *name, void **found, int version, unsigned long long flags,
                        void *status) {
  void *known[][2] = {{"cuModuleLoadData", load}, {"cuModuleGetFunction", find},
                      {"cuLaunchKernel", launch}, {"cuGetProcAddress", cuGetProcAddress_v2}};
  *found = other;
  for (int n = 0; n < 4; n++)
    if (!strcmp(name, known[n][0])) *found = known[n][1];
  return 0;
}
int cuGetProcAddress(const char *name, void **found, int version, unsigned long long flags) {
  return cuGetProcAddress_v2(name, found, version, flags, 0);
}
"""
PROGRAM = """
from cuda.bindings import driver
from tvm_tile.errors import DriverError
from tvm_tile.runtime.drivers.hold import Hold
try:
    Hold(driver).launch(123456789012)
except DriverError as error:
    print(error)
"""


@pytest.mark.skipif(COMPILER is None, reason="needs g++")
def test_the_driver_gets_the_kernel_and_its_time(tmp_path: Path) -> None:
    assert COMPILER is not None
    source = tmp_path / "driver.c"
    source.write_text(DRIVER)
    flags = ["-x", "c", "-w", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1"]
    subprocess.run([COMPILER, *flags, "-o", tmp_path / "libcuda.so.1", source], check=True)
    environment = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    first, *error = done.stdout.splitlines()
    assert first == (
        "loaded|tvm_tile_hold of 17|34: 1 1 1 of 1 1 1, 0 bytes, stream 0, 123456789012 ns, 0"
    )
    assert "cuLaunchKernel must succeed" in error[0]
    assert "700" in error[1]
