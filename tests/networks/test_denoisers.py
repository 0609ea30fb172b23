"""Diffusion models of every convention, against what is exact for Gaussian data, and with diffusers itself."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from diffusers import DDPMScheduler, EDMEulerScheduler, EulerDiscreteScheduler, FlowMatchEulerDiscreteScheduler
from diffusers import UNet2DModel as DiffusersUNet
from scipy.interpolate import CubicSpline
from torch import nn

import carre
from carre import DiffusionDenoiser, IsotropicField, ScoreField, SteinField

SHAPE, DIM = (1, 2, 2), 4
VARIANCE = torch.tensor([4.0, 1.0, 0.25, 0.01], dtype=torch.float64).reshape(SHAPE)
CENTER = torch.tensor([1.0, -2.0, 0.5, 0.0], dtype=torch.float64).reshape(SHAPE)
SIGMAS = torch.tensor([0.02, 0.3, 1.0, 7.0], dtype=torch.float64)
DDPM = DDPMScheduler()
_LOG_SIGMAS = (((1 - DDPM.alphas_cumprod) / DDPM.alphas_cumprod).sqrt()).double().log().numpy()


def exact_mean(y, sigma):
    """E[X | Y=y] for data N(CENTER, VARIANCE)."""
    s2 = sigma.square().reshape(-1, 1, 1, 1)
    return CENTER + VARIANCE / (VARIANCE + s2) * (y - CENTER)


def predicts(kind, alpha, deviation):
    """The exact network, in diffusers' manner, of x_t = αx + sε for α(t) and s(t), from x_t and t alone."""

    def network(x_t, t):
        a, s = (torch.as_tensor(of(t.numpy())).reshape(-1, 1, 1, 1) for of in (alpha, deviation))
        x = CENTER + a * VARIANCE / (a**2 * VARIANCE + s**2) * (x_t - a * CENTER)
        noise = (x_t - a * x) / s
        told = {"epsilon": noise, "sample": x, "v_prediction": a * noise - s * x, "flow_prediction": noise - x}
        return SimpleNamespace(sample=told[kind])

    return network


def at_steps(t):
    return np.exp(np.interp(t, np.arange(1000), _LOG_SIGMAS))


def at_any_time(t):
    return np.exp(4 * t)


def of_variance_one(kind, sigma=at_steps):
    return predicts(kind, lambda t: 1 / np.hypot(1, sigma(t)), lambda t: sigma(t) / np.hypot(1, sigma(t)))


def of_edm(kind):
    """Karras et al.'s network: D = c_skip y + c_out F(c_in y, log σ/4), solved for F."""

    def network(shown, t):
        sigma, own = (4 * t).exp().reshape(-1, 1, 1, 1), 0.5
        total = (sigma**2 + own**2).sqrt()
        y = shown * total
        out = (sigma * own / total) * (1 if kind == "epsilon" else -1)
        return ((exact_mean(y, sigma.flatten()) - own**2 / total**2 * y) / out,)

    return network


@pytest.mark.parametrize(
    ("network", "schedule", "told"),
    [
        *((of_variance_one(kind), DDPMScheduler(prediction_type=kind), {}) for kind in ("epsilon", "sample")),
        (of_variance_one("v_prediction"), EulerDiscreteScheduler(prediction_type="v_prediction"), {}),
        (of_variance_one("epsilon"), DDPM.alphas_cumprod, {}),
        (of_variance_one("sample"), DDPM.alphas_cumprod.tolist(), {"prediction": "sample"}),
        (of_variance_one("epsilon"), DDPMScheduler(rescale_betas_zero_snr=False, variance_type="learned"), {}),
        (
            of_variance_one("v_prediction", at_any_time),
            EulerDiscreteScheduler(prediction_type="v_prediction", timestep_type="continuous"),
            {},
        ),
        *((of_edm(kind), EDMEulerScheduler(prediction_type=kind), {}) for kind in ("epsilon", "v_prediction")),
        (
            predicts("flow_prediction", lambda t: 1 - t / 1000, lambda t: t / 1000),
            FlowMatchEulerDiscreteScheduler(shift=3.0),
            {},
        ),
    ],
)
def test_an_exact_network_of_any_convention_is_the_posterior_mean(network, schedule, told, rng):
    denoiser = DiffusionDenoiser(network, schedule, sample_shape=SHAPE, **told)
    y = torch.randn(4, *SHAPE, generator=rng, dtype=torch.float64)
    torch.testing.assert_close(denoiser(y, SIGMAS), exact_mean(y, SIGMAS), rtol=0, atol=1e-5)


def test_between_steps_time_is_interpolated_which_is_far_nearer_than_the_nearest_step(rng):
    """The network is one of continuous time, σ(t) a smooth curve through the steps."""
    curve = CubicSpline(np.arange(1000), _LOG_SIGMAS)
    network = of_variance_one("epsilon", lambda t: np.exp(curve(t)))
    sigmas = torch.tensor(np.exp(curve(np.array([0.5, 3.5, 50.5, 400.5]))))
    y = torch.randn(4, *SHAPE, generator=rng, dtype=torch.float64)
    errors = [
        (DiffusionDenoiser(network, DDPM, sample_shape=SHAPE, whole_steps=whole)(y, sigmas) - exact_mean(y, sigmas))
        .abs()
        .amax((1, 2, 3))
        / sigmas
        for whole in (False, True)
    ]
    assert (errors[0][1:] < 1e-2).all()
    assert (errors[1] > 4 * errors[0]).all()


def tiny_unet(**told):
    torch.manual_seed(0)
    blocks = {"down_block_types": ("DownBlock2D", "AttnDownBlock2D"), "up_block_types": ("AttnUpBlock2D", "UpBlock2D")}
    sizes = {"sample_size": 4, "in_channels": 1, "out_channels": 1, "block_out_channels": (8, 16)}
    sizes |= {"layers_per_block": 1, "norm_num_groups": 4, "attention_head_dim": 8}
    return DiffusersUNet(**{**sizes, **blocks, **told})


@pytest.fixture(scope="module")
def unet():
    return tiny_unet()


def test_a_unet_with_attention_is_differentiated_forward_as_well_as_backward(unet, rng):
    denoiser = DiffusionDenoiser(unet, DDPM)
    assert denoiser.sample_shape == (1, 4, 4)
    y = torch.randn(2, 16, generator=rng, dtype=torch.float64)
    axes = torch.eye(16, dtype=torch.float64).expand(2, -1, -1)
    forward, backward = (ScoreField(denoiser, mode=mode) for mode in ("forward", "reverse"))
    jacobian = forward.apply_jacobian(y, 0.5, axes)
    torch.testing.assert_close(jacobian, backward.apply_jacobian(y, 0.5, axes).mT)
    step = 1e-5 * axes[0]
    near = [forward.denoise(y[:1] + sign * step, 0.5) for sign in (1, -1)]
    torch.testing.assert_close(jacobian[0], (near[0] - near[1]) / 2e-5, rtol=0, atol=1e-7)


def test_the_network_stays_as_it_is_and_half_weights_answer_in_the_dtype_of_the_points(unet, rng):
    y, sigma = torch.randn(2, 1, 4, 4, generator=rng), torch.tensor([0.1, 1.0])
    unet.train()
    expected = ScoreField(DiffusionDenoiser(unet, DDPM)).denoise(y.flatten(1), sigma)
    assert unet.training
    assert all(one.requires_grad for one in unet.parameters())
    half = DiffusionDenoiser(tiny_unet().to(torch.bfloat16), DDPM)
    assert half(y, sigma).dtype == torch.float32
    torch.testing.assert_close(half(y, sigma).flatten(1), expected, rtol=0.05, atol=0.1)


def test_conditions_tables_of_steps_and_variances_are_taken(rng):
    """A network of two classes that looks its steps up, and predicts a variance as well."""
    network = tiny_unet(num_class_embeds=2, time_embedding_type="learned", num_train_timesteps=1000, out_channels=2)
    y, sigma = torch.randn(3, 1, 4, 4, generator=rng), torch.full((3,), 0.5)
    means = []
    for label in (0, 1):
        told = {"conditions": {"class_labels": torch.tensor([label])}, "whole_steps": True}
        denoiser = DiffusionDenoiser(network, DDPM, **told)
        means.append(denoiser(y, sigma))
        step = int(np.abs(_LOG_SIGMAS - np.log(0.5)).argmin())
        noise = network(y / 1.25**0.5, torch.full((3,), step), class_labels=torch.full((3,), label)).sample[:, :1]
        torch.testing.assert_close(means[-1], y - 0.5 * noise)
    assert (means[0] - means[1]).abs().max() > 1e-3


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda d: d(torch.zeros(1, *SHAPE), torch.tensor([1e-3])), r"bandwidth must lie in \[0\.01, 157\]"),
        (lambda d: d(torch.zeros(1, 4), torch.ones(1)), r"points must have shape \(n, 1, 2, 2\).*got \(1, 4\)"),
        (lambda d: DiffusionDenoiser(d, DDPM, sample_shape=SHAPE, prediction="eps"), "prediction must be one of epsi"),
        (lambda d: DiffusionDenoiser(lambda x, t: x, DDPM), "sample_shape must be the shape of one sample"),
        (lambda d: DiffusionDenoiser(d, "ddpm", sample_shape=SHAPE), "schedule must be a scheduler"),
        (
            lambda d: DiffusionDenoiser(d, SimpleNamespace(config={"a": 1}), sample_shape=SHAPE),
            "schedule must be a scheduler",
        ),
        (lambda d: DiffusionDenoiser(d, torch.linspace(0, 0.9, 5), sample_shape=SHAPE), "schedule must be a scheduler"),
        (
            lambda d: DiffusionDenoiser(d, EDMEulerScheduler(), prediction="sample", sample_shape=SHAPE),
            "prediction must be one of epsilon, v_prediction",
        ),
        (
            lambda d: DiffusionDenoiser(d, DDPM, conditions={"labels": torch.zeros(2)}, sample_shape=SHAPE),
            r"conditions\['labels'\] must be for one sample",
        ),
        (
            lambda d: DiffusionDenoiser(lambda x, t: x[:, :, :1], DDPM, sample_shape=SHAPE)(
                torch.zeros(1, *SHAPE), torch.ones(1)
            ),
            r"network must return predictions in the shape of its input, \(1, 1, 2, 2\); got \(1, 1, 1, 2\)",
        ),
        (lambda d: ScoreField(d, 5), r"denoiser must take what it is shown, which is points of 5 coordinates"),
        (lambda d: ScoreField(exact_mean, 4, sample_shape=(1, 5)), r"sample_shape must have 4 numbers .* got \(1, 5\)"),
        (lambda d: ScoreField(exact_mean, sample_shape=(0, 4)), "sample_shape must be positive whole numbers"),
        (lambda d: SteinField(d, sample_shape=(4,)), r"of shape \(4,\); got one of samples of shape \(1, 2, 2\)"),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_what_does_not_fit_is_named(call, message):
    with pytest.raises(carre.ArgumentError, match=message):
        call(DiffusionDenoiser(of_variance_one("epsilon"), DDPM, sample_shape=SHAPE))


def test_all_fields_show_a_denoiser_its_samples(rng):
    """One with a shape of its own, and a plain function of images that is told to be one."""
    own = DiffusionDenoiser(of_variance_one("epsilon"), DDPM, sample_shape=SHAPE)
    y = torch.randn(3, DIM, generator=rng, dtype=torch.float64)
    expected = exact_mean(y.reshape(-1, *SHAPE), torch.full((3,), 0.5, dtype=torch.float64)).flatten(1)
    for field in (
        *(ScoreField(own), SteinField(own), IsotropicField(DIM, own)),
        *(kind(exact_mean, sample_shape=SHAPE) for kind in (ScoreField, SteinField)),
    ):
        assert field.dim == DIM
        torch.testing.assert_close(field.denoise(y, 0.5), expected)
    # G = diag(v/(v + σ²)), by derivatives of a network that sees images.
    values = (VARIANCE / (VARIANCE + 0.25)).flatten().expand(3, -1)
    torch.testing.assert_close(ScoreField(exact_mean, sample_shape=SHAPE).metric(y, 0.5).eigenvalues(), values)


def smooth(points, bandwidth):
    return points / (1 + bandwidth.square()).reshape(-1, *[1] * (points.ndim - 1))


BRIEF = {"max_steps": 4, "width": 8, "n_blocks": 1, "batch_size": 16, "random_state": 0, "bandwidth": 0.5}


@pytest.mark.filterwarnings("ignore")
def test_a_fit_shows_a_denoiser_its_samples_and_stays_where_it_was_trained(rng):
    flat = torch.randn(40, DIM, generator=rng)
    denoiser = DiffusionDenoiser(of_variance_one("epsilon"), DDPM.alphas_cumprod, sample_shape=SHAPE)
    denoiser.bandwidth_range = low, high = 0.4, 100.0
    geometry = carre.fit(flat, method="two-stage", denoiser=denoiser, **BRIEF)
    assert geometry.bandwidth_range[0] == pytest.approx(low)
    expected = exact_mean(flat.reshape(-1, *SHAPE), torch.full((40,), 0.5)).flatten(1)
    torch.testing.assert_close(geometry.denoise(flat), expected.float(), rtol=1e-4, atol=1e-4)
    with pytest.raises(carre.ArgumentError, match=r"bandwidth_range must lie in .* where the denoiser was trained"):
        carre.fit(flat, method="two-stage", denoiser=denoiser, bandwidth_range=(low / 2, high))
    with pytest.raises(carre.ArgumentError, match=r"bandwidth must lie in .* where the denoiser was trained"):
        carre.fit(flat, method="two-stage", denoiser=denoiser, bandwidth=low / 2)
    with pytest.raises(carre.ArgumentError, match=r"of shape \(1, 1, 4\); got one of samples of shape \(1, 2, 2\)"):
        carre.fit(flat.reshape(-1, 1, 1, 4), method="two-stage", denoiser=denoiser)


def test_a_frozen_denoiser_that_misses_curvature_is_not_said_to_need_more_steps():
    angle = torch.linspace(0, 2 * torch.pi, 400)
    circle = torch.stack([angle.cos(), angle.sin()], 1)
    with pytest.warns(carre.LinearPhaseWarning) as caught:
        carre.fit(circle, method="two-stage", denoiser=smooth, **BRIEF)
    said = next(str(one.message) for one in caught if one.category is carre.LinearPhaseWarning)
    assert "train the denoiser longer" in said
    assert "max_steps" not in said


class Normed(nn.Module):
    """A denoiser with the norms and the attention that torch cannot differentiate forward, twice."""

    def __init__(self):
        super().__init__()
        self.layer, self.group = nn.LayerNorm(4), nn.GroupNorm(2, 4)
        self.heads = nn.MultiheadAttention(4, 2, batch_first=True)

    def forward(self, points, bandwidth):
        tokens = self.layer(points.reshape(-1, 3, 4))
        mixed = self.heads(tokens, tokens, tokens, need_weights=False)[0]
        # Channels that do not lie in one piece.
        return points + self.group((tokens + mixed).transpose(1, 2)).transpose(1, 2).reshape(points.shape)


def test_second_derivatives_through_norms_and_attention_are_right(rng):
    """What curvature is computed from: torch's own, of a layer norm, are wrong."""
    torch.manual_seed(0)
    field = ScoreField(Normed().double(), 12, mode="forward")
    y = torch.randn(2, 12, generator=rng, dtype=torch.float64)
    v, step = torch.randn(2, 12, generator=rng, dtype=torch.float64), 1e-5

    def trace(points):
        return (
            field.apply_jacobian(points, 0.3, torch.eye(12, dtype=torch.float64).expand(2, -1, -1))
            .diagonal(dim1=1, dim2=2)
            .sum(1)
        )

    leaf = y.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(trace(leaf).sum(), leaf)
    differences = (trace(y + step * v) - trace(y - step * v)) / (2 * step)
    torch.testing.assert_close((gradient * v).sum(1), differences, rtol=1e-5, atol=1e-6)
