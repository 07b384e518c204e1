"""AlexNet, image classification."""

from __future__ import annotations

from torch import nn


class AlexNet(nn.Sequential):
    """Images (B, 3, 227, 227) to (B, classes).

    Krizhevsky, "One weird trick for parallelizing convolutional neural networks", 2014: the
    one-tower form of Krizhevsky et al., 2012.

    Args:
        features: of the two fully connected layers.
        classes: outputs.
        image: height and width; 227 leaves 6×6 positions to the fully connected layers.
    """

    def __init__(self, features: int, classes: int, image: int = 227) -> None:
        super().__init__(
            *(nn.Conv2d(3, 64, 11, stride=4), nn.ReLU(), nn.MaxPool2d(3, 2)),
            *(nn.Conv2d(64, 192, 5, padding=2), nn.ReLU(), nn.MaxPool2d(3, 2)),
            *(nn.Conv2d(192, 384, 3, padding=1), nn.ReLU()),
            *(nn.Conv2d(384, 384, 3, padding=1), nn.ReLU()),
            *(nn.Conv2d(384, 256, 3, padding=1), nn.ReLU(), nn.MaxPool2d(3, 2)),
            nn.Flatten(),
            *(nn.Linear(256 * _positions(image) ** 2, features), nn.ReLU()),
            *(nn.Linear(features, features), nn.ReLU()),
            nn.Linear(features, classes),
        )


def _positions(image: int) -> int:
    extent = (image - 11) // 4 + 1
    for _ in range(3):
        extent = (extent - 3) // 2 + 1
    return extent
