"""NASNet-A for small and for large images."""

from __future__ import annotations

import torch
from torch import nn

# The five sums of a cell: operation and state of the left and of the right. States 0 and 1 are
# the inputs (of the cell and of the one before it), each sum adds one.
_Sum = tuple[str, int, str, int]
_NORMAL: tuple[_Sum, ...] = (
    ("separable5", 0, "separable3", 1),
    ("separable5", 1, "separable3", 1),
    ("average", 0, "none", 1),
    ("average", 1, "average", 1),
    ("separable3", 0, "none", 0),
)
_REDUCTION: tuple[_Sum, ...] = (
    ("separable5", 0, "separable7", 1),
    ("max", 0, "separable7", 1),
    ("average", 0, "separable5", 1),
    ("none", 3, "average", 2),
    ("separable3", 2, "max", 0),
)


class NASNet(nn.Module):
    """Images (B, 3, H, W) to (B, classes).

    Zoph et al., "Learning Transferable Architectures for Scalable Image Recognition", 2018:
    NASNet-A (6 @ 768) has 18 normal cells and 32 filters, (4 @ 1056), the mobile one, 12 and 44.
    Without the training's auxiliary head; strided windows are padded evenly, and the first cell's
    two inputs are both fitted to its filters.

    Args:
        stem: filters of the first convolution, which halves the image where ``stem_cells`` follow.
        stem_cells: reductions before the first normal cell, for large images; each doubles the
            filters, up to those of the first normal cell.
        cells: normal cells; before the last two thirds of them stands a reduction each.
        filters: of the first third; every reduction doubles them.
        classes: outputs.
    """

    def __init__(self, stem: int, stem_cells: int, cells: int, filters: int, classes: int) -> None:
        super().__init__()
        stride = 2 if stem_cells else 1
        self.stem = nn.Sequential(
            nn.Conv2d(3, stem, 3, stride, padding=1, bias=False), nn.BatchNorm2d(stem)
        )
        built: list[_Cell] = []
        # Channels and scale of the cell's input and of the one before.
        inputs = [(stem, 0), (stem, 0)]

        def add(sums: tuple[_Sum, ...], width: int) -> None:
            scale = inputs[-1][1] + (sums is _REDUCTION)
            built.append(_Cell(sums, width, inputs[-1], inputs[-2]))
            inputs.append((len(built[-1].kept) * width, scale))

        for left in range(stem_cells, 0, -1):
            add(_REDUCTION, filters >> left)
        for number in range(cells):
            if number in (cells // 3, 2 * cells // 3):
                filters *= 2
                add(_REDUCTION, filters)
            add(_NORMAL, filters)
        self.cells = nn.ModuleList(built)
        self.classify = nn.Linear(inputs[-1][0], classes)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        before = last = self.stem(image)
        for cell in self.cells:
            before, last = last, cell(last, before)
        return self.classify(torch.relu(last).mean((2, 3)))


class _Cell(nn.Module):
    """Fits both inputs to its filters, adds pairs, and puts states side by side."""

    def __init__(
        self, sums: tuple[_Sum, ...], width: int, last: tuple[int, int], before: tuple[int, int]
    ) -> None:
        super().__init__()
        reduces = sums is _REDUCTION
        self.fit_last = _fit(last[0], width)
        if before[1] != last[1]:
            self.fit_before: nn.Module = _Halve(before[0], width)
        elif before[0] != width:
            self.fit_before = _fit(before[0], width)
        else:
            self.fit_before = nn.Identity()

        def operation(name: str, state: int) -> nn.Module:
            return _operation(name, width, 2 if reduces and state < 2 else 1)

        self.left = nn.ModuleList(operation(name, state) for name, state, _, _ in sums)
        self.right = nn.ModuleList(operation(name, state) for _, _, name, state in sums)
        self.states = [(left, right) for _, left, _, right in sums]
        # A normal cell also hands on what the cell before it made.
        self.kept = (3, 4, 5, 6) if reduces else (1, 2, 3, 4, 5, 6)

    def forward(self, last: torch.Tensor, before: torch.Tensor) -> torch.Tensor:
        states = [self.fit_last(last), self.fit_before(before)]
        for left, right, (i, j) in zip(self.left, self.right, self.states, strict=True):
            states.append(left(states[i]) + right(states[j]))
        return torch.cat([states[i] for i in self.kept], dim=1)


def _fit(channels: int, filters: int) -> nn.Module:
    return nn.Sequential(
        nn.ReLU(), nn.Conv2d(channels, filters, 1, bias=False), nn.BatchNorm2d(filters)
    )


class _Halve(nn.Module):
    """Half the resolution: the first of 2×2 pixels makes half of the filters, the last the rest."""

    def __init__(self, channels: int, filters: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, filters // 2, 1, stride=2, bias=False)
        self.last = nn.Conv2d(channels, filters // 2, 1, stride=2, bias=False)
        self.norm = nn.BatchNorm2d(filters)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(x)
        return self.norm(torch.cat([self.first(x), self.last(x[:, :, 1:, 1:])], dim=1))


def _operation(name: str, filters: int, stride: int) -> nn.Module:
    match name:
        case "none":
            return nn.Identity()
        case "average":
            return nn.AvgPool2d(3, stride, padding=1, count_include_pad=False)
        case "max":
            return nn.MaxPool2d(3, stride, padding=1)
        case _:
            kernel = int(name.removeprefix("separable"))
            return nn.Sequential(
                *_separable(filters, kernel, stride), *_separable(filters, kernel, 1)
            )


def _separable(filters: int, kernel: int, stride: int) -> list[nn.Module]:
    depthwise = nn.Conv2d(filters, filters, kernel, stride, kernel // 2, groups=filters, bias=False)
    pointwise = nn.Conv2d(filters, filters, 1, bias=False)
    return [nn.ReLU(), depthwise, pointwise, nn.BatchNorm2d(filters)]
