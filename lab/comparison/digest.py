"""A digest of everything that decides the shipped detector's verdicts, so that figures can name what they measure.

Equal digests mean the same reference code, weights and default options. Comments and docstrings do not count. Compiled
ops are left out, because they compute the same as the reference.
"""

import ast
import tokenize
from functools import cache
from hashlib import blake2b
from pathlib import Path

from serve_app.pipeline import options
from serve_app.settings import AlertSettings, Settings

ROOT = Path(__file__).resolve().parents[2]
DECISIVE = (  # patterns of files
    "model/**/*.py",
    "model/weights/*.safetensors",
    "partitioning/**/*.py",
    "kernels/*.py",
    "serve_app/pipeline.py",
)
SHORT = 12  # hex digits in documents
BYTES = 16


@cache
def detector_digest() -> str:
    """Return the digest of this code, in hex."""
    return compute_digest(ROOT)


def compute_digest(root: Path) -> str:
    """Return a checkout's digest, in hex: of the names of the ``DECISIVE`` files, their statements or bytes, and the
    values that ``pipeline.options`` takes from the settings."""
    digest = blake2b(digest_size=BYTES)
    for path in decisive_files(root):
        content = statements(path.read_text()).encode() if path.suffix == ".py" else path.read_bytes()
        digest.update(f"{path.relative_to(root).as_posix()} {len(content)}\n".encode() + content)
    digest.update(repr(options(Settings(alert=AlertSettings()))).encode())
    return digest.hexdigest()


def decisive_files(root: Path) -> list[Path]:
    """Return the files that the digest covers, sorted."""
    return sorted({path for pattern in DECISIVE for path in root.glob(pattern)})


def statements(source: str) -> str:
    """Return Python source without comments, docstrings and blank lines; the same under every version of Python."""
    lines = source.splitlines()
    for token in tokenize.generate_tokens(iter(source.splitlines(keepends=True)).__next__):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column]
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Expr(value=ast.Constant(value=str()), lineno=begin, end_lineno=int(end)):
                lines[begin - 1 : end] = [""] * (end - begin + 1)
    return "\n".join(line.rstrip() for line in lines if line.strip())
