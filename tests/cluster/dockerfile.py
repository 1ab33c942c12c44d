"""The Dockerfile."""

import re

from tests.cluster.schemas import ROOT

DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
STAGES = dict(re.findall(r"^FROM \S+ AS (\S+)\n(.*?)(?=^FROM |\Z)", DOCKERFILE, re.MULTILINE | re.DOTALL))


def copied_files() -> set[str]:
    """Files and folders that the Dockerfile copies into the images."""
    lines = re.findall(r"^COPY (?!--from)(.*)$", DOCKERFILE, re.MULTILINE)
    return {word for line in lines for word in line.split()[:-1]}
