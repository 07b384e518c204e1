"""Build the sdist and, from it, the wheel, and use the wheel where no other file of ours is.

Usage: python tools/wheel_check.py [FOLDER]; what was built lies in the folder, `dist` by default.

To build takes hatchling, which pip fetches if it is not installed. The wheel's dependencies are
those of the environment that this runs in, so that they need not be installed again.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import sysconfig
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_FILES = """
import importlib.resources
folder = importlib.resources.files("tvm_tile")
for name in ("py.typed", "device/records/nvidia_h200.json", "build/hip_prelude.h"):
    assert (folder / name).is_file(), name
"""
_INSTALL = re.compile(r"^pip install \"dist/(tvm_tile-.*)\"", re.MULTILINE)


def main(folder: Path) -> None:
    """Build into a folder, and try what was built."""
    with tempfile.TemporaryDirectory() as made:
        place = Path(made).resolve()
        builder = _builder(place / "build")
        _run(ROOT, builder, "-m", "hatchling", "build", "--target", "sdist", "-d", str(folder))
        (sdist,) = folder.glob(f"tvm_tile-{_version()}.tar.gz")
        wheel_of = ("-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation")
        _run(place, builder, *wheel_of, "-w", str(folder), str(sdist))
        (wheel,) = folder.glob(f"tvm_tile-{_version()}-*.whl")
        python = _installed(wheel, place / "empty")
        _run(place, python, "-c", _FILES)
        _run(place, python, str(ROOT / "tools" / "first_minutes.py"))
        if importlib.util.find_spec("mypy") is not None:
            example = str(ROOT / "tests" / "typed_example.py")
            here = Path(sys.executable)
            _run(place, here, "-m", "mypy", "--strict", "--python-executable", str(python), example)
    print(f"right: {sdist.name}, {wheel.name}")


def _builder(folder: Path) -> Path:
    """A Python that has hatchling."""
    if importlib.util.find_spec("hatchling") is not None:
        return Path(sys.executable)
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    _run(ROOT, python, "-m", "pip", "install", "--quiet", "hatchling")
    return python


def _installed(wheel: Path, folder: Path) -> Path:
    """The Python of a new environment with the wheel, and behind it what is installed here.

    The README's line for installing then finds all that it asks for, or fails: it may not download.
    """
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    install = (python, "-m", "pip", "install", "--quiet", "--no-index")
    _run(folder, *install, "--no-deps", str(wheel))
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    (asked,) = _INSTALL.findall((ROOT / "README.md").read_text(encoding="utf-8"))
    _run(wheel.parent, *install, asked)
    return python


def _version() -> str:
    names: dict[str, str] = {}
    exec((ROOT / "tvm_tile" / "_version.py").read_text(encoding="utf-8"), names)
    return names["__version__"]


def _run(folder: Path, *words: str | Path) -> None:
    """Run a command in a folder, with no cache, and without this environment's other packages."""
    hidden = ("PYTHONPATH", "PYTHONHOME")
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    environment["TVM_TILE_CACHE"] = ""
    print("$", " ".join(map(str, words))[:120].replace("\n", " "), flush=True)
    subprocess.run([*map(str, words)], cwd=folder, env=environment, check=True)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "dist").resolve())
