"""A few seconds of benchmarks/stress.py: nothing is lost, and nothing is wrong."""

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parent.parent / "benchmarks" / "stress.py"


def test_nothing_is_lost():
    command = [sys.executable, str(SCRIPT), "--seconds", "3"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    figures = json.loads(done.stdout)
    assert figures["wrong"] == []
    assert figures["answers from memory"] > 0 < figures["changes in memory"]
    assert figures["processes killed"] > 0
