"""Each fused operation computes the formula that it stands for, values and gradients. They need a GPU with Triton."""

import copy
import math

import pytest
import torch

from carre.backend.modes import are_available, are_fused, fused_operations
from carre.matching import JacobianProbe, LogUniform, denoise_along, metric_matching_loss, perturb
from carre.metric import LowRankMetric
from carre.networks import UNetSettings, build_image_model, build_model
from carre.networks.pointwise import fourier_features, gated_linear, modulated_activation, modulated_norm
from carre.training import Objective, TrainingConfig
from carre.training._steps import Stepper
from carre.training._weights import FlatWeights, ListedWeights

CUDA = torch.device("cuda")


def both_ways(function, *inputs):
    """Evaluate fused and plain; return values and gradients of a random weighting of them."""
    answers = []
    for device in (CUDA, torch.device("cpu")):
        arguments = [x.detach().cuda().requires_grad_(x.requires_grad) for x in inputs]
        with fused_operations(device):
            outputs = function(*arguments)
            outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        weights = [torch.linspace(-1, 1, out.numel(), device="cuda").view_as(out) for out in outputs]
        sum((w * out.float().square()).sum() for w, out in zip(weights, outputs, strict=True)).backward()
        answers.append([*outputs, *(x.grad for x in arguments if x.requires_grad)])
    return zip(*answers, strict=True)


def test_fused_operations_are_for_gpus_and_only_inside_their_context():
    assert not are_available(torch.device("cpu"))
    with fused_operations(torch.device("cpu")):
        assert not are_fused()
    assert not are_fused()


@pytest.mark.gpu
@pytest.mark.parametrize(("batch", "width"), [(5, 12), (33, 512), (7, 1000)])
def test_the_modulated_norm_is_its_formula(batch, width, rng):
    hidden = torch.randn(batch, width, generator=rng).requires_grad_()
    modulation = torch.randn(batch, 6 * width, generator=rng).requires_grad_()
    for fused, plain in both_ways(lambda h, m: modulated_norm(h, m.chunk(3, -1)[1]), hidden, modulation):
        torch.testing.assert_close(fused, plain, atol=1e-4, rtol=1e-4)


@pytest.mark.gpu
@pytest.mark.parametrize("shape", [(5, 12, 3, 3), (3, 64, 28, 28), (2, 320, 7, 9), (1, 513, 1, 1)])
def test_the_modulated_activation_is_its_formula(shape, rng):
    image = torch.randn(shape, generator=rng).requires_grad_()
    modulation = torch.randn(shape[0], 6 * shape[1], generator=rng).requires_grad_()
    for fused, plain in both_ways(lambda x, m: modulated_activation(x, m.chunk(3, -1)[1]), image, modulation):
        torch.testing.assert_close(fused, plain, atol=1e-4, rtol=1e-4)


@pytest.mark.gpu
@pytest.mark.parametrize(("batch", "width"), [(5, 12), (33, 512), (7, 1000)])
def test_the_gate_is_its_formula(batch, width, rng):
    torch.manual_seed(0)
    inputs, linear = torch.randn(batch, 20, generator=rng).cuda(), torch.nn.Linear(20, 2 * width).cuda()
    answers = []
    for device in (CUDA, torch.device("cpu")):
        linear.zero_grad()
        with fused_operations(device):
            out = gated_linear(inputs, linear)
        out.square().sum().backward()
        answers.append((out, linear.weight.grad.clone(), linear.bias.grad.clone()))
    for fused, plain in zip(*answers, strict=True):
        torch.testing.assert_close(fused, plain, atol=1e-3, rtol=1e-3)


@pytest.mark.gpu
def test_the_fourier_features_are_their_formula():
    bandwidth, frequencies = torch.logspace(-3, 1, 50, device="cuda"), torch.linspace(0, 5, 24, device="cuda")
    with fused_operations(CUDA):
        fused = fourier_features(bandwidth, frequencies)
    torch.testing.assert_close(fused, fourier_features(bandwidth, frequencies), atol=1e-5, rtol=0)


@pytest.mark.gpu
@pytest.mark.parametrize("with_probe", [True, False])
@pytest.mark.parametrize(("rank", "dim", "draws"), [(5, 7, 1), (16, 64, 8), (64, 128, 2), (100, 784, 1)])
def test_the_loss_is_its_formula(rank, dim, draws, with_probe, rng):
    """The last shape does not fit into the fused loss, and takes the formula itself."""
    factor = (torch.randn(6, rank, dim, generator=rng) / dim**0.5).requires_grad_()
    displacement = torch.randn(6, draws, dim, generator=rng)
    probe = JacobianProbe(*(torch.randn(6, dim, generator=rng).cuda() for _ in range(2)), 2.0) if with_probe else None
    for fused, plain in both_ways(lambda f, d: metric_matching_loss(LowRankMetric(f), d, probe), factor, displacement):
        assert (fused - plain).norm() < 1e-4 * plain.norm()


def quadratic_loss(module, scale):
    return scale * sum((p.float() - 0.5).square().sum() for p in module.parameters())


@pytest.mark.gpu
def test_the_flat_update_is_that_of_pytorch_with_clipping_average_and_skipped_steps():
    models = [build_model(5, 3, width=32, n_blocks=1, spread=1.0).cuda() for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    config = TrainingConfig(weight_decay=0.1, clip_norm=0.5)
    flat, listed = FlatWeights(models[0], config), ListedWeights(models[1], config)
    rate, pull = torch.tensor(1e-2, device="cuda"), torch.tensor(0.1, device="cuda")
    for scale in (1.0, 1e-4, 1.0, float("nan")):
        totals = [weights.update(quadratic_loss(weights.module, scale), rate, pull) for weights in (flat, listed)]
        assert torch.isfinite(totals[0]) == torch.isfinite(totals[1]) == math.isfinite(scale)
    for attribute in ("module", "averaged"):
        left, right = getattr(flat, attribute), getattr(listed, attribute)
        for p, q in zip(left.parameters(), right.parameters(), strict=True):
            torch.testing.assert_close(p, q, atol=2e-6, rtol=1e-5)


@pytest.mark.gpu
def test_with_mixed_precision_the_step_computes_with_rounded_weights():
    model = build_model(5, 3, width=32, n_blocks=1, spread=1.0).cuda()
    weights = FlatWeights(model, TrainingConfig(mixed_precision=True))
    rate, pull = torch.tensor(1e-2, device="cuda"), torch.tensor(0.1, device="cuda")
    before = next(model.parameters()).clone()
    weights.update(quadratic_loss(weights.module, 1.0), rate, pull)
    assert not torch.equal(next(model.parameters()), before)
    for master, rounded in zip(model.parameters(), weights.module.parameters(), strict=True):
        assert (master.dtype, rounded.dtype) == (torch.float32, torch.bfloat16)
        assert torch.equal(rounded, master.to(torch.bfloat16))


@pytest.mark.gpu
@pytest.mark.parametrize("n_references", [0, 64])
def test_a_captured_step_is_the_plain_one(n_references):
    """Streams, prefetching and the graph change the order of events, not what is computed."""
    generator = torch.Generator("cuda").manual_seed(1)
    samples = torch.nn.functional.normalize(torch.randn(500, 5, generator=generator, device="cuda"), dim=1)
    torch.manual_seed(0)
    start = build_model(5, 6, width=64, n_blocks=2, spread=1.0).cuda()
    levels = torch.rand(8192, generator=generator, device="cuda")
    chosen = torch.randint(500, (8192,), generator=generator, device="cuda")
    probe = perturb(samples[chosen], LogUniform(0.05, 2.0).quantile(levels), generator=generator)
    losses = []
    for cuda_graph in (True, False):
        model = build_model(5, 6, width=64, n_blocks=2, spread=1.0).cuda()
        model.load_state_dict(start.state_dict())
        config = TrainingConfig(batch_size=256, n_references=n_references, cuda_graph=cuda_graph)
        stepper = Stepper(model, samples, LogUniform(0.05, 2.0), Objective(), config, torch.Generator("cuda"))
        for _ in range(300):
            stepper.step(1e-3)
        with torch.no_grad():
            losses.append(torch.stack([loss.mean() for loss in Objective()(stepper.average(), probe)]))
        assert stepper.first_bad_step() is None
    torch.testing.assert_close(losses[0], losses[1], rtol=0.05, atol=0.02)


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["table", "images"])
def test_fused_derivatives_are_those_of_the_formula(kind):
    """Along vectors in the points, in the pass that denoises; against float64, with the gradients of the mean."""
    torch.manual_seed(0)
    if kind == "table":
        model, dim, tolerance = build_model(20, 6, width=64, n_blocks=2, spread=1.0).cuda(), 20, 1e-5
    else:
        settings = UNetSettings(channels=16, multipliers=(1, 2), n_blocks=1)
        model, dim, tolerance = build_image_model((1, 8, 8), 3, spread=1.0, settings=settings).cuda(), 64, 2e-3
    for weights in model.parameters():
        weights.data.add_(0.05 * torch.randn_like(weights))
    y, s, v = (
        torch.randn(70, dim, device="cuda"),
        0.1 + torch.rand(70, device="cuda"),
        torch.randn(70, dim, device="cuda"),
    )
    exact = copy.deepcopy(model.mean).double()
    expected = torch.func.jvp(lambda p: exact(p, s.double()), (y.double(),), (v.double(),))[1].detach()
    gradients = []
    for device in (CUDA, torch.device("cpu")):
        with fused_operations(device):
            mean, products = denoise_along(model.mean, y, s, v)
        assert (products.double() - expected).norm() < tolerance * expected.norm()
        assert not products.requires_grad
        gradients.append(torch.autograd.grad(mean.square().sum(), list(model.mean.parameters())))
    for one, other in zip(*gradients, strict=True):
        assert (one - other).norm() <= 5 * tolerance * other.norm() + 1e-6
