"""The objective: distributions of σ, perturbed samples, and the losses, one value per sample."""

from carre.arguments import check_room
from carre.matching.bandwidths import BandwidthDistribution, LogNormal, LogUniform, Uniform
from carre.matching.losses import (
    carre_du_champ_loss,
    conditional_carre_du_champ,
    denoising_loss,
    frobenius_loss,
    metric_matching_loss,
    predictive_loss,
    probe_loss,
)
from carre.matching.perturbation import Perturbation, perturb, perturb_among
from carre.matching.probes import JacobianProbe, backward_probe, denoise_along, vectors_in_range

__all__ = [
    "BandwidthDistribution",
    "JacobianProbe",
    "LogNormal",
    "LogUniform",
    "Perturbation",
    "Uniform",
    "backward_probe",
    "carre_du_champ_loss",
    "conditional_carre_du_champ",
    "denoise_along",
    "denoising_loss",
    "frobenius_loss",
    "metric_matching_loss",
    "perturb",
    "perturb_among",
    "predictive_loss",
    "probe_loss",
    "vectors_in_range",
]

check_room(
    __name__,
    but=(
        "JacobianProbe",
        "Perturbation",
    ),
)
