"""A judge that knows nothing of the geometry: a small convolutional classifier."""

from __future__ import annotations

import time

import torch
from torch import Tensor, nn
from torch.nn import functional

from data import SIDE, Digits

_SMALLEST_BATCH, _LARGEST_BATCH = 32, 256
_CHUNK = 4096
_SHIFT = 2


class Classifier(nn.Module):
    """Two stages of two convolutions each, then two linear layers; from flat points to logits."""

    def __init__(self, n_classes: int) -> None:
        super().__init__()
        stages: list[nn.Module] = []
        for before, after in ((1, 32), (32, 64)):
            stages += [*_convolution(before, after), *_convolution(after, after), nn.MaxPool2d(2), nn.Dropout(0.1)]
        side = SIDE // 4
        head = [nn.Flatten(), nn.Linear(64 * side * side, 128), nn.ReLU(), nn.Dropout(0.4), nn.Linear(128, n_classes)]
        self.layers = nn.Sequential(*stages, *head)

    def forward(self, points: Tensor) -> Tensor:
        """Compute the logits of flat points."""
        logits: Tensor = self.layers(points.reshape(-1, 1, SIDE, SIDE))
        return logits

    @torch.no_grad()
    def probabilities(self, points: Tensor) -> Tensor:
        """Compute the probability of each class, shape (n, classes)."""
        return torch.cat([self(part).softmax(-1) for part in points.split(_CHUNK)])


def train_classifier(digits: Digits, epochs: float, seed: int) -> tuple[Classifier, dict]:
    """Train on the training digits, moved by up to two pixels; measure the accuracy on the test digits."""
    begun, device = time.perf_counter(), digits.train.device
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Classifier(max(digits.classes) + 1).to(device)
    generator = torch.Generator(device).manual_seed(seed)
    batch = min(_LARGEST_BATCH, max(_SMALLEST_BATCH, len(digits.train) // 32))
    steps = max(1, round(epochs * len(digits.train) / batch))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=steps + 1)
    order = torch.empty(0, dtype=torch.long, device=device)
    for _ in range(steps):
        if len(order) < batch:
            order = torch.cat([order, torch.randperm(len(digits.train), generator=generator, device=device)])
        rows, order = order[:batch], order[batch:]
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            logits = model(_shifted(digits.train[rows], generator))
        loss = functional.cross_entropy(logits.float(), digits.train_labels[rows], label_smoothing=0.05)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    model.eval().requires_grad_(False)
    accuracy = float((model.probabilities(digits.test).argmax(-1) == digits.test_labels).float().mean())
    return model, {"accuracy": accuracy, "epochs": epochs, "steps": steps, "seconds": time.perf_counter() - begun}


def _convolution(before: int, after: int) -> list[nn.Module]:
    return [nn.Conv2d(before, after, 3, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU()]


def _shifted(points: Tensor, generator: torch.Generator) -> Tensor:
    """Move every image by up to two pixels in each direction; what comes in is background."""
    images = functional.pad(points.reshape(-1, SIDE, SIDE), [_SHIFT] * 4, value=float(points.min()))
    n, device = len(points), points.device
    offsets = torch.randint(2 * _SHIFT + 1, (2, n, 1), generator=generator, device=device)
    rows, columns = offsets + torch.arange(SIDE, device=device)
    each = torch.arange(n, device=device)[:, None, None]
    return images[each, rows[:, :, None], columns[:, None, :]].flatten(1)
