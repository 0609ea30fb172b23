"""Eigenvalues and eigenvectors of the metric at held-out digits."""

from __future__ import annotations

import itertools

import torch
from settings import Settings
from torch import Tensor

from carre.fields import MetricField
from data import Digits

LARGEST = 1.05
_TANGENT_ABOVE = 0.5
_CHUNK = 256
_KERNEL_CHUNK = 50
_LEADING = 5
_BINS = (0.5, 0.75, 1.0, 1.25, 1.5, 8.0)


@torch.no_grad()
def eigenvalues(field: MetricField, points: Tensor, bandwidth: float) -> Tensor:
    """Compute the eigenvalues of G at points, descending, shape (n, rank)."""
    return torch.cat([field.metric(part, bandwidth).eigenvalues() for part in points.split(_CHUNK)])


def describe(values: Tensor, labels: Tensor, bandwidth: float) -> dict:
    """Summarize eigenvalues at one σ: their range, and the dimension of each class by count and by trace."""
    count, trace = (values > _TANGENT_ABOVE).sum(-1).float(), values.sum(-1)
    classes = labels.unique().tolist()
    return {
        "bandwidth": bandwidth,
        "n": len(values),
        "smallest": float(values.min()),
        "largest": float(values.max()),
        "share_in_range": float((values.amax(-1) <= LARGEST).float().mean()),
        "count": float(count.mean()),
        "trace": float(trace.mean()),
        "count_by_class": {str(name): float(count[labels == name].mean()) for name in classes},
        "trace_by_class": {str(name): float(trace[labels == name].mean()) for name in classes},
    }


def measure(field: MetricField, digits: Digits, bandwidth: float, settings: Settings) -> dict:
    """Look at the spectrum at the default σ, at all test digits, and on a grid of σ at some."""
    values, labels = eigenvalues(field, digits.test, bandwidth), digits.test_labels
    by_class = {str(name): values[labels == name].mean(0).tolist() for name in digits.classes}
    some = torch.cat([(labels == name).nonzero()[: settings.n_spectra, 0] for name in digits.classes])
    found = ((sigma, eigenvalues(field, digits.test[some], sigma)) for sigma in settings.bandwidths)
    scales = [describe(values, labels[some], sigma) for sigma, values in found]
    return {
        "default": describe(values, labels, bandwidth),
        "eigenvalues_by_class": by_class,
        "scales": scales,
        "kernel": [
            kernel_check(field, digits, sigma, max(settings.n_checked // 5, 2)) for sigma in settings.checked_bandwidths
        ],
        "noisy": [noisy_check(field, digits, sigma, settings) for sigma in settings.checked_bandwidths],
    }


@torch.no_grad()
def kernel_check(field: MetricField, digits: Digits, bandwidth: float, n: int) -> dict:
    """Compare the largest eigenvalue at test digits with that of the exact covariance under a kernel on all samples.

    The kernel sees only the training digits: where few of them carry its weight (``effective``, the inverse sum of the
    squared weights), its covariance says little.
    """
    samples, learned, kernel, effective = digits.train, [], [], []
    for points in digits.test[:n].split(_KERNEL_CHUNK):
        learned.append(field.metric(points, bandwidth).eigenvalues()[:, 0])
        weights = torch.softmax(-torch.cdist(points, samples).square() / (2 * bandwidth**2), -1)
        effective.append(1 / weights.square().sum(-1))
        for row in weights:
            mean = row @ samples
            covariance = (samples * row[:, None]).mT @ samples - torch.outer(mean, mean)
            kernel.append(torch.linalg.eigvalsh(covariance / bandwidth**2)[-1])
    top, exact = torch.cat(learned), torch.stack(kernel)
    return {
        "bandwidth": bandwidth,
        "effective": float(torch.cat(effective).median()),
        "learned": float(top.mean()),
        "kernel": float(exact.mean()),
        "share_in_range_learned": float((top <= LARGEST).float().mean()),
        "share_in_range_kernel": float((exact <= LARGEST).float().mean()),
        "correlation": float(torch.corrcoef(torch.stack([top, exact]))[0, 1]),
    }


@torch.no_grad()
def noisy_check(field: MetricField, digits: Digits, bandwidth: float, settings: Settings) -> dict:
    """Hold predicted eigenvalues at noisy test digits against (vᵀ(x − m))²/σ², what the digits really did."""
    clean = digits.test[-settings.n_checked :]
    generator = torch.Generator(clean.device).manual_seed(settings.seed)
    predicted, realized = [], []
    for points in clean.split(_CHUNK):
        noisy = points + bandwidth * torch.randn(points.shape, generator=generator, device=points.device)
        spectrum = field.metric(noisy, bandwidth).spectrum()
        away = (points - field.denoise(noisy, bandwidth)) / bandwidth
        predicted.append(spectrum.values[:, :_LEADING])
        realized.append(torch.einsum("nd,ndk->nk", away, spectrum.vectors[:, :, :_LEADING]).square())
    values, squares = torch.cat(predicted), torch.cat(realized)
    bins = []
    for low, high in itertools.pairwise(_BINS):
        inside = (values >= low) & (values < high)
        if int(inside.sum()) < 2:
            continue
        found = squares[inside]
        error = float(found.std()) / len(found) ** 0.5
        bins.append({"n": len(found), "predicted": float(values[inside].mean())})
        bins[-1] |= {"realized": float(found.mean()), "error": error}
    return {"bandwidth": bandwidth, "bins": bins}


@torch.no_grad()
def eigenvectors(
    field: MetricField, points: Tensor, bandwidth: float, wanted: tuple[int, ...]
) -> tuple[tuple[int, ...], Tensor, Tensor]:
    """Compute some eigenvectors, counted from 1, and their eigenvalues: the numbers, (n, k, D) and (n, k)."""
    spectrum = field.metric(points, bandwidth).spectrum()
    wanted = tuple(number for number in wanted if number <= spectrum.values.shape[-1])
    columns = [number - 1 for number in wanted]
    return wanted, spectrum.vectors[..., columns].mT, spectrum.values[..., columns]
