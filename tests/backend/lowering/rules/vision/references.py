"""torchvision's ops in plain PyTorch, pixel by pixel, as its kernels for the CPU have them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

# Boxes on images of 7 x 9 pixels: inside, across the edges, outside, empty, on the edge of pixels.
BOXES = torch.tensor(
    [
        [0, 1.3, 0.6, 7.9, 5.2],
        [1, -3.0, -2.5, 4.0, 4.1],
        [0, 4.4, 3.0, 14.0, 12.0],
        [1, 30.0, 30.0, 40.0, 40.0],
        [0, 3.2, 3.1, 3.2, 3.1],
        [1, 0.0, 0.0, 4.0, 6.0],
    ],
    dtype=torch.float64,
)


def roi_align(
    x: Tensor, ratio: int, aligned: bool, bins: tuple[int, int], own: bool = False
) -> Tensor:
    """own: each bin reads channels of its own, as in ps_roi_align."""
    return _over_bins(x, bins, own, lambda box, i, j: _mean(x, box, i, j, bins, ratio, aligned))


def _over_bins(x: Tensor, bins: tuple[int, int], own: bool, value: object) -> Tensor:
    rows = []
    for box in BOXES.tolist():
        for i, j in itertools.product(*map(range, bins)):
            channels = value(box, i, j)  # type: ignore[operator]
            rows.append(channels[i * bins[1] + j :: math.prod(bins)] if own else channels)
    return torch.stack(rows).reshape(len(BOXES), *bins, -1).movedim(-1, 1)


def _mean(
    x: Tensor, box: list[float], i: int, j: int, bins: tuple[int, int], ratio: int, aligned: bool
) -> Tensor:
    shift = 0.5 if aligned else 0.0
    points = []
    for place, begin, end, number in ((i, box[2], box[4], bins[0]), (j, box[1], box[3], bins[1])):
        length = end - begin if aligned else max(end - begin, 1.0)
        count = ratio if ratio > 0 else math.ceil(length / number)
        step = length / number
        points.append(
            [begin - shift + place * step + (n + 0.5) * step / count for n in range(count)]
        )
    image = x[int(box[0])]
    values = [_bilinear(image, y, x) for y, x in itertools.product(*points)]
    return torch.stack(values).mean(0) if values else torch.zeros_like(image[:, 0, 0])


def _bilinear(image: Tensor, *position: float) -> Tensor:
    sizes = image.shape[1:]
    if any(p < -1 or p > size for p, size in zip(position, sizes, strict=True)):
        return torch.zeros_like(image[:, 0, 0])
    taps = []
    for p, size in zip(position, sizes, strict=True):
        p = min(max(p, 0.0), size - 1.0)
        low = int(p)
        taps.append(((low, 1 - p + low), (min(low + 1, size - 1), p - low)))
    pairs = itertools.product(*taps)
    return torch.stack([image[:, row, column] * v * w for (row, v), (column, w) in pairs]).sum(0)


def roi_pool(x: Tensor, bins: tuple[int, int]) -> Tensor:
    def value(box: list[float], i: int, j: int) -> Tensor:
        pixels = list(_pixels(x, box, i, j, bins, 1, 0))
        return torch.stack(pixels).amax(0) if pixels else torch.zeros_like(x[0, :, 0, 0])

    return _over_bins(x, bins, False, value)


def ps_roi_pool(x: Tensor, bins: tuple[int, int]) -> Tensor:
    def value(box: list[float], i: int, j: int) -> Tensor:
        pixels = list(_pixels(x, box, i, j, bins, 0, 1))
        return torch.stack(pixels).mean(0) if pixels else torch.zeros_like(x[0, :, 0, 0])

    return _over_bins(x, bins, True, value)


def _pixels(
    x: Tensor, box: list[float], i: int, j: int, bins: tuple[int, int], more: int, omitted: int
) -> Iterator[Tensor]:
    ranges = []
    for axis, place in ((0, i), (1, j)):
        begin, end = (_rounded(box[at - axis]) for at in (2, 4))
        step = max(end - begin + more, 1) / bins[axis]
        last = x.shape[2 + axis] - omitted
        first, after = math.floor(place * step) + begin, math.ceil((place + 1) * step) + begin
        ranges.append(range(min(max(first, 0), last), min(max(after, 0), last)))
    for row, column in itertools.product(*ranges):
        yield x[int(box[0]), :, row, column]


def _rounded(number: float) -> int:
    return int(math.copysign(math.floor(abs(number) + 0.5), number))


def deform_conv2d(
    x: Tensor, weight: Tensor, offset: Tensor, mask: Tensor, bias: Tensor, *settings: int
) -> Tensor:
    """With F.grid_sample, tap by tap."""
    *window, groups, offset_groups, use_mask = settings
    batch, (rows, columns), plane = len(x), weight.shape[2:], offset.shape[2:]
    split = x.reshape(batch * offset_groups, -1, *x.shape[2:])
    moved = offset.reshape(batch * offset_groups, rows * columns, 2, *plane)
    shares = mask.reshape(batch * offset_groups, -1, 1, *plane) if use_mask else None
    result = bias[None, :, None, None]
    for tap, place in enumerate(itertools.product(range(rows), range(columns))):
        position = []
        for axis in (1, 0):
            stride, padding, dilation = window[axis::2]
            grid = torch.arange(plane[axis]) * stride + place[axis] * dilation - padding
            pixel = moved[:, tap, axis] + (grid[:, None] if axis == 0 else grid)
            position.append(2 * pixel / (x.shape[2 + axis] - 1) - 1)
        values = F.grid_sample(split, torch.stack(position, -1), align_corners=True)
        values = values if shares is None else values * shares[:, tap]
        values = values.reshape(batch, -1, *plane)
        result = result + F.conv2d(
            values, weight[:, :, place[0], place[1], None, None], None, 1, 0, 1, groups
        )
    return result


def nms(boxes: Tensor, scores: Tensor, threshold: float) -> Tensor:
    kept: list[int] = []
    sizes = (boxes[:, 2:] - boxes[:, :2]).prod(1)
    for at in scores.sort(descending=True, stable=True).indices.tolist():
        best, box = boxes[kept], boxes[at]
        sides = torch.minimum(best[:, 2:], box[2:]) - torch.maximum(best[:, :2], box[:2])
        shared = sides.clamp(min=0).prod(1)
        overlap = shared / (sizes[kept] + sizes[at] - shared)
        if not bool((overlap.double() > threshold).any()):
            kept.append(at)
    return torch.tensor(kept, dtype=torch.int64)
