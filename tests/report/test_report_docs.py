"""The code on the page about the report runs as printed."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "report.md"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_page_on_the_report_runs(tmp_path, monkeypatch, short_reports):
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL):
        exec(block, names)
    assert {path.name for path in tmp_path.iterdir()} == {"report.html", "labeled.html", "digits.html"}
    assert names["path"].name == "report.html"
    assert "1 dimension, at scale" in names["path"].read_text(encoding="utf-8")
