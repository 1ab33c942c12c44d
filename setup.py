"""Everything about the distribution stands in pyproject.toml; this file is where a compiled extension is declared."""

from setuptools import setup

setup()
