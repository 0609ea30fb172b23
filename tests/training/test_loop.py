"""The loop: budgets, determinism, early stop, divergence, progress."""

import dataclasses
import math

import pytest
import torch
from torch import nn

from carre.matching import LogUniform
from carre.networks import build_model
from carre.training import Objective, TrainingConfig, TrainingDivergedError, train
from carre.training import _steps as steps_module
from carre.training._steps import Stepper
from carre.training.monitor import HeldOut

RANGE = LogUniform(0.1, 1.0)


def circle(n=200):
    angle = torch.linspace(0, 2 * math.pi, n + 1)[:-1]
    return 2**0.5 * torch.stack([angle.cos(), angle.sin()], 1)


def small_model():
    torch.manual_seed(0)
    return build_model(2, 2, width=16, n_blocks=1, spread=1.0)


def run(model=None, samples=None, callback=None, **settings):
    model = small_model() if model is None else model
    samples = circle() if samples is None else samples
    config = TrainingConfig(**{"max_steps": 30, "batch_size": 32, **settings})
    history = train(model, samples, samples[:50], RANGE, Objective(), config, callback=callback)
    return model, history


@pytest.mark.slow
def test_a_seed_determines_every_weight_on_a_cpu():
    first, second, other = (run(seed=seed)[0].state_dict() for seed in (1, 1, 2))
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not all(torch.equal(first[name], other[name]) for name in first)


@pytest.mark.slow
def test_training_lowers_the_held_out_losses():
    _, history = run(max_steps=200, evaluations=4, learning_rate=5e-3)
    first, last = history.evaluations[0], history.evaluations[-1]
    assert last.mean_loss < first.mean_loss
    assert last.predictive_loss < min(first.predictive_loss, 0)
    assert last.gain[1] > 0.3, "a circle is curved: its denoiser must beat the linear one"


@pytest.mark.slow
def test_budgets_end_training_by_steps_or_by_seconds():
    _, by_steps = run(max_steps=7)
    assert (by_steps.steps, by_steps.stop_reason) == (7, "budget spent")
    _, by_seconds = run(max_steps=10**9, max_seconds=0.5)
    assert by_seconds.steps > 1
    assert 0.5 <= by_seconds.seconds < 5


def stepper(**settings):
    config = TrainingConfig(**{"max_steps": 30, "batch_size": 32, **settings})
    return Stepper(small_model(), circle(), RANGE, Objective(), config, torch.Generator().manual_seed(0))


def test_the_average_is_the_exponential_one_with_a_short_beginning():
    """By hand: decay (1 + t)/(10 + t) at step t, up to the configured one."""
    training = stepper(averaging=0.2)
    weight, average = next(training.model.parameters()), next(training.weights.averaged.parameters())
    expected = weight.detach().clone()
    for step in range(4):
        training.step(1e-2)
        decay = min(0.2, (1 + step) / (10 + step))
        expected = decay * expected + (1 - decay) * weight.detach()
        torch.testing.assert_close(average, expected)
    assert not torch.allclose(average, weight)


@pytest.mark.slow
def test_the_model_ends_with_the_weights_that_were_evaluated():
    model, history = run(max_steps=40)
    samples = circle()
    monitor = HeldOut(samples[:50], samples, RANGE, generator=torch.Generator().manual_seed(0))
    again, _ = monitor.evaluate(model, Objective(), step=40, seconds=0.0)
    assert again.loss == pytest.approx(history.evaluations[-1].loss, rel=1e-5)


def test_mixed_precision_leaves_noise_targets_and_losses_in_full_precision(monkeypatch):
    """Only the network itself may see bfloat16: σ below 4e-3 of the data would drown in it (THEORY, pitfall 1)."""
    seen = {}

    real = Objective.losses

    def spy(self, mean, factor, batch, probe):
        result = real(self, mean, factor, batch, probe)
        seen.update(target=batch.mean_target.dtype, displacement=batch.displacement.dtype, loss=result[1].dtype)
        seen.update(products=probe.products.dtype)
        return result

    monkeypatch.setattr(Objective, "losses", spy)
    training = stepper(mixed_precision=True)
    hidden = []
    training.model.factor.trunk.register_forward_hook(lambda module, given, result: hidden.append(result.dtype))
    training.step(1e-3)
    assert hidden == [torch.bfloat16]
    assert seen["target"] == seen["displacement"] == seen["loss"] == seen["products"] == torch.float32


def test_the_jacobian_of_the_denoiser_is_probed_only_where_one_is_trained(monkeypatch):
    calls = []
    real = steps_module.vectors_in_range
    monkeypatch.setattr(steps_module, "vectors_in_range", lambda *a, **k: calls.append(1) or real(*a, **k))
    stepper().step(1e-3)
    assert calls == [1]
    stepper(jacobian_weight=0.0).step(1e-3)
    config, uncentered = TrainingConfig(batch_size=32), Objective(train_mean=False, centered=False)
    Stepper(small_model(), circle(), RANGE, uncentered, config, torch.Generator().manual_seed(0)).step(1e-3)
    assert calls == [1]


class Unusual(nn.Module):
    """A user's network whose mean has no derivative in the points, in one way or another."""

    def __init__(self, kind):
        super().__init__()
        self.kind, self.inner = kind, small_model()
        self.offset, self.unused = nn.Parameter(torch.zeros(1)), nn.Linear(2, 2)

    def forward(self, points, bandwidth):
        if self.kind == "writes":
            points.mul_(1.0)
        mean, factor = self.inner(points, bandwidth)
        if self.kind == "constant":
            mean = self.offset.expand_as(mean)
        return (mean.detach() if self.kind == "detached" else mean), factor


@pytest.mark.parametrize("kind", ["detached", "constant", "writes"])
def test_networks_whose_mean_cannot_be_probed_are_trained_without_it(kind):
    model = Unusual(kind)
    before = model.unused.weight.detach().clone()
    training = Stepper(model, circle(), RANGE, Objective(), TrainingConfig(), torch.Generator().manual_seed(0))
    for _ in range(3):
        training.step(1e-2)
    assert training.first_bad_step() is None
    assert torch.equal(model.unused.weight, before), "a weight that takes no part must not decay"


def test_a_parameter_shared_by_two_parts_is_stepped_once():
    model = small_model()
    model.factor.trunk.embedding = model.mean.trunk.embedding
    training = Stepper(model, circle(), RANGE, Objective(), TrainingConfig(), torch.Generator().manual_seed(0))
    assert len(training.weights.parameters) == len(list(model.parameters()))


def test_an_empty_held_out_set_is_named():
    with pytest.raises(ValueError, match="held_out must not be empty"):
        train(small_model(), circle(), circle()[:0], RANGE, Objective(), TrainingConfig(max_steps=1))


@pytest.mark.slow
def test_training_ends_when_the_evidence_no_longer_improves_and_keeps_the_best_weights():
    settings = {"round_steps": 35, "learning_rate": 0.01, "worth": 0.5, "n_references": 0}
    model, history = run(max_steps=10_000, **settings)
    assert history.stop_reason == "done"
    assert history.steps < 5000
    kept = history.evaluations[history.kept]
    samples = circle()
    monitor = HeldOut(samples[:50], samples, RANGE, generator=torch.Generator().manual_seed(0))
    again, values = monitor.evaluate(model, Objective(), step=0, seconds=0.0)
    assert again.loss == pytest.approx(kept.loss, rel=1e-5)
    assert float(values[..., 0].mean()) == pytest.approx(kept.loss, rel=1e-5)
    _, longer = run(max_steps=history.steps, **settings, until_done=False)
    assert (longer.stop_reason, longer.steps) == ("budget spent", history.steps)


@pytest.mark.slow
def test_what_was_learned_by_heart_is_forgotten():
    """Ten samples in eight dimensions: the held-out loss soon rises, and the weights from before are kept."""
    generator = torch.Generator().manual_seed(0)
    samples, held_out = torch.randn(10, 8, generator=generator), torch.randn(200, 8, generator=generator)
    torch.manual_seed(0)
    model = build_model(8, 4, width=32, n_blocks=1, spread=1.0)
    config = TrainingConfig(max_steps=100, batch_size=32, learning_rate=0.02, polish=0.0)
    history = train(model, samples, held_out, RANGE, Objective(), config)
    losses = [evaluation.loss for evaluation in history.evaluations]
    assert losses[-1] > min(losses) + 0.5
    assert losses[history.kept] == min(losses)
    monitor = HeldOut(held_out, samples, RANGE, generator=torch.Generator().manual_seed(config.seed))
    assert monitor.evaluate(model, Objective(), step=0, seconds=0.0)[0].loss == pytest.approx(min(losses), rel=1e-5)
    # It is noticed, too: neither learning nor decay go on.
    config = dataclasses.replace(config, max_steps=1000, round_steps=10)
    history = train(model, samples, held_out, RANGE, Objective(), config)
    assert history.stop_reason == "done"
    assert history.steps < 100
    assert history.gained < 0


def test_progress_is_reported_until_all_of_the_budget_is_spent():
    seen = []
    run(max_steps=12, evaluations=3, callback=seen.append)
    assert [progress.step for progress in seen] == list(range(1, 13))
    assert seen[-1].fraction == 1.0
    assert seen[0].evaluation is None
    assert seen[-1].evaluation is not None


def test_what_is_likely_is_said_after_a_second(monkeypatch):
    """By a clock that advances a second whenever it is read: a step takes one, and twelve are taken."""
    ticks = iter(range(10**6))
    monkeypatch.setattr("carre.training.loop.time.perf_counter", lambda: float(next(ticks)))
    seen = []
    run(max_steps=12, evaluations=3, callback=seen.append)
    assert seen[0].likely is None
    assert all(progress.likely == pytest.approx((12, 12), abs=1) for progress in seen[1:])


class ExplodesAtStep(nn.Module):
    """A model whose output is not finite from a given forward pass in training on."""

    def __init__(self, step):
        super().__init__()
        self.inner, self.remaining = small_model(), step

    def forward(self, points, bandwidth):
        mean, factor = self.inner(points, bandwidth)
        if torch.is_grad_enabled():
            self.remaining -= 1
            if self.remaining < 0:
                factor = factor * math.inf
        return mean, factor


@pytest.mark.slow
@pytest.mark.parametrize("step", [0, 5])
def test_a_loss_that_is_not_finite_stops_training_and_keeps_the_last_good_weights(step):
    model = ExplodesAtStep(step)
    with pytest.raises(TrainingDivergedError, match=f"at step {step}.*learning_rate") as caught:
        run(model, max_steps=20)
    assert caught.value.step == step
    assert caught.value.model is model
    assert all(torch.isfinite(weight).all() for weight in model.state_dict().values())
    good, _ = run(ExplodesAtStep(10**9), max_steps=20)
    changed = any(
        not torch.equal(a, b) for a, b in zip(model.parameters(), ExplodesAtStep(0).parameters(), strict=True)
    )
    assert changed == (step > 0), "steps before the bad one count, later ones do not"
    assert not torch.equal(next(model.parameters()), next(good.parameters()))


@pytest.mark.parametrize(
    "settings",
    [
        {"max_steps": 0},
        {"batch_size": 0},
        {"max_seconds": -1.0},
        {"learning_rate": 0.0},
        {"n_references": -1},
        {"probes": "sideways"},
        {"probe_floor": -0.1},
        {"polish": 0.9},
        {"polish_batch": 0},
        {"decay": -0.1},
        {"decay": float("nan")},
        {"round_steps": 0},
        {"worth": -1.0},
        {"n_draws": 0},
    ],
    ids=str,
)
def test_settings_that_make_no_sense_are_named(settings):
    with pytest.raises(ValueError, match=next(iter(settings))):
        TrainingConfig(**settings)


@pytest.mark.gpu
@pytest.mark.parametrize("mixed_precision", [False, True])
def test_a_cuda_graph_trains_like_plain_steps(mixed_precision):
    losses = []
    for cuda_graph in (False, True):
        model = small_model().cuda()
        config = TrainingConfig(max_steps=300, batch_size=256, cuda_graph=cuda_graph, mixed_precision=mixed_precision)
        history = train(model, circle().cuda(), circle()[:50].cuda(), RANGE, Objective(), config)
        losses.append(history.evaluations[-1].loss)
    assert losses[0] == pytest.approx(losses[1], abs=0.05)


@pytest.mark.gpu
def test_divergence_inside_a_cuda_graph_is_noticed():
    samples = circle().cuda()
    samples[3] = 1e30
    with pytest.raises(TrainingDivergedError):
        train(small_model().cuda(), samples, samples[:2], RANGE, Objective(), TrainingConfig(max_steps=50))


def test_the_average_forgets_the_initial_weights_also_in_short_runs():
    """With a fixed decay of 0.998, thirty steps would leave 94 % of the initial weights in the average."""
    model, _ = run(max_steps=30, learning_rate=5e-3)
    initial = small_model()
    moved = [float((a - b).detach().norm()) for a, b in zip(model.parameters(), initial.parameters(), strict=True)]
    assert max(moved) > 0.05


class Normalized(nn.Module):
    """A model with running statistics, which must arrive in the averaged copy."""

    def __init__(self):
        super().__init__()
        self.norm, self.inner = nn.BatchNorm1d(2), small_model()

    def forward(self, points, bandwidth):
        return self.inner(self.norm(points), bandwidth)


def test_running_statistics_of_a_users_network_are_kept():
    model, history = run(Normalized(), samples=circle() + 3.0)
    assert model.norm.num_batches_tracked == history.evaluations[history.kept].step
    assert (model.norm.running_mean > 0.5).all()
