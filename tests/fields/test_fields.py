import pickle

import pytest
import torch
from torch import nn

from carre.fields import ExactField, NeuralField
from carre.manifolds import FiniteSet, Gaussian
from carre.metric import AffineFrame
from carre.networks import MetricModel, build_model
from tests.fields.conformance import FieldConformance


class TestExactFieldOfAFiniteSet(FieldConformance):
    @pytest.fixture
    def make_field(self):
        return lambda samples: ExactField(FiniteSet(samples))


class TestExactFieldOfAGaussian(FieldConformance):
    @pytest.fixture
    def make_field(self):
        return lambda samples: ExactField(Gaussian(samples.mean(0), torch.cov(samples.mT)))

    def test_it_can_be_differentiated(self, field, points):
        """G does not depend on y here; the mean does, and its Jacobian is G."""
        jacobian = torch.func.jacrev(lambda y: field.denoise(y[None], self.sigma)[0])(points[0])
        torch.testing.assert_close(jacobian, field.metric(points[:1], self.sigma).dense()[0])


class WienerModel(nn.Module):
    """The exact posterior of N(0, diag(v)) in the frame: mean and factor in closed form."""

    def __init__(self, variances):
        super().__init__()
        self.register_buffer("variances", variances)

    def forward(self, points, bandwidth):
        shrink = self.variances / (self.variances + bandwidth.square()[:, None])
        return shrink * points, torch.diag_embed(shrink.sqrt()) + 0 * points[:, None, :]


def random_network(samples):
    torch.manual_seed(0)
    frame = AffineFrame.of(samples)
    model = build_model(frame.hull_dim, 3, width=16, n_blocks=1, spread=1.0)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    return NeuralField(model, frame)


class TestNeuralField(FieldConformance):
    tolerance = 1e-6
    equivariant_construction = False

    @pytest.fixture
    def make_field(self):
        return random_network

    def test_it_carries_means_and_metrics_out_of_the_frame(self, rng):
        """A closed-form model in the frame of N(μ, Σ) must give the closed form in the data's space."""
        deviations = torch.tensor([3.0, 1.0, 0.5], dtype=torch.float64)
        rotation = torch.linalg.qr(torch.randn(5, 3, generator=rng, dtype=torch.float64))[0]
        samples = 7.0 + (torch.randn(3000, 3, generator=rng, dtype=torch.float64) * deviations) @ rotation.mT
        frame = AffineFrame.of(samples)
        assert frame.hull_dim == 3
        variances = frame.encode(samples).var(0, correction=0)
        field = NeuralField(WienerModel(variances), frame)
        truth = ExactField(Gaussian(samples.mean(0), torch.cov(samples.mT, correction=0)))
        points = samples[:8] + torch.randn(8, 5, generator=rng, dtype=torch.float64)
        torch.testing.assert_close(
            field.metric(points, 0.7).dense(), truth.metric(points, 0.7).dense(), atol=1e-8, rtol=0
        )
        torch.testing.assert_close(field.denoise(points, 0.7), truth.denoise(points, 0.7), atol=1e-8, rtol=0)

    def test_it_moves_with_its_frame(self, field, points, rng):
        """The same model in a rotated, shifted and scaled frame is the rotated, shifted and scaled field."""
        rotation = torch.linalg.qr(torch.randn(4, 4, generator=rng, dtype=torch.float64))[0]
        shift = torch.randn(4, generator=rng, dtype=torch.float64)
        frame = AffineFrame(3 * rotation @ field.frame.center + shift, 3 * field.frame.scale, rotation)
        moved, image = NeuralField(field.model, frame), 3 * points @ rotation.mT + shift
        expected = rotation @ field.metric(points, 0.4).dense() @ rotation.mT
        torch.testing.assert_close(moved.metric(image, 1.2).dense(), expected, atol=1e-8, rtol=0)
        mean = 3 * field.denoise(points, 0.4) @ rotation.mT + shift
        torch.testing.assert_close(moved.denoise(image, 1.2), mean, atol=1e-8, rtol=0)

    def test_the_callers_module_is_not_frozen(self, samples):
        model = build_model(4, 3, width=8, n_blocks=1, spread=1.0)
        NeuralField(model, AffineFrame.of(samples))
        assert all(parameter.requires_grad for parameter in model.parameters())

    def test_the_predicted_metric_contains_the_ridge(self, field, points):
        ridged = NeuralField(field.model, field.frame, ridge=0.3)
        expected = field.metric(points, 0.4).dense() + 0.3 * torch.eye(4, dtype=torch.float64)
        torch.testing.assert_close(ridged.metric(points, 0.4).dense(), expected)

    def test_large_batches_are_evaluated_in_chunks(self, monkeypatch, field, points):
        whole = field.metric(points, 0.4).dense()
        monkeypatch.setattr("carre.fields.neural._CHUNK", {"cpu": 4})
        torch.testing.assert_close(field.metric(points, 0.4).dense(), whole)

    @pytest.mark.parametrize("chunk", [1, 3, 100])
    def test_the_chunk_that_is_asked_for_is_taken(self, chunk, field, points, monkeypatch):
        sizes, cut = [], NeuralField(field.model, field.frame, chunk=chunk)
        inside = NeuralField._evaluate
        monkeypatch.setattr(NeuralField, "_evaluate", lambda self, *a: sizes.append(len(a[0])) or inside(self, *a))
        torch.testing.assert_close(cut.metric(points, 0.4).dense(), field.metric(points, 0.4).dense())
        assert max(sizes[: -(-len(points) // chunk)]) == min(chunk, len(points))

    def test_no_chunk_is_refused(self, field):
        with pytest.raises(ValueError, match="chunk must be at least 1, or None; got 0"):
            NeuralField(field.model, field.frame, chunk=0)

    def test_mixed_precision_is_the_same_to_two_digits(self, field, points):
        rounded = field.with_mixed_precision().metric(points.float(), 0.4).dense()
        exact = field.metric(points.float(), 0.4).dense()
        assert not torch.equal(rounded, exact)
        assert (rounded - exact).norm() < 0.03 * exact.norm()

    def test_derivatives_in_the_bandwidth_belong_to_their_points(self, field, points):
        """A single σ is embedded once; its derivative must still be that of each point."""
        one = torch.tensor(0.3, dtype=torch.float64)
        trace = lambda s: field.metric(points, s).trace()  # noqa: E731
        expected = torch.func.jacrev(trace)(one.repeat(len(points)))
        assert (expected - torch.diag(expected.diagonal())).abs().max() == 0
        torch.testing.assert_close(torch.func.jacrev(trace)(one.expand(len(points))), expected)
        leaf = one.expand(len(points)).requires_grad_()
        (gradient,) = torch.autograd.grad(trace(leaf).sum(), leaf)
        torch.testing.assert_close(gradient, expected.diagonal())

    def test_a_first_call_in_inference_mode_or_in_a_transformation_leaves_no_trace(self, make_field, samples, points):
        for first in (torch.func.jacrev, torch.inference_mode()):
            field = make_field(samples)
            first(lambda y, field=field: field.denoise(y, 0.4))(points)
            given = points.clone().requires_grad_()
            field.metric(given, 0.4).trace().sum().backward()
            assert torch.isfinite(given.grad).all()

    def test_pickling_keeps_the_answers(self, field, points):
        again = pickle.loads(pickle.dumps(field))
        assert torch.equal(again.metric(points, 0.4).factor, field.metric(points, 0.4).factor)

    def test_an_uncentered_model_says_that_it_cannot_denoise(self, samples, points):
        inner = build_model(4, 3, width=8, n_blocks=1, spread=1.0, with_mean=False)
        assert isinstance(inner, MetricModel)
        field = NeuralField(inner, AffineFrame.of(samples))
        with pytest.raises(ValueError, match="uncentered"):
            field.denoise(points, 0.4)

    @pytest.mark.gpu
    def test_points_on_a_gpu_are_answered_there(self, field, points):
        on_gpu = field.metric(points.cuda(), 0.4)
        assert on_gpu.factor.is_cuda
        torch.testing.assert_close(on_gpu.dense().cpu(), field.metric(points, 0.4).dense(), atol=1e-6, rtol=0)
