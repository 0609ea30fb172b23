"""One suite that every field inherits: what a metric must be, whatever it comes from."""

import pytest
import torch

from carre.fields import MetricField
from carre.metric import Metric


class FieldConformance:
    """Inherit, and provide the fixtures ``make_field`` and ``samples``.

    ``make_field(samples)`` builds the field of given samples; the laws of symmetry compare the fields
    of transformed samples. A field whose construction is not equivariant by itself (a trained network)
    sets ``equivariant_construction = False`` and is transformed by hand in its own tests.
    """

    sigma = 0.4
    tolerance = 1e-8
    equivariant_construction = True

    @pytest.fixture
    def samples(self, rng):
        return torch.randn(40, 4, generator=rng, dtype=torch.float64)

    @pytest.fixture
    def field(self, make_field, samples):
        return make_field(samples)

    @pytest.fixture
    def points(self, samples, rng):
        return samples[:6] + 0.1 * torch.randn(6, samples.shape[1], generator=rng, dtype=torch.float64)

    def test_it_speaks_the_protocol(self, field, points):
        assert isinstance(field, MetricField)
        assert field.dim == points.shape[1]
        assert isinstance(field.metric(points, self.sigma), Metric)
        assert field.denoise(points, self.sigma).shape == points.shape

    def test_metrics_are_symmetric_and_positive(self, field, points):
        dense = field.metric(points, self.sigma).dense()
        torch.testing.assert_close(dense, dense.mT)
        assert torch.linalg.eigvalsh(dense).min() > -self.tolerance

    def test_points_are_independent_of_each_other(self, field, points):
        whole = field.metric(points, self.sigma).dense()
        parts = torch.cat([field.metric(point[None], self.sigma).dense() for point in points])
        torch.testing.assert_close(whole, parts, atol=self.tolerance, rtol=0)

    def test_a_bandwidth_per_point_is_the_same_as_one_after_the_other(self, field, points):
        sigmas = torch.linspace(0.3, 0.8, len(points), dtype=points.dtype)
        together = field.metric(points, sigmas).dense()
        single = torch.cat([field.metric(p[None], float(s)).dense() for p, s in zip(points, sigmas, strict=True)])
        torch.testing.assert_close(together, single, atol=self.tolerance, rtol=0)
        means = torch.cat([field.denoise(p[None], float(s)) for p, s in zip(points, sigmas, strict=True)])
        torch.testing.assert_close(field.denoise(points, sigmas), means, atol=self.tolerance, rtol=0)

    def test_dtype_is_preserved_and_the_input_not_touched(self, field, points):
        for dtype in (torch.float32, torch.float64):
            given = points.to(dtype)
            before = given.clone()
            assert field.metric(given, self.sigma).dtype == dtype
            assert field.denoise(given, self.sigma).dtype == dtype
            assert torch.equal(given, before)

    def test_the_same_question_has_the_same_answer(self, field, points):
        first, second = field.metric(points, self.sigma), field.metric(points, self.sigma)
        assert torch.equal(first.dense(), second.dense())

    def test_it_can_be_differentiated(self, field, points):
        points = points.clone().requires_grad_()
        field.metric(points, self.sigma).trace().sum().backward()
        assert torch.isfinite(points.grad).all()

    @pytest.mark.parametrize(
        ("points_argument", "bandwidth", "message"),
        [
            (torch.zeros(3, 9), 1.0, "points must have"),
            (torch.zeros(9), 1.0, "points must have shape"),
            (torch.full((2, 4), float("nan")), 1.0, "points must be finite"),
            (torch.zeros(0, 4), 1.0, "points must not be empty"),
            (torch.zeros(2, 4), -1.0, "bandwidth must be positive"),
            (torch.zeros(2, 4), 0.0, "bandwidth must be positive"),
            (torch.zeros(2, 4), float("nan"), "bandwidth must be positive"),
            (torch.zeros(2, 4), torch.ones(3), "bandwidth must be a number or have shape"),
        ],
    )
    def test_bad_input_is_named(self, field, points_argument, bandwidth, message):
        for method in (field.metric, field.denoise):
            with pytest.raises(ValueError, match=message):
                method(points_argument, bandwidth)

    def test_it_moves_with_the_data(self, make_field, field, samples, points, rng):
        """Translations, rotations, and a change of units of points and σ together (THEORY §1)."""
        if not self.equivariant_construction:
            pytest.skip("the construction of this field is random; its own tests transform it by hand")
        rotation = torch.linalg.qr(torch.randn(4, 4, generator=rng, dtype=torch.float64))[0]
        shift = torch.randn(4, generator=rng, dtype=torch.float64)
        moved = make_field(3.0 * samples @ rotation.mT + shift)
        image = 3.0 * points @ rotation.mT + shift
        expected = rotation @ field.metric(points, self.sigma).dense() @ rotation.mT
        torch.testing.assert_close(moved.metric(image, 3.0 * self.sigma).dense(), expected, atol=self.tolerance, rtol=0)
        mean = 3.0 * field.denoise(points, self.sigma) @ rotation.mT + shift
        torch.testing.assert_close(moved.denoise(image, 3.0 * self.sigma), mean, atol=10 * self.tolerance, rtol=0)
