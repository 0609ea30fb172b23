"""The objective: distributions of σ, perturbed samples, and the losses, one value per sample."""

from carre.matching.bandwidths import BandwidthDistribution, LogNormal, LogUniform, Uniform
from carre.matching.losses import (
    JacobianProbe,
    carre_du_champ_loss,
    conditional_carre_du_champ,
    denoising_loss,
    frobenius_loss,
    metric_matching_loss,
    predictive_loss,
    probe_jacobian,
)
from carre.matching.perturbation import Perturbation, perturb, perturb_among

__all__ = [
    "BandwidthDistribution",
    "JacobianProbe",
    "LogNormal",
    "LogUniform",
    "Perturbation",
    "Uniform",
    "carre_du_champ_loss",
    "conditional_carre_du_champ",
    "denoising_loss",
    "frobenius_loss",
    "metric_matching_loss",
    "perturb",
    "perturb_among",
    "predictive_loss",
    "probe_jacobian",
]
