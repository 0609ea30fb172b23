"""All searches find the same neighbors: those of a plain loop over differences in float64."""

import subprocess
import sys

import pytest
import torch

from carre.neighbors import (
    FaissIndex,
    NeighborIndex,
    Neighbors,
    TorchIndex,
    build_index,
    measure_recall,
)
from carre.neighbors.engines import KINDS
from carre.neighbors.index import checked_count, smallest

EXACT = ["torch", "faiss", "sklearn"]
APPROXIMATE = ["hnsw", "ivf"]


@pytest.fixture(autouse=True)
def _skip_without_faiss(request):
    kind = request.node.callspec.params.get("kind") if hasattr(request.node, "callspec") else None
    if kind in ("faiss", "hnsw", "ivf"):
        pytest.importorskip("faiss")


def true_distances(samples, queries, k):
    wide = samples.double()
    rows = [(wide - query.double()).square().sum(1).sort().values[:k] for query in queries]
    return torch.stack(rows)


def distances_of(samples, queries, found):
    return (samples.double()[found.indices] - queries.double()[:, None, :]).square().sum(-1)


@pytest.mark.parametrize("kind", EXACT)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("k", [1, 20, 300])
def test_exact_searches_find_the_nearest(rng, kind, dtype, k):
    samples = torch.randn(300, 5, generator=rng, dtype=torch.float64).to(dtype)
    queries = torch.randn(40, 5, generator=rng, dtype=torch.float64).to(dtype)
    index = build_index(samples, kind)
    found = index.search(queries, k)
    assert found.indices.dtype == torch.long
    assert found.squared_distances.dtype == dtype
    truth = true_distances(samples, queries, k)
    rtol = 8 * torch.finfo(dtype).eps
    torch.testing.assert_close(found.squared_distances.double(), truth, rtol=rtol, atol=0)
    torch.testing.assert_close(distances_of(samples, queries, found), truth, rtol=rtol, atol=0)


@pytest.mark.parametrize("kind", EXACT)
def test_an_offset_of_the_data_loses_no_neighbor(rng, kind):
    """At an offset of 1,000 the products of raw float32 coordinates have errors of 0.1 (THEORY §6.3)."""
    samples = (1000 + 0.05 * torch.randn(2000, 4, generator=rng, dtype=torch.float64)).float()
    found = build_index(samples, kind).search(samples[:50], 10)
    torch.testing.assert_close(distances_of(samples, samples[:50], found), true_distances(samples, samples[:50], 10))


@pytest.mark.parametrize("kind", EXACT)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_clusters_far_apart_lose_no_neighbor(rng, kind, dtype):
    """No center serves two clusters: float32 is blind within each, and the search must notice."""
    cluster = 1e-3 * torch.randn(1500, 3, generator=rng, dtype=torch.float64)
    samples = torch.cat([cluster, cluster.flip(0) + 1000.0]).to(dtype)
    queries = samples[::100]
    found = build_index(samples, kind).search(queries, 10)
    torch.testing.assert_close(distances_of(samples, queries, found), true_distances(samples, queries, 10))


@pytest.mark.parametrize("kind", EXACT)
def test_copies_are_all_found(kind):
    """Ties at distance zero: any of the copies, but as many as there are."""
    samples = torch.arange(50.0, dtype=torch.float64).repeat_interleave(20)[:, None]
    found = build_index(samples, kind).search(samples[:3], 20)
    assert (found.squared_distances == 0).all()
    assert all(len(set(row)) == 20 for row in found.indices.tolist())


@pytest.mark.parametrize("memory", [1, 2**12, 2**15, None])
def test_blocks_of_any_size_find_the_same(rng, memory):
    samples = torch.randn(1000, 3, generator=rng, dtype=torch.float64)
    queries = torch.randn(70, 3, generator=rng, dtype=torch.float64)
    found = TorchIndex(samples, memory=memory).search(queries, 90)
    assert torch.equal(found.indices, TorchIndex(samples, memory=2**26).search(queries, 90).indices)


@pytest.mark.parametrize(("n", "count"), [(64, 64), (64, 1), (6400, 3), (6400, 500), (100, 7)])
def test_the_selection_by_groups_is_exact(rng, n, count):
    values = torch.randn(9, n, generator=rng)
    found, columns = smallest(values, count)
    torch.testing.assert_close(found.sort().values, values.sort().values[:, :count], rtol=0, atol=0)
    assert torch.equal(values.gather(1, columns), found)
    assert all(len(set(row)) == count for row in columns.tolist())


@pytest.mark.parametrize("kind", APPROXIMATE)
def test_approximate_searches_find_most_neighbors_and_say_how_many(rng, kind):
    samples = torch.randn(4000, 3, generator=rng, dtype=torch.float64)
    queries = torch.randn(200, 3, generator=rng, dtype=torch.float64)
    index = build_index(samples, kind)
    recall = measure_recall(index, queries, 20)
    assert 0.9 <= recall <= 1.0
    found = index.search(queries, 20)
    truth = true_distances(samples, queries, 20)
    shares = [len(set(a) & set(b)) for a, b in zip(found.indices.tolist(), nearest(samples, queries, 20), strict=True)]
    assert recall == pytest.approx(sum(shares) / (20 * len(queries)), abs=1e-6)
    assert (found.squared_distances >= truth - 1e-12).all()


def nearest(samples, queries, k):
    return torch.cdist(queries, samples).topk(k, largest=False).indices.tolist()


@pytest.mark.parametrize("kind", APPROXIMATE)
def test_an_approximate_search_that_finds_too_few_is_completed(rng, kind):
    """One list of 16 holds too few of 1,000 samples; the answer is nevertheless complete, and exact."""
    samples = torch.randn(1000, 3, generator=rng, dtype=torch.float64)
    index = FaissIndex(samples, kind, n_lists=16, n_probes=1)
    found = index.search(samples[:20], 900)
    assert all(len(set(row)) == 900 for row in found.indices.tolist())
    torch.testing.assert_close(found.squared_distances, true_distances(samples, samples[:20], 900))


def test_the_recall_of_an_exact_search_is_one(rng):
    samples = torch.randn(200, 2, generator=rng)
    assert measure_recall(TorchIndex(samples), samples, 5) == 1.0


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_speaks_the_protocol(rng, kind):
    samples = torch.randn(500, 3, generator=rng)
    index = build_index(samples, kind)
    assert isinstance(index, NeighborIndex)
    assert (index.n_samples, index.dim) == (500, 3)
    assert kind in ("auto", index.name)
    assert index.name in repr(index)
    assert isinstance(index.search(samples[:2], 3), Neighbors)


def test_arrays_are_accepted_and_gradients_are_not_followed(rng):
    samples = torch.randn(30, 2, generator=rng, dtype=torch.float64)
    index = TorchIndex(samples.numpy())
    queries = samples[:4].clone().requires_grad_()
    assert not index.search(queries, 2).squared_distances.requires_grad
    assert index.search(queries, 2).indices.shape == (4, 2)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: build_index(torch.zeros(5, 2), "annoy"),
            "index must be one of auto, torch, faiss, hnsw, ivf, sklearn",
        ),
        (lambda: FaissIndex(torch.zeros(5, 2), "pq"), "kind must be one of exact, hnsw, ivf; got 'pq'"),
        (lambda: TorchIndex(torch.zeros(0, 2)), "samples must not be empty"),
        (lambda: TorchIndex(torch.full((3, 2), torch.nan)), "samples must be finite"),
        (lambda: TorchIndex(torch.zeros(3, 2), memory=0), "memory must be a positive number of bytes"),
        (lambda: TorchIndex(torch.zeros(3, 2)).search(torch.zeros(1, 2), 0), "n_neighbors must be at least 1; got 0"),
        (lambda: TorchIndex(torch.zeros(3, 2)).search(torch.zeros(1, 2), 4), "n_neighbors must be at most 3.*got 4"),
        (lambda: checked_count(1.5, 3), "n_neighbors must be an integer; got 1.5"),
        (lambda: TorchIndex(torch.zeros(3, 2)).search(torch.zeros(1, 5), 1), "queries must have 2 columns"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_without_faiss_the_remedy_is_named_and_auto_needs_none(monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(ImportError, match=r"pip install 'carre\[knn\]'"):
        build_index(torch.zeros(5, 2), "faiss")
    assert isinstance(build_index(torch.zeros(5, 2)), TorchIndex)


@pytest.mark.slow
@pytest.mark.parametrize("first", ["torch", "faiss"])
def test_faiss_and_torch_live_in_one_process(first):
    """Both bring an OpenMP; whichever is loaded first, both compute."""
    pytest.importorskip("faiss")
    second = "faiss" if first == "torch" else "torch"
    code = f"""
import {first}, {second}
from carre.neighbors import build_index
x = torch.randn(3000, 8)
a, b = (build_index(x, kind).search(x[:50], 5).indices for kind in ("torch", "faiss"))
print(bool((a == b).all()), (torch.randn(300, 300) @ torch.randn(300, 300)).shape)
"""
    printed = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert printed.startswith("True")


@pytest.mark.gpu
@pytest.mark.parametrize("offset", [0.0, 1000.0])
def test_a_gpu_finds_the_same_neighbors(rng, offset):
    samples = torch.randn(20_000, 64, generator=rng) + offset
    queries = torch.randn(100, 64, generator=rng) + offset
    here, there = TorchIndex(samples).search(queries, 100), TorchIndex(samples.cuda()).search(queries.cuda(), 100)
    assert there.indices.is_cuda
    torch.testing.assert_close(there.squared_distances.cpu(), here.squared_distances)
    assert build_index(samples.cuda()).name == "torch"
    assert not TorchIndex(samples.cuda()).search(queries, 3).indices.is_cuda


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", ["torch", "faiss", "sklearn"])
def test_one_huge_outlier_does_not_cost_the_others_their_digits(rng, kind, dtype):
    if kind == "faiss":
        pytest.importorskip("faiss")
    samples = torch.cat([torch.randn(2000, 5, generator=rng), torch.full((1, 5), 1e14)]).to(dtype)
    queries = torch.randn(20, 5, generator=rng).to(dtype)
    truth = (samples[None].double() - queries[:, None].double()).square().sum(-1).topk(10, largest=False).values
    found = build_index(samples, kind).search(queries, 10).squared_distances.double()
    torch.testing.assert_close(found, truth, rtol=1e-4, atol=0)


def test_tight_clusters_far_apart_are_searched_by_differences(rng):
    """Spread 1e-9 at distance 1: products of float64 keep no digit of these distances."""
    samples = torch.randint(0, 2, (1000, 1), generator=rng) + 1e-9 * torch.randn(1000, 4, generator=rng).double()
    queries = samples[:20] + 1e-10
    truth = (samples[None] - queries[:, None]).square().sum(-1).topk(10, largest=False).values
    torch.testing.assert_close(TorchIndex(samples).search(queries, 10).squared_distances, truth, rtol=1e-6, atol=0)
