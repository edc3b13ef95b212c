"""What pyproject.toml cannot say: README.md, its links made those of the repository."""

import re
import tomllib
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).parent
REPOSITORY = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["urls"][
    "Repository"
]


def absolute(link: re.Match[str]) -> str:
    """A relative link as one into the repository: an image's to the file, a page's to its view."""
    view = "raw" if link[1].startswith("!") else "blob"
    return f"{link[1]}({REPOSITORY}/{view}/main/{link[2]})"


text = (ROOT / "README.md").read_text("utf-8")
setup(
    long_description=re.sub(r"(!?\[[^\]]*\])\((?!https?:|#)([^)]*)\)", absolute, text),
    long_description_content_type="text/markdown",
)
