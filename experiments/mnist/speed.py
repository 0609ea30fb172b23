"""How fast the two networks train, at the paper's size and at ours."""

from __future__ import annotations

import time

import torch
from settings import Settings

from carre.matching import LogUniform
from carre.metric import AffineFrame
from carre.networks import UNetSettings, build_image_model
from carre.training import Objective, TrainingConfig
from carre.training.loop import Stepper
from data import Digits

_WARM_UP = 5


def measure(digits: Digits, settings: Settings) -> dict:
    """Time whole training steps: noise, both networks, the Jacobian's product, the update, the average."""
    rows = []
    for name, network in (("the paper's", UNetSettings.of_paper("mnist")), ("ours", settings.fit.network)):
        for batch in settings.timed_batches:
            for weight in (TrainingConfig.jacobian_weight, 0.0):
                rows.append({"network": name, "batch_size": batch, "with_jacobian": weight > 0})
                rows[-1] |= _time(digits, network, settings, batch, weight)
    return {"rank": settings.fit.rank, "timed_steps": settings.timed_steps, "rows": rows}


def _time(digits: Digits, network: UNetSettings, settings: Settings, batch: int, weight: float) -> dict:
    frame, device = AffineFrame.of(digits.train, reduce=False), digits.train.device
    samples = frame.to(device, torch.float32).encode(digits.train)
    low, high = (edge / frame.scale for edge in settings.fit.bandwidth_range)
    shape = (1, *digits.dataset.pixels.shape[2:])
    model = build_image_model(shape, settings.fit.rank, spread=5.0, settings=network).to(device)
    config = TrainingConfig(
        batch_size=batch, n_references=0, jacobian_weight=weight, mixed_precision=device.type == "cuda"
    )
    begun = time.perf_counter()
    generator = torch.Generator(device).manual_seed(settings.seed)
    stepper = Stepper(model, samples, LogUniform(low, high), Objective(), config, generator)
    for _ in range(_WARM_UP if device.type == "cuda" else 1):
        stepper.step(1e-4)
    stepper.first_bad_step()  # Waits for the device.
    started = time.perf_counter()
    for _ in range(settings.timed_steps):
        stepper.step(1e-4)
    stepper.first_bad_step()
    seconds = (time.perf_counter() - started) / settings.timed_steps
    return {
        "parameters": sum(p.numel() for p in model.parameters()),
        "start_seconds": started - begun,
        "milliseconds": 1e3 * seconds,
        "images_per_second": batch / seconds,
    }
