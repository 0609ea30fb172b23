"""Hostile folders of models: no code of them runs, nothing is allocated that they claim, and every value is looked at.

A folder that is loaded all the same has to answer: a value that does no harm, like another seed, is no fault.
"""

import copy
import functools
import hashlib
import json
import os
import pickle
import random
import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

import carre
from carre.fields import NeuralField
from carre.storage._description import describe
from carre.storage.folder import model_card
from tests.attack import bombs
from tests.attack.files import MOST_BYTES
from tests.attack.kit import Verdict, isolated
from tests.storage.geometries import answers, frame, image_geometry, tiny_geometry

CONFIG, TENSORS = "config.json", "model.safetensors"
# A sentence comes within two seconds; here another process may have the core as long.
SECONDS = 6.0
DEEP = functools.reduce(lambda inner, _: [inner], range(900), 0)
VALUES = (None, True, -1, 0, 7, 1.5, 1e308, 10**400, 2**70, "", "a", "x" * 10**5, [], [1], ["a"], [[]], {}, {"a": 1})
VALUES += ({"float": "nan"}, {"float": "inf"}, {"float": []}, {"unet": {}}, {"unet": {"channels": 10**9}}, DEEP)
# They say what was, and nothing is computed of them.
NOTES = ("created", "versions", "file")
pytestmark = pytest.mark.filterwarnings("ignore:bandwidth lies outside")


def write_config(place, config):
    (place / CONFIG).write_text(json.dumps(config), encoding="utf-8")


def read_config(place):
    return json.loads((place / CONFIG).read_text(encoding="utf-8"))


def write_content(place, content, **more):
    """Write the file of the tensors, and what is said of it as who is hostile would say it."""
    (place / TENSORS).write_bytes(content)
    config = read_config(place)
    config["weights"].update(bytes=len(content), sha256=hashlib.sha256(content).hexdigest(), **more)
    write_config(place, config)


def write_tensors(place, tensors):
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, place / TENSORS)
    write_content(place, (place / TENSORS).read_bytes())


def write_claims(place, shapes, kind="F32", size=None):
    """Write a header that claims shapes, before few bytes, or before many that take no room."""
    claims = {name: {"dtype": kind, "shape": list(shape), "data_offsets": [0, 4]} for name, shape in shapes.items()}
    header = json.dumps(claims).encode()
    content = struct.pack("<Q", len(header)) + header + bytes(4)
    if size is None:
        write_content(place, content)
        return
    bombs.sparse(place / TENSORS, begin=content, size=size)
    config = read_config(place)
    config["weights"].update(bytes=size, sha256="0" * 64)
    write_config(place, config)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A geometry of a table, and one of images, to be spoiled in copies."""
    place = tmp_path_factory.mktemp("models")
    carre.save(tiny_geometry(), place / "table")
    carre.save(tiny_geometry(units=torch.tensor([1.0, 2.0, 1.0, 1.0, 3.0], dtype=torch.float64)), place / "units")
    carre.save(image_geometry(), place / "images")
    carre.save(tiny_geometry(field=NeuralField(nn.Linear(2, 3), frame(reduced=False))), place / "own")
    return place


@pytest.fixture
def copied(folders, tmp_path):
    """Copies of the folders, a new one every time."""
    count = iter(range(10**6))

    def make(name="table"):
        place = tmp_path / f"{next(count)}"
        place.mkdir()
        for file in (CONFIG, TENSORS):
            (place / file).write_bytes((folders / name / file).read_bytes())
        return place

    return make


def judged(geometry):
    """Say whether what was loaded answers like a geometry."""
    geometry.denoise(geometry.landmarks[:2], geometry.bandwidth)
    factor, mean = answers(geometry)
    said = [repr(geometry), geometry.history.outlook or "", str(geometry.noise_estimate)]
    model_card(geometry, describe(geometry, weights={"dtype": "float32"}), {"landmarks": geometry.landmarks}, name="x")
    is_good = bool(factor.isfinite().all() and mean.isfinite().all()) and all(len(text) < 10**4 for text in said)
    return Verdict.RIGHT if is_good else Verdict.INFINITE


def refused(ledger, case, place, **options):
    """Load what may be harmless, and judge the sentence, or the answers: what is not finite is said of these, too."""
    names = (CONFIG, TENSORS, "bandwidth must")

    def call():
        return judged(carre.load(place, device="cpu", **options))

    ledger.ask(case, call, names=names, verdict=lambda found: found)


def paths_of(value, before=()):
    """Go through all values of a description that stand in it by a name."""
    yield from ([before] if before else [])
    if isinstance(value, dict):
        for name, part in value.items():
            yield from paths_of(part, (*before, name))
    elif isinstance(value, list) and value and isinstance(value[0], (dict, list)):
        yield from paths_of(value[0], (*before, 0))


def changed(config, path, change):
    found = copy.deepcopy(config)
    *above, last = path
    change(functools.reduce(lambda part, name: part[name], above, found), last)
    return found


@pytest.mark.parametrize("name", ["table", "images"])
def test_every_value_of_a_description(ledger, copied, dose, name):
    """Every value becomes every other one: a sentence that names the file, or answers."""
    place, chance = copied(name), random.Random(0)
    config = read_config(place)
    for path in paths_of(config):
        if path[0] in NOTES or path[-1] in NOTES:
            continue
        gone = changed(config, path, lambda part, last: part.pop(last))
        changes = [(value, changed(config, path, lambda part, last, value=value: part.__setitem__(last, value)))
                   for value in chance.sample(VALUES, dose(2, 10))]  # fmt: skip
        for value, found in [("missing", gone), *changes]:
            write_config(place, found)
            refused(ledger, f"{'.'.join(map(str, path))} = {repr(value)[:30]}", place)
    ledger.check(least=dose(150, 700))


def test_descriptions_that_are_none(ledger, copied):
    texts = ["", "[]", "null", "3", '"a"', "{", "{}", "NaN", '{"format": NaN}', "\x00", "\ufeff{}", '{"a": 1' * 50]
    texts += ["[" * 10**5, '{"a":' * 10**5, "[" * 50_000 + "]" * 50_000, "9" * 5000, '"' + "a" * 10**6, "1e999", "{}x"]
    for number, text in enumerate(texts):
        place = copied()
        (place / CONFIG).write_text(text, encoding="utf-8")
        refused(ledger, f"{number} {text[:20]!r}", place)
    for encoding in ("utf-16", "utf-32", "latin-1"):
        place = copied()
        (place / CONFIG).write_bytes(json.dumps(read_config(place) | {"é": "é"}, ensure_ascii=False).encode(encoding))
        refused(ledger, encoding, place)
    ledger.check(least=20)


def test_tensors_that_are_none(ledger, copied):
    """Every tensor without its numbers, of another size or another kind; and some that are none of a geometry's."""
    spoils = {
        "nan": lambda t: torch.full_like(t, float("nan")),
        "infinite": lambda t: torch.full_like(t, float("inf")),
        "longer": lambda t: torch.cat([t, t]),
        "thinner": lambda t: t[..., :-1],
        "flat": lambda t: t.reshape(-1),
        "deeper": lambda t: t[None],
        "empty": lambda t: t[:0],
        "whole numbers": lambda t: t.to(torch.int32),
        "truth": lambda t: t > 0,
        "complex": lambda t: t.to(torch.complex64),
        "eight bits": lambda t: t.to(torch.float8_e4m3fn),
        "zeros": torch.zeros_like,
        "negative": lambda t: -t.abs() - 1,
    }
    for folder in ("table", "units"):
        tensors = load_file(copied(folder) / TENSORS)
        kept = [name for name in tensors if not name.startswith("model.")]
        for name in [*kept, *(name for name in tensors if "inlet" in name or "head" in name)]:
            for kind, spoil in spoils.items():
                place = copied(folder)
                write_tensors(place, tensors | {name: spoil(tensors[name])})
                refused(ledger, f"{folder}: {name}, {kind}", place)
            place = copied(folder)
            write_tensors(place, {other: tensor for other, tensor in tensors.items() if other != name})
            refused(ledger, f"{folder}: without {name}", place)
        for extra in ("extra", "model.extra", "frame.more", "../../etc/passwd", "", "σ\u202e"):
            place = copied(folder)
            write_tensors(place, tensors | {extra: torch.zeros(2)})
            refused(ledger, f"{folder}: with {extra!r}", place)
    ledger.check(least=300)


def test_what_is_said_and_not_so_is_never_believed(copied):
    """Values that would load, and be wrong without a word."""
    tensors = load_file(copied("units") / TENSORS)
    skewed = tensors["frame.basis"].clone()
    skewed[:, 0] *= 2
    for change in (
        {"frame.basis": skewed},
        {"frame.basis": tensors["frame.basis"] + 0.01},
        {"units": -tensors["units"]},
        {"landmarks": tensors["landmarks"] * float("inf")},
        {"scale_profile.bandwidth": tensors["scale_profile.bandwidth"].flip(0)},
        {next(name for name in tensors if "head.weight" in name): tensors["units"].new_full((1,), float("nan"))},
    ):
        place = copied("units")
        write_tensors(place, tensors | change)
        with pytest.raises(carre.LoadError, match=f"{next(iter(change))}|do not fit"):
            carre.load(place)
    place = copied()
    config = read_config(place)
    config["parameters"] |= {"checkpoint": "/somebody/elses/file", "device": "cuda:7"}
    write_config(place, config)
    assert not {"checkpoint", "device"} & carre.load(place).parameters.keys()


def heavy(place, **architecture):
    """Ask for a network of other sizes, and claim weights of just these: nothing of it is there."""
    config = read_config(place)
    told = config["model"]["architecture"]
    told.update({key: value for key, value in architecture.items() if key in told})
    if "settings" in told:
        told["settings"].update({key: value for key, value in architecture.items() if key not in told})
    write_config(place, config)
    is_many = any(isinstance(value, list) or key == "n_blocks" for key, value in architecture.items())
    with torch.device("meta"):
        try:
            if is_many:  # as the library, it would be at that for long
                raise ValueError
            model = carre.networks.rebuild_model(carre.storage._description.decode(told))
            shapes = {f"model.{name}": tuple(tensor.shape) for name, tensor in model.state_dict().items()}
        except (ValueError, RuntimeError, TypeError):
            shapes = {}
    before = {name: tuple(tensor.shape) for name, tensor in load_file(place / TENSORS).items()}
    kept = {name: shape for name, shape in before.items() if not name.startswith("model.")}
    write_claims(place, kept | (shapes or {name: shape for name, shape in before.items() if name.startswith("model.")}))


def many_layers(place, count=20_000):
    """Ask for that many blocks, and claim as many weights."""
    config = read_config(place)
    config["model"]["architecture"]["n_blocks"] = count
    write_config(place, config)
    before = {name: tuple(tensor.shape) for name, tensor in load_file(place / TENSORS).items()}
    write_claims(place, before | {f"model.{number}": (3,) for number in range(count)})


BOMBS = {
    "a width of 10**5": lambda place: heavy(place, width=10**5),
    "a width of 10**6": lambda place: heavy(place, width=10**6),
    "a width of 2**62": lambda place: heavy(place, width=2**62),
    "a rank of 10**9": lambda place: heavy(place, rank=10**9),
    "as many blocks as weights": many_layers,
    "10**5 blocks": lambda place: write_config(
        place, changed(read_config(place), ("model", "architecture", "n_blocks"), lambda c, k: c.update({k: 10**5}))
    ),
    "a header of 2**62 bytes": lambda place: write_content(place, struct.pack("<Q", 2**62) + b"{}"),
    "a header of 8 MB": lambda place: write_claims(place, {f"{number}": (1,) for number in range(100_000)}),
    "a header of brackets": lambda place: write_content(place, struct.pack("<Q", 10**6) + b"[" * 10**6),
    "a header that is no JSON": lambda place: write_content(place, struct.pack("<Q", 100) + b"\xff" * 200),
    "a shape of 2**63": lambda place: write_claims(place, {"frame.center": (2**63,), "landmarks": (1, 2**63)}),
    "a shape of -1": lambda place: write_claims(place, {"frame.center": (-1,), "landmarks": (1, -1)}),
    "a center of 10**9": lambda place: write_claims(place, {"frame.center": (10**9,), "landmarks": (1, 10**9)}),
    "6 GB of nothing": lambda place: write_claims(place, {"frame.center": (5,)}, size=6 * 2**30),
    "6 GB after a good header": lambda place: write_claims(
        place, {name: tuple(t.shape) for name, t in load_file(place / TENSORS).items()}, size=6 * 2**30
    ),
    "a description of 6 GB": lambda place: bombs.sparse(place / CONFIG),
    "a description of empty records": lambda place: (place / CONFIG).write_text("[" + "{}," * 10**6 + "{}]"),
    "a description of zeros": lambda place: (place / CONFIG).write_text("[" + "0," * 7 * 10**6 + "0]"),
    "a description of letters": lambda place: (place / CONFIG).write_text('"' + "a" * 3 * 10**7 + '"'),
    "a pipe for a description": lambda place: ((place / CONFIG).unlink(), bombs.pipe(place / CONFIG)),
    "a pipe for weights": lambda place: ((place / TENSORS).unlink(), bombs.pipe(place / TENSORS)),
    "a device for a description": lambda place: ((place / CONFIG).unlink(), bombs.device(place / CONFIG)),
    "a device for weights": lambda place: ((place / TENSORS).unlink(), bombs.device(place / TENSORS)),
    "a folder for a description": lambda place: ((place / CONFIG).unlink(), (place / CONFIG).mkdir()),
    "a folder for weights": lambda place: ((place / TENSORS).unlink(), (place / TENSORS).mkdir()),
    "a link to itself": lambda place: ((place / CONFIG).unlink(), (place / CONFIG).symlink_to(place / CONFIG)),
    "a link to nowhere": lambda place: ((place / TENSORS).unlink(), (place / TENSORS).symlink_to("/nowhere/at/all")),
}
OF_IMAGES = {
    "channels of 10**5": lambda place: heavy(place, channels=10**5),
    "channels that are prime": lambda place: heavy(place, channels=2_147_483_647),
    "10**5 levels": lambda place: heavy(place, multipliers=[1] * 10**5),
    "a level of 10**9": lambda place: heavy(place, multipliers=[1, 10**9]),
    "10**5 blocks a level": lambda place: heavy(place, n_blocks=10**5),
    "patches of 10**6": lambda place: heavy(place, patch=10**6),
    "images of 10**6 pixels a side": lambda place: heavy(place, sample_shape=[1, 10**6, 10**6]),
    "images of one row": lambda place: heavy(place, sample_shape=[1, 1, 64]),
    "a wide head": lambda place: heavy(place, head_channels=10**6),
}


@pytest.mark.parametrize("kind", ["table", "images"])
def test_bombs(ledger, copied, kind):
    """What a folder claims is held against its files before anything is made of it: memory and time are bounded."""
    for case, make in (BOMBS if kind == "table" else OF_IMAGES).items():
        place = copied(kind)
        make(place)
        for verify in (True, False):
            call = functools.partial(_loads, place, verify)
            outcome = isolated(call, names=(CONFIG, TENSORS), seconds=SECONDS)
            ledger.take(f"{case}, verify={verify}", outcome, most_bytes=MOST_BYTES, must_refuse=True)
    ledger.check(least=2 * 9)


def _loads(place, verify):
    carre.load(place, device="cpu", verify=verify)


class _Runs:
    """An object whose pickle runs a command."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return os.system, (f"touch {self.mark}",)


def test_no_code_of_a_folder_runs(ledger, copied, tmp_path):
    """Pickles, archives of torch, templates and paths: none of them is more than bytes, or text."""
    mark = tmp_path / "ran"
    torch.save(_Runs(mark), tmp_path / "weights.pt")
    for case, content in {
        "pickle": pickle.dumps(_Runs(mark)),
        "torch": (tmp_path / "weights.pt").read_bytes(),
        "npy": b"\x93NUMPY\x01\x00v\x00{'descr': '|O', 'fortran_order': False, 'shape': (1,), }",
        "text": b"import os",
        "nothing": b"",
    }.items():
        place = copied()
        write_content(place, content)
        refused(ledger, case, place, verify=False)
    for text in ("{{ cycler.__init__.__globals__ }}", "__import__('os').system('true')", "<script>", "a\x1b[2Jb"):
        place = copied()
        config = read_config(place)
        config["fitted"]["feature_names_in"] = [f"{text}{number}" for number in range(5)]
        config["model"] |= {"class": text}
        config["parameters"]["noise"] = text
        write_config(place, config)
        refused(ledger, text, place)
    assert not mark.exists()
    ledger.check(least=9)


def test_a_network_of_ones_own_gets_only_its_own_weights(ledger, copied):
    for case, network in {
        "none": None,
        "a larger one": nn.Linear(3, 3),
        "another one": nn.Sequential(nn.Linear(2, 3)),
        "no network": 3,
    }.items():
        call = functools.partial(carre.load, copied("own"), network=network)
        ledger.ask(case, call, names=("network",), verdict=lambda _: Verdict.WRONG)
    ledger.check(least=4)


def test_damaged_copies_of_good_folders(ledger, copied, dose):
    """Bytes that flipped, files that were cut or have grown: told, or as good as before."""
    chance, place = np.random.default_rng(0), copied()
    before = {name: (place / name).read_bytes() for name in (CONFIG, TENSORS)}
    for number in range(dose(60, 1200)):
        name = (CONFIG, TENSORS)[number % 2]
        content = bytearray(before[name])
        where = int(chance.integers(len(content)))
        kind = ("flip", "cut", "more", "zeros")[int(chance.integers(4))]
        if kind == "flip":
            content[where] ^= 1 << int(chance.integers(8))
        elif kind == "cut":
            del content[where:]
        elif kind == "more":
            content[where:where] = chance.bytes(3)
        else:
            content[where : where + 8] = bytes(8)
        (place / name).write_bytes(bytes(content))
        # Whoever says not to look at weights may get others.
        refused(ledger, f"{number} {name} {kind}", place, verify=name == CONFIG or number % 4 == 1)
        (place / name).write_bytes(before[name])
    ledger.check(least=dose(60, 1200))


def test_places_that_are_none(ledger, tmp_path):
    (tmp_path / "file").write_bytes(b"")
    bombs.pipe(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    places = ["a" * 5000, "a\0b", "", "/dev/zero", "~nobody/x", "a/b/c", "../" * 2000, tmp_path / "file", tmp_path]
    places += [tmp_path / "pipe", tmp_path / "loop", tmp_path / "loop" / "x", Path("/proc/self/mem"), 3, None, b"mnist"]
    for number, place in enumerate(places):
        call = functools.partial(carre.load, place)
        ledger.ask(
            f"{number} {str(place)[:30]}", call, names=("name_or_folder", CONFIG), verdict=lambda _: Verdict.WRONG
        )
    ledger.check(least=16)
