"""What a release says of itself: version numbers that agree, and the text of the changelog.

python -m deploy.release check vVERSION    ends non-zero if a file names another version
python -m deploy.release notes vVERSION    prints the section of the changelog
"""

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]


def versions(root: Path = ROOT) -> dict[str, str]:
    """Return the version that each file names, without a leading v."""
    chart = (root / "deploy/helm/tagae/Chart.yaml").read_text(encoding="utf-8")
    citation = (root / "CITATION.cff").read_text(encoding="utf-8")
    return {
        "pyproject.toml": tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"],
        **{
            f"Chart.yaml, {name}": re.findall(rf"^{name}: \"?([\w.]+)", chart, re.MULTILINE)[0]
            for name in ("version", "appVersion")
        },
        "CITATION.cff": re.findall(r"^version: (\S+)", citation, re.MULTILINE)[0],
    }


def notes(version: str, root: Path = ROOT) -> str:
    """Return the section of a version in the changelog.

    Raises:
        ValueError: there is none.
    """
    text = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    found = re.search(rf"^## \[{re.escape(version)}\][^\n]*\n(.*?)(?=^## \[|\Z)", text, re.MULTILINE | re.DOTALL)
    if not found:
        raise ValueError(f"CHANGELOG.md: expected a section [{version}], got none; rename [Unreleased]")
    return found[1].strip() + "\n"


def main(action: str, tag: str) -> int:
    version = tag.removeprefix("v")
    wrong = [f"{name}: expected {version}, got {found}" for name, found in versions().items() if found != version]
    try:
        text = notes(version)
    except ValueError as error:
        wrong.append(str(error))
    if wrong:
        print("\n".join(wrong), file=sys.stderr)
        return 1
    print(text if action == "notes" else f"all files name {version}")
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in ("check", "notes"):
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
