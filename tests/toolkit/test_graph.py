"""The shortest way over samples avoids edges that leave the data."""

import math

import pytest
import torch

from carre.backend import memory
from carre.fields import ExactField
from carre.manifolds import Box, Sphere, SwissRoll
from carre.toolkit import Path, sample_graph
from tests.toolkit.round_sphere import RoundSphere


def test_a_way_over_samples_is_hardly_longer_than_the_geodesic(rng):
    samples = Box([0.0, 0.0], [1.0, 1.0]).sample(800, generator=rng)
    graph = sample_graph(ExactField(Box([0.0, 0.0], [1.0, 1.0])), samples, 0.1)
    start, end = torch.tensor([[0.1, 0.1], [0.9, 0.2]]).double(), torch.tensor([[0.9, 0.9], [0.1, 0.3]]).double()
    nodes, joined = graph.curves(start, end, 50)
    ratio = Path.through(nodes).length() / (end - start).norm(dim=-1)
    assert joined.all()
    assert (ratio >= 1).all()
    assert (ratio < 1.1).all()


def test_short_circuits_are_avoided_where_samples_are_so_sparse_that_sheets_are_neighbors(rng):
    """With 40 neighbors among 120 samples, a third of them is on another sheet; plain lengths would cut through."""
    roll = SwissRoll(end=3.5 * math.pi, height=6.0, n_nodes=640)
    samples = roll.sample(120, generator=rng)
    start, end = (torch.tensor([[t * math.cos(t), 3.0, t * math.sin(t)]]).double() for t in (4.9, 10.9))
    graph = sample_graph(ExactField(roll), samples, 0.5, n_neighbors=40)
    nodes, joined = graph.curves(start, end, 200)
    assert joined.all()
    # The sagitta of a chord that turns by 60° on the widest turn, of radius 3.5π.
    assert float(roll.distance(nodes[0]).max()) < 3.5 * math.pi * (1 - math.cos(math.pi / 6))
    graph.weights.data[:] = 1.0
    assert float(roll.distance(graph.curves(start, end, 200)[0][0]).max()) > 2.0


def test_edges_are_symmetric_and_as_long_as_their_chords(rng):
    samples = Sphere(2).sample(200, generator=rng)
    graph = sample_graph(ExactField(Sphere(2)), samples, 0.1, n_neighbors=6)
    assert abs(graph.weights - graph.weights.T).max() == 0.0
    edges = graph.weights.tocoo()
    chords = (graph.index.samples[edges.row] - graph.index.samples[edges.col]).norm(dim=-1)
    off_diagonal = torch.as_tensor(edges.row != edges.col)
    torch.testing.assert_close(torch.as_tensor(edges.data)[off_diagonal], chords[off_diagonal])


def test_noisy_samples_are_landed_first(rng):
    sphere = Sphere(2).embed(30, generator=rng)
    samples = sphere.noisy(0.05).sample(200, generator=rng)
    graph = sample_graph(ExactField(sphere), samples, 0.1)
    assert float(sphere.distance(samples).median()) > 0.2
    assert float(sphere.distance(graph.index.samples).max()) < 0.05


def test_near_points_are_joined_directly(rng):
    graph = sample_graph(ExactField(Sphere(2)), Sphere(2).sample(50, generator=rng), 0.1)
    start, end = torch.tensor([[[1.0, 0.0, 0.0]], [[math.cos(0.1), math.sin(0.1), 0.0]]]).double()
    nodes, _ = graph.curves(start, end, 5)
    torch.testing.assert_close(Path.through(nodes).length(), (end - start).norm(dim=-1))


def test_many_pairs_take_no_more_memory_than_few(rng, monkeypatch):
    """With room for two points and their neighbors, a field is not asked about more than these, to the same curves."""
    asked = []

    class Counted(RoundSphere):
        def metric(self, points, bandwidth):
            asked.append(len(points))
            return super().metric(points, bandwidth)

        def denoise(self, points, bandwidth):
            asked.append(len(points))
            return super().denoise(points, bandwidth)

    graph = sample_graph(Counted(), Sphere(2).sample(60, generator=rng), 0.1, n_neighbors=4)
    start, end = Sphere(2).sample(30, generator=rng), Sphere(2).sample(30, generator=rng)
    whole, joined = graph.curves(start, end, 9)
    asked.clear()
    monkeypatch.setattr(memory, "working_memory", lambda device: 2 * 8 * 64 * (1 + graph.n_neighbors) * 3)
    nodes, still_joined = graph.curves(start, end, 9)
    # Landing takes a quarter of the memory of an edge, at one end of it.
    assert max(asked) <= 2 * 4 * (1 + graph.n_neighbors)
    assert torch.equal(joined, still_joined)
    torch.testing.assert_close(nodes, whole)


def test_bad_input_is_named(rng):
    with pytest.raises(ValueError, match="n_neighbors must be at most 4"):
        sample_graph(ExactField(Sphere(1)), Sphere(1).sample(5, generator=rng), 0.1, n_neighbors=5)
