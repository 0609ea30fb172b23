"""An exported field gives the same numbers as the field, for any number of points, and without this library."""

import subprocess
import sys
import warnings

import numpy as np
import pytest
import torch
from torch import nn

from carre.fields import NeuralField, NoDenoiserError
from carre.metric import AffineFrame
from carre.networks import FrozenDenoiser, MetricModel, build_model
from carre.storage import export
from tests.storage.geometries import DIM, RANK, frame, image_geometry, randomized, tiny_geometry

pytestmark = pytest.mark.slow


class Own(nn.Module):
    """A network of the user's own."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(DIM + 1, 3 * DIM)

    def forward(self, points, bandwidth):
        rows = self.head(torch.cat([points, bandwidth[:, None]], 1)).reshape(-1, 3, DIM)
        return points + rows[:, 0], rows[:, 1:]


def shrink(points, bandwidth):
    return points / (1 + bandwidth[:, None] ** 2)


def around_a_denoiser():
    factor = randomized(build_model(DIM, RANK, width=16, n_blocks=1, spread=1.0)).factor
    whole = frame(reduced=False)
    return NeuralField(MetricModel(FrozenDenoiser(shrink, whole), factor), whole)


FIELDS = {
    "in a hull": lambda: tiny_geometry().field,
    "all coordinates, plain blocks": lambda: NeuralField(
        randomized(build_model(DIM, RANK, width=16, n_blocks=1, spread=1.0, block="plain")), frame(reduced=False)
    ),
    "images": lambda: image_geometry().field,
    "own network": lambda: NeuralField(randomized(Own()), frame(reduced=False)),
    "around a denoiser": around_a_denoiser,
}


def exported(field, path=None, **options):
    return export(tiny_geometry(field=field), path, **options)


def queries(field, n, dtype=torch.float32):
    generator = torch.Generator().manual_seed(n)
    noise = torch.randn(n, field.dim, generator=generator, dtype=dtype)
    sigma = 0.1 + torch.rand(n, generator=generator, dtype=dtype)
    return field.frame.center.to(dtype) + field.frame.scale * noise, sigma


def answer(field, kind, points, sigma):
    return field.metric(points, sigma).factor if kind == "metric" else field.denoise(points, sigma)


@pytest.mark.slow
@pytest.mark.parametrize("name", FIELDS)
@pytest.mark.parametrize("kind", ["metric", "denoiser"])
def test_a_program_gives_the_bits_of_the_field_for_any_number_of_points(name, kind):
    field = FIELDS[name]()
    program = exported(field, kind=kind).module()
    for n in (1, 2, 3, 50):
        points, sigma = queries(field, n)
        assert torch.equal(program(points, sigma), answer(field, kind, points, sigma)), n


def test_a_program_in_double_precision_does_too():
    field = tiny_geometry().field
    points, sigma = queries(field, 7, torch.float64)
    program = exported(field, dtype=torch.float64).module()
    assert torch.equal(program(points, sigma), field.metric(points, sigma).factor)


@pytest.mark.parametrize("n", [1, 6])
def test_a_fixed_scale_is_no_longer_asked_for(n):
    """The field embeds a single σ once, the program once per point: the same up to rounding."""
    field = tiny_geometry().field
    points, _ = queries(field, n)
    found = exported(field, kind="denoiser", bandwidth=0.2).module()(points)
    torch.testing.assert_close(found, field.denoise(points, 0.2), rtol=1e-6, atol=0)


def test_a_program_can_be_differentiated():
    field = tiny_geometry().field
    points, sigma = queries(field, 4, torch.float64)
    program = exported(field, kind="denoiser", dtype=torch.float64).module()
    gradients = []
    for compute in (program, field.denoise):
        leaf = points.clone().requires_grad_()
        compute(leaf, sigma).square().sum().backward()
        gradients.append(leaf.grad)
    torch.testing.assert_close(*gradients, rtol=1e-12, atol=0)


@pytest.mark.slow
def test_saved_programs_run_where_only_torch_is(tmp_path):
    expected = []
    for number, name in enumerate(["in a hull", "images"]):
        field, folder = FIELDS[name](), tmp_path / str(number)
        points, sigma = queries(field, 5)
        folder.mkdir()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            exported(field, folder / "field.pt2")
        assert [path.name for path in folder.iterdir()] == ["field.pt2"]
        torch.save([points, sigma], folder / "queries.pt")
        expected.append((field.metric(points, sigma).factor.numpy().tobytes().hex(), field.ridge))
    code = f"""
import sys, torch
torch.set_num_threads({torch.get_num_threads()})
for number in range({len(expected)}):
    program = torch.export.load(f"{{number}}/field.pt2")
    points, sigma = torch.load(f"{{number}}/queries.pt")
    factor = program.module()(points, sigma)
    assert "carre" not in sys.modules
    print(factor.detach().numpy().tobytes().hex(), float(program.state_dict["ridge"]))
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=tmp_path)
    found = [line.split() for line in done.stdout.splitlines()]
    assert [(answer, float(ridge)) for answer, ridge in found] == expected


@pytest.mark.slow
def test_a_saved_program_does_not_say_where_it_was_made(tmp_path):
    """Traces of the code would tell the names of folders, and of their owner."""
    export(tiny_geometry(), tmp_path / "field.pt2")
    content = (tmp_path / "field.pt2").read_bytes()
    assert b".py" not in content
    assert str(tmp_path).encode() not in content


def test_saving_replaces_a_program_in_one_stroke(tmp_path, monkeypatch):
    path = tmp_path / "field.pt2"
    path.write_bytes(b"the former one")

    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        export(tiny_geometry(), path)
    assert path.read_bytes() == b"the former one"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "geometry"}, "kind must be one of metric, denoiser; got 'geometry'"),
        ({"dtype": torch.float16}, r"dtype must be torch.float32 or torch.float64; got torch.float16"),
        ({"bandwidth": -1.0}, "bandwidth must be positive"),
        ({"path": "field.onnx"}, r"path must be a file that ends in \.pt2.*got 'field.onnx'"),
        ({"path": "no folder/field.pt2"}, "path must lie in a folder that exists; got 'no folder/field.pt2'"),
        ({"path": ""}, "path must be a path; got an empty string"),
    ],
    ids=str,
)
def test_what_cannot_be_exported_is_named(options, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=message):
        export(tiny_geometry(), **options)


def test_a_field_without_a_denoiser_says_so():
    model = build_model(3, 2, width=8, n_blocks=1, spread=1.0, with_mean=False)
    field = NeuralField(model, AffineFrame(torch.zeros(3), 1.0))
    with pytest.raises(NoDenoiserError, match="kind must be 'metric'"):
        exported(field, kind="denoiser")
    assert exported(field).module()(torch.zeros(2, 3), torch.ones(2)).shape == (2, 2, 3)


@pytest.mark.gpu
def test_a_program_can_be_moved_to_a_gpu():
    field = tiny_geometry().field
    points, sigma = queries(field, 9)
    program = exported(field).module().to("cuda")
    found = program(points.cuda(), sigma.cuda()).cpu()
    np.testing.assert_allclose(found.numpy(), field.metric(points, sigma).factor.numpy(), rtol=1e-4, atol=1e-5)
