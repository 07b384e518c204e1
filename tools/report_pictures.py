"""Pictures of reports' pages for the documentation, of models as they are predicted for an H200.

Usage: python tools/report_pictures.py [NAME ...] [--keep FOLDER]     (default: all of them)

It compiles each model, which takes minutes and needs no GPU, writes its page (kept with --keep),
opens that in Chromium, and writes docs/pictures/report_NAME.png. `pip install -e '.[demo,browser]'`
and `apt-get install chromium` bring what it needs.
"""

from __future__ import annotations

import argparse
import importlib.util
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from playwright.sync_api import Locator, Page, sync_playwright

import tvm_tile

ROOT = Path(__file__).parent.parent
PICTURES = ROOT / "docs" / "pictures"
DEVICE = "nvidia/h200"
SIZE = {"width": 1280, "height": 800}
MOST_BYTES = 300_000


def detector() -> tvm_tile.CompiledModel:
    """The demo's: NudeNet's YOLOv8n."""
    spec = importlib.util.find_spec("nudenet")
    if spec is None or spec.origin is None:
        sys.exit("nudenet is not installed; `make demo` installs it")
    path = Path(spec.origin).parent / "320n.onnx"
    return tvm_tile.compile(path, DEVICE, inputs={"images": (1, 3, 320, 320)})


def bert() -> tvm_tile.CompiledModel:
    """BERT-base in half precision, 128 tokens."""
    from bench.suites.networks.bert import Bert

    tokens = torch.randint(0, 30522, (1, 128))
    module = Bert(12, 768, 12, 3072, 30522).half().eval()
    return tvm_tile.compile(module, DEVICE, example_inputs=(tokens,))


def resnet() -> tvm_tile.CompiledModel:
    """ResNet-50 in half precision, an image of 224 × 224."""
    from transformers import ResNetConfig, ResNetForImageClassification

    class Classifier(ResNetForImageClassification):
        def forward(self, image: torch.Tensor) -> torch.Tensor:
            return super().forward(pixel_values=image).logits

    image = torch.randn(1, 3, 224, 224).half()
    module = Classifier(ResNetConfig()).half().eval()
    return tvm_tile.compile(module, DEVICE, example_inputs=(image,))


def lstm() -> tvm_tile.CompiledModel:
    """Four LSTMs of 256, one above the other, 20 steps."""
    from bench.suites.networks.lstm import LastState, StackedLSTM

    module = LastState(StackedLSTM(4, 256, 256)).eval()
    return tvm_tile.compile(module, DEVICE, example_inputs=(torch.randn(20, 1, 256),))


def details(page: Page) -> Page:
    """The graph with what takes most chosen."""
    page.locator(".top button").first.click()
    return page


def by_time(page: Page) -> Page:
    """The graph coloured by time."""
    page.select_option("#colour", "time")
    return page


def found(page: Page) -> Page:
    """A search."""
    page.fill("#find", "attention")
    page.locator("#next").click()
    return page


def time_line(page: Page) -> Locator:
    """The persistent kernel."""
    return page.locator("#persistent")


Show = Callable[[Page], Page | Locator]
"""Brings a page to where its picture is taken, and says of what."""

MODELS: dict[str, tuple[Callable[[], tvm_tile.CompiledModel], str, Show]] = {
    "detector": (detector, "320n.onnx", details),
    "bert": (bert, "BERT-base", found),
    "resnet": (resnet, "ResNet-50", by_time),
    "lstm": (lstm, "LSTM", time_line),
}


def picture(browser: Any, page_file: Path, show: Show, path: Path) -> None:
    """Write a picture of a page."""
    page = browser.new_page(viewport=SIZE, color_scheme="light", reduced_motion="reduce")
    page.goto(page_file.as_uri())
    shown = show(page)
    page.wait_for_timeout(200)
    shown.screenshot(path=path)
    page.close()
    if (size := path.stat().st_size) > MOST_BYTES:
        sys.exit(f"{path} has {size} bytes, more than {MOST_BYTES}")
    print(f"{path.relative_to(ROOT)}: {path.stat().st_size // 1000} KB", flush=True)


def main() -> None:
    """Write the pictures that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(MODELS))
    parser.add_argument("--keep", type=Path, help="a folder for the pages")
    arguments = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    torch.manual_seed(0)
    PICTURES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        for name in arguments.names or MODELS:
            compile_model, title, show = MODELS[name]
            page_file = (arguments.keep or Path(folder)) / f"{name}.html"
            compile_model().save_report(page_file, title=title)
            picture(browser, page_file.resolve(), show, PICTURES / f"report_{name}.png")


if __name__ == "__main__":
    main()
