"""Take a diffusion model of diffusers for a metric: without training, with a fast factor, and in a loop of one's own.

Run it with ``python docs/tutorials/denoiser.py``, or cell by cell as a notebook; it needs ``pip install diffusers``.
With ``CARRE_FIGURES=folder`` the pictures are saved, with ``CARRE_QUICK=1`` everything is cut short.
"""

# %% [markdown]
# # A researcher's denoiser
#
# You have a diffusion model. For the exact posterior mean m(y) = E[X | Y=y], the metric is its Jacobian: G = ∂m/∂y.
# So your model knows already in which directions its data can move, and there are four ways on:
#
# 1. **no training**: `ScoreField` takes products with that Jacobian,
# 2. **one fit**: a network learns the factor of the metric from the frozen model, and gives it in one pass,
# 3. **a loop of your own**, with your `DataLoader`, on the losses of `carre`,
# 4. **any field**, also one from there, becomes a `Geometry` with all tools.
#
# ![Three digits and their directions, by a diffusion model and by a factor](../images/tutorials/denoiser_tangents.png)
#
# We train a tiny model of `diffusers` on digits of 8 × 8 pixels first, far shorter than a model of yours was. All of
# this page takes some two minutes of one core.

# %%
import os
import time
from pathlib import Path

import matplotlib
import torch
from diffusers import DDPMScheduler, UNet2DModel
from sklearn.datasets import load_digits
from torch.optim.swa_utils import AveragedModel
from torch.utils.data import DataLoader, RandomSampler, TensorDataset

import carre
from carre import DiffusionDenoiser, NeuralField, ScoreField, UNetSettings
from carre.matching import LogUniform, perturb_among
from carre.metric import AffineFrame
from carre.networks import build_model
from carre.plots import figure_of, plot_denoised_images, plot_path_strip, plot_tangent_images
from carre.plots.style import STYLE
from carre.training import DataScale, Objective

QUICK, FIGURES = bool(os.environ.get("CARRE_QUICK")), os.environ.get("CARRE_FIGURES")
matplotlib.rcParams.update(STYLE)
torch.manual_seed(0)


def save(axes, name):
    """Save the figure that axes belong to, if a folder was named."""
    if FIGURES:
        Path(FIGURES).mkdir(parents=True, exist_ok=True)
        figure_of(axes).savefig(Path(FIGURES) / f"denoiser_{name}.png", dpi=120)


pixels = torch.tensor(load_digits().images[:, None], dtype=torch.float32) / 8 - 1  # (1797, 1, 8, 8), in [−1, 1]
train, test = pixels[:1500], pixels[1500:]

# %%
scheduler = DDPMScheduler(beta_schedule="squaredcos_cap_v2", prediction_type="v_prediction")
unet = UNet2DModel(
    sample_size=8,
    in_channels=1,
    out_channels=1,
    block_out_channels=(16, 32),
    layers_per_block=1,
    norm_num_groups=8,
    attention_head_dim=16,
    down_block_types=("DownBlock2D", "AttnDownBlock2D"),
    up_block_types=("AttnUpBlock2D", "UpBlock2D"),
)
N_STEPS = 20 if QUICK else 1200
optimizer = torch.optim.AdamW(unet.parameters(), lr=2e-3)
rate = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, total_steps=N_STEPS)
draws = RandomSampler(train, replacement=True, num_samples=64 * N_STEPS)
for (x,) in DataLoader(TensorDataset(train), batch_size=64, sampler=draws):
    noise, t = torch.randn_like(x), torch.randint(scheduler.config.num_train_timesteps, (len(x),))
    told = unet(scheduler.add_noise(x, noise, t), t).sample
    loss = (told - scheduler.get_velocity(x, noise, t)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    rate.step()

# %% [markdown]
# ## The same model, as a denoiser
#
# `DiffusionDenoiser` reads from the scheduler what the network predicts, and under which noise it was trained; from
# the network's `config`, the shape of a sample. In these units, pixels from −1 to 1, σ is the deviation of the noise.

# %%
denoiser = DiffusionDenoiser(unet, scheduler)
low, high = denoiser.bandwidth_range
print(f"images of {denoiser.sample_shape}, σ from {low:.3f} to {high:.0f}")

noisy = test[:8] + 0.5 * torch.randn_like(test[:8])
with torch.no_grad():
    clean = denoiser(noisy, torch.full((8,), 0.5))
save(plot_denoised_images(test[:8, 0], noisy[:, 0], {"diffusion model": clean[:, 0]}), "denoised")

# %% [markdown]
# ![Digits, the same with noise, and denoised by the diffusion model](../images/tutorials/denoiser_denoised.png)
#
# If yours comes out gray, or sharpened, look at `prediction=` and at the units of your images first: both are wrong
# without an error. Latents are samples like any others; give their shape.
#
# ## 1. No training
#
# A `ScoreField` multiplies vectors by the Jacobian, forward, through attention and group norms alike. With `rank=16`
# that is 96 products for every image.

# %%
sigma = 0.4
score = ScoreField(denoiser, rank=16)
three = test[[0, 1, 3]]
flat = three.flatten(1)
start = time.perf_counter()
metric = score.metric(flat, sigma)
by_products = time.perf_counter() - start
print("eigenvalues:", metric.eigenvalues()[:, [0, 3, 7, 15]].numpy().round(2).tolist())
print("directions above one half:", score.count(flat, sigma).value.int().tolist())
directions = metric.tangent_basis(5).mT

# %% [markdown]
# `count` counts singular values of the Jacobian without a rank that could cut them off. All functions of
# `carre.toolkit` take the field as it is.
#
# ## 2. A fast metric, taught by the model
#
# A two-stage fit keeps the denoiser as it is, and learns the factor F of G = FᵀF beside it. Scales outside of what the
# model has seen are left out by themselves.

# %%
sizes = UNetSettings(channels=32, multipliers=(1, 2), n_blocks=1, attention=(), patch=1)
geometry = carre.fit(
    train,
    method="two-stage",
    denoiser=denoiser,
    network=sizes,
    rank=16,
    bandwidth=sigma,
    max_steps=1 if QUICK else 400,
    random_state=0,
    verbose=False,
)
taught = geometry.metric(three)
start = time.perf_counter()
geometry.metric(three)
by_factor = time.perf_counter() - start
agreement = (directions @ taught.tangent_basis(5)).square().sum((1, 2)) / 5
print(f"{1e3 * by_products:.0f} ms by products, {1e3 * by_factor:.0f} ms in one pass")
print("of the five leading directions in common:", agreement.numpy().round(2).tolist())
both = torch.cat([directions, taught.tangent_basis(5).mT]).reshape(6, 5, 8, 8)
values = torch.cat([found.eigenvalues()[:, :5] for found in (metric, taught)])
save(plot_tangent_images(three[:, 0].repeat(2, 1, 1), both, values), "tangents")

# %% [markdown]
# The picture stands at the top of this page: above by products with the Jacobian, below by the factor. It needs one
# pass instead of 96 products, and after 400 steps its five leading directions have half of theirs in common with those
# of the Jacobian: a share of 0.5, where five random ones of 64 have 0.08. The factor sees what the model agrees on from
# digit to digit; the Jacobian of a model that was trained for a minute also has its mistakes, and its eigenvalues pass
# beyond one. Without a gap in the eigenvalues, directions that are nearly equal come mixed as well.
#
# If the fit warns of a linear phase, it speaks of *your* denoiser, which is frozen: no step of the fit changes that.
#
# ## 3. A loop of your own
#
# Mean and factor together, with a `DataLoader`. How near it comes to `carre.fit` is measured in the
# [page on own parts](../own_parts.md#a-training-loop-of-your-own): isotropic units, the range of scales,
# `perturb_among`, the Jacobian as a teacher (in `Objective`), a rate that falls, and averaged weights.

# %%
STEPS = 10 if QUICK else 1000
data = train.flatten(1)
frame = AffineFrame.of(data)
samples = frame.encode(data).float()
scale = DataScale.of(samples)
sigmas = LogUniform(*scale.bandwidth_range())
model = build_model(frame.hull_dim, 16, width=128, n_blocks=3, spread=scale.spread)
objective = Objective()
optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3, betas=(0.9, 0.99), weight_decay=0.3)
rate = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: min((n + 1) / 100, 1, (1 - n / STEPS) / 0.7))
average = AveragedModel(model, avg_fn=lambda old, new, n: old.lerp(new, max(0.002, 9 / (10 + float(n)))))
draws = RandomSampler(samples, replacement=True, num_samples=256 * STEPS)
for (x,) in DataLoader(TensorDataset(samples), batch_size=256, sampler=draws):
    batch = perturb_among(x, torch.arange(len(x)), sigmas.quantile(torch.rand(len(x))), n_draws=8)
    loss = sum(objective(model, batch)).mean()
    optimizer.zero_grad()
    loss.backward()
    for part in (model.mean, model.factor):
        torch.nn.utils.clip_grad_norm_(part.parameters(), 1.0)
    optimizer.step()
    rate.step()
    average.update_parameters(model)

# %% [markdown]
# ## 4. Any field is a geometry
#
# `NeuralField` asks a network in the units of the data. Around a field, yours too, a `Geometry` says at which scale it
# is asked and between which samples paths run; then all tools are methods.

# %%
low, high = (frame.scale * edge for edge in scale.bandwidth_range())
field = NeuralField(average.module, frame)
own = carre.Geometry(field, sigma, (low, high), landmarks=data, rank=16, sample_shape=(1, 8, 8))
learned = ScoreField(denoiser, rank=16)
borrowed = carre.Geometry(learned, sigma, denoiser.bandwidth_range, landmarks=data, rank=16, sample_shape=(1, 8, 8))

held_out = test + sigma * torch.randn_like(test)
left = {}
for name, one in (("diffusion model", borrowed), ("own loop", own)):
    left[name] = float((one.denoise(held_out, sigma) - test).square().mean() / sigma**2)
    print(f"{name}: {1 - left[name]:.1%} of the noise removed")

way = carre.Thread(max_sweeps=1 if QUICK else 10)
strips = {}
for name, one in (("diffusion model", borrowed), ("own loop", own)):
    thread = one.path(test[10], test[20], method=way, n_nodes=7)
    strips[name] = one.to_images(thread.nodes)[0, :, 0]
save(plot_path_strip(strips, limits=(-1.0, 1.0), title="From one digit to another"), "paths")

# %% [markdown]
# ![Threads from one digit to another, by both](../images/tutorials/denoiser_paths.png)
#
# Of noise of σ = 0.4 on digits that none of them has seen, the diffusion model takes off 76.9%, the loop 72.7%.
#
# What is too short here: the diffusion model, which a thousand more steps would serve, and the fit of the factor; nor
# are 1,500 digits many. What does not change with size: three lines for a denoiser, one call for a factor, and the
# same tools for both.
