"""The tangent spaces of blobs are right, and features move less along them than along any other direction."""

import pytest
import torch

from carre.fields import IsotropicField, NoDenoiserError
from experiments.measures import compare_stability, feature_stability, wavelet_features
from experiments.stability.blobs import BlobField, Blobs, draw_blobs


def test_tangents_span_the_derivatives_of_the_image():
    parameters = torch.tensor([[5.0, 6.5, 1.5], [7.2, 8.1, 2.2]], dtype=torch.float64)
    tangents = Blobs.of(parameters).tangents
    step = 1e-5
    for axis in torch.eye(3, dtype=torch.float64):
        ahead, behind = (Blobs.of(parameters + sign * step * axis).images.flatten(1) for sign in (1, -1))
        derivative = (ahead - behind) / (2 * step)
        projected = torch.einsum("nkd,nk->nd", tangents, torch.einsum("nkd,nd->nk", tangents, derivative))
        # Central differences are exact up to the square of the step.
        torch.testing.assert_close(projected, derivative, rtol=0, atol=1e-8)
    torch.testing.assert_close(tangents @ tangents.mT, torch.eye(3, dtype=torch.float64).expand(2, 3, 3))


def test_the_measure_prefers_the_true_tangent_space_at_every_radius(rng):
    blobs = draw_blobs(24, generator=rng)
    features = wavelet_features((1, 16, 16))

    def measure(field):
        return feature_stability(field, blobs.images, features, [0.5, 1.0, 2.0, 4.0], 4, bandwidth=1.0)

    compared = compare_stability(measure(BlobField(blobs)), measure(IsotropicField(256)), level=0.999)
    assert compared.wins.all()
    # Far from a tie: two thirds of what random directions do, or less.
    assert (compared.ratio < 0.67).all()


def test_the_field_is_the_projector_and_knows_its_own_images_only(rng):
    blobs = draw_blobs(3, generator=rng)
    field = BlobField(blobs)
    metric = field.metric(blobs.images[[2, 0]].flatten(1), 0.1)
    torch.testing.assert_close(metric.apply(blobs.tangents[[2, 0], 1]), blobs.tangents[[2, 0], 1])
    with pytest.raises(ValueError, match="points must be images of the blobs"):
        field.metric(torch.zeros(1, 256), 0.1)
    with pytest.raises(NoDenoiserError, match="has no denoiser"):
        field.denoise(blobs.images.flatten(1), 0.1)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("n", "side"), [(0, 16), (-1, 16), ("few", 16), (2, 16.5)])
def test_blobs_come_in_whole_numbers(n, side):
    with pytest.raises(ValueError, match="n and side must be whole numbers, n at least 1; got"):
        draw_blobs(n, side=side)


def test_blobs_need_room_and_a_width():
    with pytest.raises(ValueError, match="side must leave room for a blob, 11 pixels; got 10"):
        draw_blobs(1, side=10)
    with pytest.raises(ValueError, match="widths must be two positive numbers"):
        draw_blobs(1, widths=(2.0, 1.0))


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    "wrong", [{"widths": 3}, {"widths": (2.0, 1.0)}, {"brightness": float("nan")}, {"brightness": float("inf")}]
)
def test_numbers_that_make_no_blob_are_named(wrong):
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} must be"):
        draw_blobs(3, **wrong)
