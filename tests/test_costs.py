"""What the life of a learner costs is what was measured."""

import importlib.util
import json
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_the_page_says_what_the_record_holds():
    spec = importlib.util.spec_from_file_location("life", ROOT / "benchmarks" / "life.py")
    life = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(life)
    folder = ROOT / "docs" / "life"
    record = json.loads((folder / "costs.json").read_text("utf-8"))
    assert life.page(record) == (folder / "costs.md").read_text("utf-8")
