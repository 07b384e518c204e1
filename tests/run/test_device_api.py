"""The table of TVM's C++ class ``DeviceAPI``, next to the header that TVM's package ships."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import tvm
from tvm_ffi.libinfo import include_paths

from tvm_tile.runtime.drivers.device_api import _FUNCTIONS

COMPILER = shutil.which("g++")

# A pointer to a virtual function holds its place in the table, in bytes, plus one.
PROGRAM = """
#include <cstdio>
#include <cstring>
#include <tvm/runtime/device_api.h>
using namespace tvm;
using namespace tvm::runtime;
template <typename F> void place(const char* name, F function) {
  size_t offset;
  std::memcpy(&offset, &function, sizeof offset);
  std::printf("%s=%zu\\n", name, (offset - 1) / sizeof(void*));
}
struct Open : DeviceAPI {
  static void show() {
    place("SetDevice", &Open::SetDevice);
    place("GetAttr", &Open::GetAttr);
    place("AllocDataSpace",
          (void* (DeviceAPI::*)(Device, size_t, size_t, DLDataType))&Open::AllocDataSpace);
    place("FreeDataSpace", &Open::FreeDataSpace);
    place("StreamSync", &Open::StreamSync);
    place("CopyDataFromTo",
          (void (DeviceAPI::*)(const void*, size_t, void*, size_t, size_t, Device, Device,
                               DLDataType, TVMStreamHandle))&Open::CopyDataFromTo);
  }
};
int main() { Open::show(); }
"""


@pytest.mark.skipif(COMPILER is None, reason="g++ compiles the header")
def test_what_is_replaced_is_where_the_header_has_it(tmp_path: Path) -> None:
    source, program = tmp_path / "places.cc", tmp_path / "places"
    source.write_text(PROGRAM)
    folders = [str(Path(tvm.__file__).parent / "include"), *include_paths()]
    flags = ["-std=c++17", "-w", *(f"-I{folder}" for folder in folders)]
    # Only types matter: what the program links to is never called.
    link = ["-Wl,--unresolved-symbols=ignore-all"]
    subprocess.run([COMPILER, *flags, "-o", program, source, *link], check=True)
    run = subprocess.run([program], check=True, capture_output=True, text=True)
    places = dict(line.split("=") for line in run.stdout.splitlines())
    names = [name for name, _ in _FUNCTIONS]
    assert len(places) == 6
    assert {name: str(names.index(name)) for name in places} == places
