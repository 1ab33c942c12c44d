"""A hook of MkDocs: links of a page to files of the repository outside of docs/.

Such a link leads to the file in the repository, if ``repo_url`` is set; else the page shows its path. Pictures, and
links within docs/, are left to MkDocs, which checks them.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent
OUTSIDE = re.compile(r"(?<!!)\[([^\]]*)\]\(((?:\.\./)+[^)#\s]+)(#[^)\s]*)?\)")
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Rewrite the links that leave docs/.

    Raises:
        ValueError: a link leads to a file that does not exist.
    """
    source = page.file.src_uri

    def rewrite(match: re.Match[str]) -> str:
        text, target, anchor = match.groups()
        path = _repository_path(source, target)
        if path.startswith("docs/"):
            return match[0]
        if not (ROOT / path).exists():
            raise ValueError(f"{source}: expected a file of the repository, got {target}; correct the link")
        if config.repo_url:
            return f"[{text}]({config.repo_url.rstrip('/')}/blob/main/{path}{anchor or ''})"
        return text if path in text else f"{text} (`{path}`)"

    fences = FENCED.findall(markdown)
    parts = [OUTSIDE.sub(rewrite, part) for part in FENCED.split(markdown)]
    return "".join(part + fence for part, fence in zip(parts, [*fences, ""], strict=True))


def _repository_path(source: str, target: str) -> str:
    """The path of a link's target in the repository. ``source`` is the path of its page in docs/."""
    return posixpath.normpath(posixpath.join("docs", posixpath.dirname(source), target))
