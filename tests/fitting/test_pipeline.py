"""What the pipeline of a fit decides by itself."""

import pytest
import torch

from carre.fitting.pipeline import _selection


@pytest.mark.parametrize(("rank", "dim", "count"), [(2, 3, 512), (100, 784, 213), (4096, 100, 64), (64, 512, 512)])
@pytest.mark.parametrize("memory", [1, 2**40])
def test_the_scale_is_chosen_at_as_many_samples_on_every_machine(rank, dim, count, memory, monkeypatch):
    monkeypatch.setattr("carre.neighbors.memory.available_memory", lambda device: memory)
    samples = torch.arange(600.0)[:, None].expand(-1, dim)
    chosen = _selection(samples, rank, torch.device("cpu"))
    assert torch.equal(chosen, samples[:count])
