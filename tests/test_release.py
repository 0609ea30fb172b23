"""What is released can be installed where nothing of it is, and says what it should where there is no repository."""

import os
import re
import subprocess
import sys
import sysconfig
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest

import carre

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.slow

ALONE = ("--no-deps", "--no-build-isolation", "--no-index", "--quiet", "--no-compile")
# A first question in an environment of its own: what answers must lie in it.
QUESTION = """
import sys, carre
assert carre.__file__.startswith(sys.prefix), carre.__file__
assert carre.load("mnist").sample_shape == (1, 28, 28)
geometry = carre.fit([[i, i * i] for i in range(50)], max_steps=3, width=8, verbose=False, random_state=0)
carre.write_report(geometry, geometry.landmarks.numpy(), "page.html")
print(carre.__version__)
"""


def run(*command, cwd, **variables):
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | variables
    found = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout + found.stderr
    return found.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The sdist, and the wheel that is made from it."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT), cwd=folder)
    return {"wheel": next(folder.glob("*.whl")), "sdist": next(folder.glob("*.tar.gz"))}


def test_the_page_of_the_package_leads_nowhere_that_only_the_repository_has(built):
    with zipfile.ZipFile(built["wheel"]) as wheel:
        name = next(name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = message_from_bytes(wheel.read(name))
        text = wheel.read(name).decode("utf-8").partition("\n\n")[2]
    links = re.findall(r"\]\(([^)]+)\)", text)
    assert len(links) > 20
    assert [link for link in links if not link.startswith("https://")] == []
    pictures = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", text)
    assert pictures
    assert all(picture.startswith("https://raw.") and picture.endswith(".png") for picture in pictures)
    addresses = dict(entry.split(", ") for entry in metadata.get_all("Project-URL"))
    assert {"Homepage", "Documentation", "Changelog", "Paper"} <= set(addresses)
    assert all(addresses["Homepage"] in link for link in links if link.endswith(".md"))
    assert metadata["Version"] == carre.__version__


def test_it_answers_where_nothing_of_it_is(built, tmp_path):
    """The environment sees the packages that it depends on; a fresh one would take gigabytes and a minute."""
    home = tmp_path / "home"
    run(sys.executable, "-m", "venv", "--without-pip", str(home), cwd=tmp_path)
    python = str(home / "bin" / "python")
    own = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=tmp_path).strip())
    (own / "others.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    run(python, "-m", "pip", "install", *ALONE, "--ignore-installed", str(built["wheel"]), cwd=tmp_path)
    assert run(python, "-c", QUESTION, cwd=tmp_path, OMP_NUM_THREADS="1").strip() == carre.__version__
    assert (home / "bin" / "carre").exists()


def test_the_sdist_installs_the_same_files(built, tmp_path):
    installed = tmp_path / "installed"
    run(sys.executable, "-m", "pip", "install", *ALONE, "--target", str(installed), str(built["sdist"]), cwd=tmp_path)
    with zipfile.ZipFile(built["wheel"]) as wheel:
        expected = {name for name in wheel.namelist() if name.startswith("carre/")}
    found = {path.relative_to(installed).as_posix() for path in (installed / "carre").rglob("*") if path.is_file()}
    assert {name for name in found if "__pycache__" not in name} == expected
    in_source = {path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src/carre").rglob("*.py")}
    assert in_source <= expected


def test_versions_agree():
    assert f"version: {carre.__version__}" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    changes = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert changes[0] == carre.__version__
