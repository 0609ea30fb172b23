"""The kernel field against exact sums, and against the laws of THEORY §4.5 and §5."""

import pickle

import pytest
import torch

from carre.fields import ExactField, KernelField
from carre.manifolds import FiniteSet, Sphere
from carre.neighbors import TorchIndex, build_index
from tests.fields.conformance import FieldConformance

VARIANTS = {
    "all samples": {},
    "neighbors": {"n_neighbors": 12},
    "fewer neighbors than dimensions": {"n_neighbors": 3},
    "uncentered": {"n_neighbors": 12, "centered": False},
    "adaptive": {"adaptive": True, "n_neighbors": 20},
    "adaptive over all": {"adaptive": True},
    "without itself": {"self_neighbor": "drop"},
    "two leading directions": {"n_neighbors": 12, "rank": 2},
    "in blocks": {"memory": 2000},
}


@pytest.fixture(params=VARIANTS.values(), ids=VARIANTS)
def options(request):
    return request.param


class TestKernelField(FieldConformance):
    @pytest.fixture
    def make_field(self, options):
        return lambda samples: KernelField(samples, **options)

    def test_pickling_keeps_the_answers(self, field, points):
        before = field.metric(points, 0.4).factor
        assert torch.equal(pickle.loads(pickle.dumps(field)).metric(points, 0.4).factor, before)

    def test_derivatives_are_those_of_the_metric(self, field, points, options):
        """Along a line, against central differences: error h²/6 ~ 1e-8, rounding 1e-15/h ~ 1e-11."""
        if "rank" in options:
            pytest.skip("derivatives hold the leading directions fixed")
        direction, step = torch.linspace(-1, 1, 4, dtype=points.dtype), 1e-4

        def dense(t):
            return field.metric(points + t * direction, 0.4).dense()

        at_zero = torch.zeros((), dtype=points.dtype)
        _, derivative = torch.func.jvp(dense, (at_zero,), (torch.ones_like(at_zero),))
        difference = (dense(at_zero + step) - dense(at_zero - step)) / (2 * step)
        torch.testing.assert_close(derivative, difference, atol=1e-5, rtol=1e-5)
        forward = torch.func.jacfwd(dense)(at_zero)
        torch.testing.assert_close(forward, derivative, atol=1e-7, rtol=1e-7)
        reverse = torch.func.jacrev(lambda t: dense(t).flatten())(at_zero)
        torch.testing.assert_close(reverse, derivative.flatten(), atol=1e-7, rtol=1e-7)

    def test_nothing_of_a_transformation_is_kept(self, field, points):
        """Samples converted to another dtype inside torch.func are as good as those converted outside."""
        single = points.float()
        _, tangent = torch.func.jvp(lambda y: field.denoise(y, 0.4), (single,), (torch.ones_like(single),))
        assert torch.isfinite(tangent).all()
        assert all(copy.numpy().shape == (40, 4) for copy in field._copies.values())
        torch.testing.assert_close(
            field.denoise(single, 0.4).double(), field.denoise(single.double(), 0.4), atol=1e-4, rtol=0
        )

    @pytest.mark.gpu
    def test_points_on_a_gpu_are_answered_there(self, field, points):
        on_gpu = field.metric(points.cuda(), 0.4)
        assert on_gpu.factor.is_cuda
        torch.testing.assert_close(on_gpu.dense().cpu(), field.metric(points, 0.4).dense(), atol=1e-9, rtol=0)
        torch.testing.assert_close(field.denoise(points.cuda(), 0.4).cpu(), field.denoise(points, 0.4))


@pytest.fixture
def sphere(rng):
    return Sphere(2).embed(6, generator=rng)


@pytest.fixture
def samples(sphere, rng):
    return sphere.sample(300, generator=rng)


@pytest.fixture
def points(samples, rng):
    return samples[:20] + 0.1 * torch.randn(20, 6, generator=rng, dtype=torch.float64)


@pytest.mark.parametrize("options", [{}, {"n_neighbors": 300}, {"memory": 9000}, {"n_neighbors": 300, "memory": 9000}])
@pytest.mark.parametrize("n", [300, 5])
def test_over_all_samples_it_is_the_exact_field_of_the_finite_set(samples, points, options, n):
    options = {name: min(value, n) if name == "n_neighbors" else value for name, value in options.items()}
    field, exact = KernelField(samples[:n], **options), ExactField(FiniteSet(samples[:n]))
    for sigma in (0.05, 0.3, 2.0):
        torch.testing.assert_close(
            field.metric(points, sigma).dense(), exact.metric(points, sigma).dense(), atol=1e-12, rtol=1e-12
        )
        torch.testing.assert_close(field.denoise(points, sigma), exact.denoise(points, sigma))
        torch.testing.assert_close(
            field.effective_neighbors(points, sigma), exact.manifold.effective_neighbors(points, sigma)
        )


@pytest.mark.parametrize("n_neighbors", [None, 300])
def test_uncentered_it_adds_the_offset_of_the_mean(samples, points, n_neighbors):
    """2Γ = G + (m−y)(m−y)ᵀ/σ² (THEORY §1)."""
    exact = ExactField(FiniteSet(samples))
    offset = (exact.denoise(points, 0.3) - points) / 0.3
    expected = exact.metric(points, 0.3).dense() + offset[:, :, None] * offset[:, None, :]
    field = KernelField(samples, centered=False, n_neighbors=n_neighbors)
    torch.testing.assert_close(field.metric(points, 0.3).dense(), expected, atol=1e-12, rtol=1e-12)
    torch.testing.assert_close(field.denoise(points, 0.3), exact.denoise(points, 0.3))


def test_neighbors_are_the_finite_set_of_the_nearest(samples, points):
    field = KernelField(samples, n_neighbors=30)
    for point in points[:5]:
        nearest = samples[(samples - point).square().sum(1).argsort()[:30]]
        expected = ExactField(FiniteSet(nearest)).metric(point[None], 0.3).dense()
        torch.testing.assert_close(field.metric(point[None], 0.3).dense(), expected, atol=1e-12, rtol=0)


@pytest.mark.parametrize("n_neighbors", [None, 299])
@pytest.mark.parametrize("memory", [None, 1000])
def test_dropping_itself_is_the_finite_set_without_that_sample(samples, n_neighbors, memory):
    field = KernelField(samples, n_neighbors=n_neighbors, self_neighbor="drop", memory=memory)
    answers = field.metric(samples[:8], 0.2).dense()
    for i in range(8):
        others = torch.cat([samples[:i], samples[i + 1 :]])
        expected = ExactField(FiniteSet(others)).metric(samples[i : i + 1], 0.2).dense()
        torch.testing.assert_close(answers[i : i + 1], expected, atol=1e-12, rtol=0)


def test_at_new_points_nothing_is_dropped_and_of_two_copies_only_one(samples, points):
    keep, drop = KernelField(samples), KernelField(samples, self_neighbor="drop")
    torch.testing.assert_close(drop.metric(points, 0.2).dense(), keep.metric(points, 0.2).dense())
    for n_neighbors in (None, 300):
        twice = KernelField(torch.cat([samples, samples[:1]]), self_neighbor="drop", n_neighbors=n_neighbors)
        torch.testing.assert_close(twice.metric(samples[:1], 0.2).dense(), keep.metric(samples[:1], 0.2).dense())


def test_at_its_own_samples_keeping_itself_shrinks_the_metric_and_dropping_does_not(rng):
    """500 samples of S² and σ = 0.1, so that n_eff = 5 (THEORY §5); a sample is to the others what a new point is."""
    samples, new = Sphere(2).sample(500, generator=rng), Sphere(2).sample(500, generator=rng)
    keep, drop = (KernelField(samples, self_neighbor=choice) for choice in ("keep", "drop"))
    expected = float(keep.metric(new, 0.1).trace().mean())
    assert float(drop.metric(samples, 0.1).trace().mean()) == pytest.approx(expected, rel=0.1)
    assert float(keep.metric(samples, 0.1).trace().mean()) < 0.8 * expected


@pytest.mark.parametrize(("k", "trace"), [(200, 0.454), (1000, 1.562), (5000, 2.0)])
def test_truncation_shrinks_the_trace_as_predicted(rng, k, trace):
    """S², 20,000 samples, σ = 0.2, so that n_eff = nσ² = 800 (THEORY §5).

    Curvature takes a share σ²/2 = 2 % of the trace and of the predicted reach another O(σ²); the mean over 50
    points has a standard error below 1 %.
    """
    sphere = Sphere(2)
    field = KernelField(sphere.sample(20_000, generator=rng), n_neighbors=k, index="torch")
    points = sphere.sample(50, generator=rng)
    predicted = 2 * field.truncation(points, 0.2, 2)
    assert float(predicted.mean()) == pytest.approx(trace, rel=0.03)
    found = field.metric(points, 0.2).trace()
    assert float(found.mean() / predicted.mean()) == pytest.approx(1 - 0.2**2 / 2, abs=0.03)


def test_without_truncation_the_factor_is_one_and_far_out_it_tends_to_that_of_a_ball(samples, points):
    assert (KernelField(samples).truncation(points, 0.2, 2) == 1).all()
    field = KernelField(samples, n_neighbors=10)
    reach = (samples[None] - points[:, None]).square().sum(-1).sort(1).values[:, 9]
    torch.testing.assert_close(field.truncation(points, 1e6, 2), reach / 1e12 / 4, rtol=1e-6, atol=0)
    with pytest.raises(ValueError, match="dimension must be positive; got 0"):
        field.truncation(points, 0.2, 0)


def test_the_error_falls_with_the_effective_number_of_neighbors(rng):
    """E‖Ĝ−G‖² ≈ d(d+2)/(4 n_eff), up to O(σ²) (THEORY §4.5 saw 0.89 of it for d = 2)."""
    sphere, sigma, n = Sphere(2), 0.2, 3000
    points = sphere.sample(30, generator=rng)
    truth = ExactField(sphere).metric(points, sigma).dense()
    errors, counts = [], []
    for _ in range(12):
        field = KernelField(sphere.sample(n, generator=rng))
        errors.append((field.metric(points, sigma).dense() - truth).square().sum((1, 2)).mean())
        counts.append(field.effective_neighbors(points, sigma).mean())
    n_eff = float(torch.stack(counts).mean())
    assert n_eff == pytest.approx(n * sigma**2, rel=0.1)
    assert float(torch.stack(errors).mean()) == pytest.approx(2 * 4 / (4 * n_eff), rel=0.25)


@pytest.mark.parametrize("rank", [1, 3])
@pytest.mark.parametrize("n_neighbors", [5, 40])
def test_a_rank_keeps_the_leading_directions(samples, points, rank, n_neighbors):
    whole = KernelField(samples, n_neighbors=n_neighbors).metric(points, 0.3)
    part = KernelField(samples, n_neighbors=n_neighbors, rank=rank).metric(points, 0.3)
    assert part.rank == rank
    torch.testing.assert_close(part.eigenvalues(), whole.eigenvalues()[:, :rank])
    spectrum = whole.spectrum()
    leading = spectrum.vectors[..., :rank]
    torch.testing.assert_close(part.dense(), leading * spectrum.values[:, None, :rank] @ leading.mT)


def test_few_neighbors_are_the_factor_themselves(samples, points):
    assert KernelField(samples, n_neighbors=4).metric(points, 0.3).factor.shape == (20, 4, 6)
    assert KernelField(samples, n_neighbors=40).metric(points, 0.3).factor.shape == (20, 6, 6)


def test_an_approximate_index_reports_its_recall(samples, points):
    pytest.importorskip("faiss")
    assert KernelField(samples, n_neighbors=20, index="hnsw").recall(points) > 0.9
    assert KernelField(samples, n_neighbors=20).recall(points) == 1.0


def test_a_ready_index_is_used_and_another_one_refused(samples, points, rng):
    for kind in ("torch", "sklearn"):
        field = KernelField(samples, n_neighbors=10, index=build_index(samples, kind))
        expected = KernelField(samples, n_neighbors=10).metric(points, 0.3).dense()
        torch.testing.assert_close(field.metric(points, 0.3).dense(), expected)
    other = samples + 0.01 * torch.randn(samples.shape, generator=rng, dtype=torch.float64)
    with pytest.raises(ValueError, match="index must be built for the same samples; got one whose distances"):
        KernelField(samples, n_neighbors=10, index=TorchIndex(other))
    with pytest.raises(ValueError, match=r"index must be built for the same samples, of shape \(300, 6\)"):
        KernelField(samples, n_neighbors=10, index=TorchIndex(samples[:100]))
    with pytest.raises(ValueError, match="got one whose distances are not theirs"):
        KernelField(samples, n_neighbors=10, index=TorchIndex(samples.flip(0)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_neighbors": 11}, "n_neighbors must be at most 10, the number of samples to choose from; got 11. Lower"),
        ({"n_neighbors": 10, "self_neighbor": "drop"}, "n_neighbors must be at most 9"),
        ({"n_neighbors": 0, "centered": False}, "n_neighbors must be at least 1; got 0"),
        ({"n_neighbors": 1}, "n_neighbors must be at least 2, since a single neighbor has no covariance; got 1"),
        ({"self_neighbor": "ignore"}, "self_neighbor must be 'keep' or 'drop'; got 'ignore'"),
        ({"index": "annoy"}, "index must be one of auto, torch"),
        ({"rank": 0}, "rank must lie between 1 and 3"),
        ({"rank": 4}, "rank must lie between 1 and 3"),
        ({"memory": -1}, "memory must be a positive number of bytes"),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        KernelField(torch.randn(10, 3), **options)


@pytest.mark.parametrize(
    ("samples", "options", "message"),
    [
        (torch.zeros(0, 3), {}, "samples must not be empty"),
        (torch.full((5, 3), torch.nan), {}, "samples must be finite"),
        (torch.zeros(5), {}, "samples must have shape"),
        (torch.zeros(1, 3), {"self_neighbor": "drop"}, "samples must be at least 2 to leave one out; got 1"),
        (torch.zeros(1, 3), {"adaptive": True}, "samples must be at least 2"),
    ],
)
def test_bad_samples_are_named(samples, options, message):
    with pytest.raises(ValueError, match=message):
        KernelField(samples, **options)


def test_it_says_what_it_is_made_of(samples):
    assert repr(KernelField(samples, n_neighbors=7, index="torch")) == (
        "KernelField(n_samples=300, dim=6, n_neighbors=7, index='torch')"
    )
    assert "n_neighbors=all" in repr(KernelField(samples, centered=False))
    assert "centered=False" in repr(KernelField(samples, centered=False))


@pytest.mark.gpu
def test_the_fast_compression_of_a_gpu_agrees_with_the_cpu(rng):
    sphere = Sphere(4).embed(48, generator=rng)
    samples, points = sphere.sample(3000, generator=rng), sphere.sample(50, generator=rng)
    for rank in (None, 8):
        field = KernelField(samples, n_neighbors=200, rank=rank)
        torch.testing.assert_close(
            field.metric(points.cuda(), 0.3).dense().cpu(), field.metric(points, 0.3).dense(), atol=1e-8, rtol=0
        )


def test_scales_far_below_the_distance_between_samples_are_answered(rng):
    """Weights all but vanish there, and LAPACK does not converge on some matrices with denormal entries."""
    sphere = Sphere(5).embed(32, generator=rng)
    samples, points = (sphere.sample(n, generator=rng, dtype=torch.float32) for n in (1000, 200))
    for sigma in (2.0**-6, 2.0**-5, 2.0**-4):
        for count in (8, 16, 32):
            metric = KernelField(samples, n_neighbors=count, rank=5).metric(points, sigma)
            assert torch.isfinite(metric.tangent_basis(5)).all()
