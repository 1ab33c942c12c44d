"""Plain English in Markdown files, in the texts of the code and of the tests, and in names.

Every Markdown file of the repository keeps sentences and paragraphs short and avoids the phrases in ``BANNED``. So do
comments, docstrings and strings of Python, and the texts of the page. In tests, strings are data, so only comments,
docstrings, messages of assertions and test ids are checked. Names are checked in packages and tests: no name contains a
word in ``BANNED``, and no function is named with a bare past participle.

``python -m tests.test_language FOLDER`` lists the banned phrases of a folder.
"""

import ast
import io
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOLDERS = ("docs", "examples", "benchmarks", "deploy", "kernels", "lab", "model", "partitioning", "serve_app", "tests")
CODE = ("serve_app", "model", "partitioning", "kernels", "lab", "benchmarks", "docs", "examples", "tests")
MOST_WORDS_IN_A_SENTENCE = 35
MOST_WORDS_IN_A_PARAGRAPH = 100

BANNED = {  # a regular expression, and what to write instead
    r"told": 'name who does what: "the service notifies you", "set to"',
    r"heard": '"received", "read"',
    r"heed(?:s|ed|ing)?": '"respect", "apply", "use"',
    r"hushed": '"muted"',
    r"whoever": '"anyone who", "the person who"',
    r"nobody": '"no one", or say what is missing: "no alert is sent", "no fault is injected"',
    r"somebody": '"someone"',
    r"that of": "repeat the noun",
    r"those of": "repeat the noun",
    r"as it is": '"unchanged", or leave it out',
    r"as they are": '"unchanged", or leave it out',
    r"as emitted": '"at the default threshold"',
    r"what pages": '"which alerts are raised"',
    r"pages? (?:a|an|per) (?:day|hour)": '"alerts per day", "alerts per hour"',
    r"false pages?": '"false alert"',
    r"whose doing": '"which service caused it"',
    r"who is (?:affected|asked|muted|refused|told)": 'name the part: "the service that is muted"',
    r"strange|stranger|strangest|strangeness": '"unusual", "anomalous"',
    r"anew": '"again", "from the start"',
    r"for good": '"in production", "permanently"',
    r"hangs? together": '"belongs together", "is related"',
    r"taken? for": '"treated as"',
    r"goes? on": '"continues", "resumes"',
    r"tells? of": '"reports"',
    r"got of": '"resulted"',
    r"the watcher": '"the detector", "TAGAE"',
}

ANY_BANNED = re.compile(rf"\b(?:{'|'.join(f'({phrase})' for phrase in BANNED)})\b".replace(" ", r"\s+"), re.IGNORECASE)

# Past participles that say nothing about what a function does or returns. Name it for one of the two.
PARTICIPLES = re.compile(
    "_?(?:"
    "asked|called|changed|dropped|given|gone|heard|heeded|held|hushed|involved|joined|judged|kept|laid|lifted|"
    "listed|made|moved|named|noted|offered|opened|overloaded|owned|packed|paged|placed|quoted|raised|recorded|"
    "remembered|rendered|rounded|said|sampled|scored|seen|settled|shown|spoken|suspected|taken|told|traced|violated|wanted|"
    "warmed|watched"
    ")"
)


DEFINITION = re.compile(r"^[ ]*(?:async )?def _*(\w+)", re.MULTILINE)

# Comments and strings of JavaScript.
JAVASCRIPT = re.compile(r"""//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|`(?:\\.|[^`\\])*`""", re.DOTALL)
ABBREVIATIONS = re.compile(r"\b(?:e\.g|i\.e|etc|vs|cf|approx|incl|resp|[A-Z])\.(?=\s+\S)|\bno\.(?=\s+\d)")
FENCE = re.compile(r"^(```|~~~)")
ITEM = re.compile(r"^\s*(?:[-*+]|\d+[.)])\s+")


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A paragraph, list item, heading or table row, without its markup.

    Attributes:
        line: number of its first line in the file.
        text: on one line. Inline code is replaced by ``CODE``, a link by its text.
        is_row: whether it is a row of a table; sentences in tables are not counted.
    """

    line: int
    text: str
    is_row: bool = False

    def sentences(self) -> list[str]:
        text = ABBREVIATIONS.sub(lambda match: match[0].replace(".", "\0"), self.text)
        return [part.replace("\0", ".") for part in re.split(r"(?<=[.!?])[\"')\]*_]*\s+", text) if part]


def read_paragraphs(markdown: str) -> Iterator[Paragraph]:
    """Split a file into paragraphs; code blocks and comments are left out."""
    markdown = re.sub(r"<!--.*?-->", lambda match: "\n" * match[0].count("\n"), markdown, flags=re.DOTALL)
    lines: list[str] = []
    begin, is_in_fence, is_in_list, is_after_blank = 0, False, False, True

    def close() -> Iterator[Paragraph]:
        if lines:
            yield Paragraph(begin, strip_markup(" ".join(lines)))
            lines.clear()

    for number, line in enumerate(markdown.splitlines(), 1):
        if FENCE.match(line.lstrip()):
            yield from close()
            is_in_fence = not is_in_fence
        elif is_in_fence:
            pass
        elif not line.strip():
            yield from close()
            is_after_blank = True
            continue
        elif is_after_blank and line.startswith("      " if is_in_list else "    "):
            continue  # a block of code by indentation
        elif line.startswith("|"):
            yield from close()
            if not re.fullmatch(r"[|\s:-]+", line):
                yield Paragraph(number, strip_markup(line), is_row=True)
        else:
            is_item, is_heading = bool(ITEM.match(line)), line.startswith("#")
            if is_item or is_heading:
                yield from close()
            if not lines:
                begin, is_in_list = number, is_item or (is_in_list and line.startswith(" "))
            lines.append(ITEM.sub("", line).strip())
            if is_heading:
                yield from close()
        is_after_blank = False
    yield from close()


def strip_markup(text: str) -> str:
    """Keep what a person reads: the text of links, the descriptions of pictures."""
    text = re.sub(r"`` .*? ``|`[^`]*`", "CODE", text)
    text = re.sub(r'<img[^>]*?alt="([^"]*)"[^>]*>', r"\1", text)
    text = re.sub(r"<[^>]+>", " ", text)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"https?://\S*\w/?", "URL", text)
    return re.sub(r"\s+", " ", text.replace("**", "").strip("#_ "))


def count_words(text: str) -> int:
    return sum(any(letter.isalnum() for letter in word) for word in text.split())


def find_banned(text: str) -> Iterator[tuple[int, str]]:
    """Where each banned phrase of a text begins, and what to write instead."""
    for found in ANY_BANNED.finditer(text):
        context = " ".join(text[max(0, found.start() - 60) : found.end() + 60].split())
        instead = list(BANNED.values())[(found.lastindex or 1) - 1]
        yield found.start(), f'"{found[0]}" in: {context}\n    write instead: {instead}'


def find_problems(name: str, markdown: str) -> Iterator[str]:
    """What is wrong in a file, as ``file:line``, the sentence, and what to do."""
    for paragraph in read_paragraphs(markdown):
        place = f"{name}:{paragraph.line}"
        limits = [] if paragraph.is_row else [(paragraph.text, MOST_WORDS_IN_A_PARAGRAPH, "paragraph")]
        limits += [(one, MOST_WORDS_IN_A_SENTENCE, "sentence") for one in paragraph.sentences() if limits]
        for text, most, what in limits:
            if (words := count_words(text)) > most:
                yield f"{place}: {words} words in a {what}, at most {most}; split it: {text}"
        yield from (f"{place}: {problem}" for _, problem in find_banned(paragraph.text))


def find_code_texts(path: Path) -> Iterator[tuple[int, str]]:
    """Line and content of each comment and string of a Python or JavaScript file, or of the text of an HTML file.

    Adjacent strings and comments on consecutive lines are separate. Code in double backticks is left out.
    """
    source = path.read_text("utf-8")
    if path.suffix == ".py":
        kinds = {tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}
        tokens = tokenize.generate_tokens(io.StringIO(source).readline)
        found = [(token.start[0], token.string) for token in tokens if token.type in kinds]
        is_formatted = re.compile(r"[rR]?[fF]")  # up to Python 3.11 one token with its expressions
        found = [
            (line, re.sub(r"\{[^{}]*\}", "{}", text) if is_formatted.match(text) else text) for line, text in found
        ]
    elif path.suffix == ".js":
        found = [(source.count("\n", 0, match.start()) + 1, match[0]) for match in JAVASCRIPT.finditer(source)]
    else:
        found = list(enumerate(re.sub(r"<[^>]+>", " ", source).splitlines(), 1))
    for line, text in found:
        yield line, re.sub(r"``.*?``|`[^`]*`", "CODE", text) if path.suffix == ".py" else text


@lru_cache(maxsize=1)  # texts and names of a file are looked for one after the other
def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


def find_test_texts(path: Path) -> Iterator[tuple[int, str]]:
    """Line and content of each comment, docstring, message of an assertion and test id of a Python file."""
    source = path.read_text("utf-8")
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    texts: list[ast.AST] = []
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            texts += [node.body[0]] if ast.get_docstring(node) else []
        elif isinstance(node, ast.Assert):
            texts += [node.msg] if node.msg else []
        elif isinstance(node, ast.keyword) and node.arg in ("id", "ids"):
            texts.append(node.value)
    for part in (part for text in texts for part in ast.walk(text)):
        if isinstance(part, ast.Constant) and isinstance(part.value, str):
            yield part.lineno, re.sub(r"``.*?``|`[^`]*`", "CODE", part.value)


def find_names(path: Path) -> Iterator[tuple[int, str]]:
    """Line and words of each name that a Python file defines: functions, classes, arguments, variables, attributes.

    Slashes separate the words, so that only single words of ``BANNED`` match.
    """
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = node.name
        elif isinstance(node, ast.arg):
            name = node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            name = node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            name = node.attr
        else:
            continue
        yield node.lineno, re.sub(r"(?<=[a-z])(?=[A-Z])|_+", "/", name)


def find_texts(path: Path) -> list[tuple[int, str]]:
    """Line and content of all that a person reads in a file of code: its texts and the names that it defines."""
    if path.suffix != ".py":
        return list(find_code_texts(path))
    texts = find_test_texts(path) if ROOT / "tests" in path.parents else find_code_texts(path)
    return sorted([*texts, *find_names(path)])


def find_banned_in_code(folder: Path) -> Iterator[str]:
    """Banned phrases below a folder, as ``file:line: phrase in: text`` and what to write instead."""
    for path in sorted(folder.rglob("*")):
        if path.suffix not in (".py", ".js", ".html") or {"vendor", "node_modules"} & set(path.parts):
            continue
        if "_pb2" in path.name or path == Path(__file__):
            continue  # generated code; this file, which lists the phrases
        name = path.relative_to(ROOT).as_posix()
        for line, text in find_texts(path):
            for at, problem in find_banned(text):
                place = line + text.count("\n", 0, at)
                yield f"{name}:{place}: {problem}"


def find_files() -> dict[str, Path]:
    """Markdown files by their path in the repository."""
    paths = [*ROOT.glob("*.md"), *(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.md"))]
    return {path.relative_to(ROOT).as_posix(): path for path in sorted(paths) if "node_modules" not in path.parts}


def count_participles() -> Counter[str]:
    """Functions of packages and tests that are named with a participle alone, by name."""
    sources = (path.read_text("utf-8") for folder in CODE for path in (ROOT / folder).rglob("*.py"))
    return Counter(name for source in sources for name in DEFINITION.findall(source) if PARTICIPLES.fullmatch(name))


FILES = find_files()


@pytest.mark.parametrize("name", sorted(FILES))
def test_file_is_in_plain_english(name: str) -> None:
    problems = list(find_problems(name, FILES[name].read_text("utf-8")))
    assert not problems, "\n" + "\n".join(problems)


def test_no_function_is_named_with_a_participle() -> None:
    assert count_participles() == {}, "use a verb for what it does or a noun for its result"


@pytest.mark.parametrize("folder", CODE)
def test_code_uses_no_banned_phrase(folder: str) -> None:
    problems = list(find_banned_in_code(ROOT / folder))
    assert not problems, "\n" + "\n".join(problems)


@pytest.mark.parametrize(
    ("name", "source", "lines"),
    [
        ("x.py", 'x = 1  # told\ny = told("ok")\n', [1]),
        ("x.py", "def f(told):\n    as_it_is = 1\n    self.who_told = 2\n\n\nclass AnyStranger: ...\n", [1, 3, 6]),
        ("tests/x.py", 'x = "told"  # nobody\nassert x == "told", f"as {x} told"\n', [1, 2]),
        ("tests/x.py", 'def told():\n    """Heard."""\n\n\ny = param("told", id="nobody told")\n', [1, 2, 5, 5]),
        ("x.py", '"""Ok.\n\nAs it\nis.\n"""', [3]),
        ("x.py", '"""Calls ``told``."""\nz = f"{told} nobody"', [2]),
        ("x.js", 'const told = "fine"; // nobody\n', [1]),
        ("x.js", "const a = 'https://a.b';\nb(`strange ${a}`);\n", [2]),
        ("x.html", '<p class="told">fine</p>\n<p>Nobody</p>', [2]),
    ],
)
def test_banned_phrases_in_code_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, source: str, lines: list[int]
) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(source)
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    assert [int(problem.split(":")[1]) for problem in find_banned_in_code(tmp_path)] == lines


@pytest.mark.parametrize(
    ("markdown", "sentences"),
    [
        ("One. Two.", ["One.", "Two."]),
        ("Use e.g. this. Then i.e. that.", ["Use e.g. this.", "Then i.e. that."]),
        (
            "Python 3.11 or 3.12. See `a.b. c`, tagae.toml and README.md.",
            ["Python 3.11 or 3.12.", "See CODE, tagae.toml and README.md."],
        ),
        ("Is it (really?) so? Yes.", ["Is it (really?", "so?", "Yes."]),
        ("A line\nand the next.", ["A line and the next."]),
        ("- One item\n  of two lines.\n- Another.", ["One item of two lines.", "Another."]),
        ("1. First.\n2. Second.", ["First.", "Second."]),
        ("See [the docs](docs/a.md#b.c) and https://a.b/c. End.", ["See the docs and URL.", "End."]),
        ("Before.\n\n```bash\nnot. this.\n```\n\n    nor. this.\n\nAfter.", ["Before.", "After."]),
        ("<!-- not\nthis. -->\n# Heading\nText.", ["Heading", "Text."]),
        ("![A picture.](a.png)", ["A picture."]),
    ],
)
def test_sentences_are_split(markdown: str, sentences: list[str]) -> None:
    assert [sentence for paragraph in read_paragraphs(markdown) for sentence in paragraph.sentences()] == sentences


@pytest.mark.parametrize(
    ("markdown", "problem"),
    [
        ("ok\n\n" + "word " * 36, "x.md:3: 36 words in a sentence"),
        ("Short one. " * 51, "x.md:1: 102 words in a paragraph"),
        ("ok\n\n- Nobody is\n  told.", '"Nobody" in: Nobody is told.'),
        ("| a | told |\n|---|---|\n", '"told" in'),
    ],
)
def test_problems_are_found(markdown: str, problem: str) -> None:
    assert any(problem in found for found in find_problems("x.md", markdown))


@pytest.mark.parametrize("markdown", ["word " * 35, "Run `nobody told`.", f"| {'word ' * 40}|", "```\nnobody\n```"])
def test_what_is_allowed_is_no_problem(markdown: str) -> None:
    assert list(find_problems("x.md", markdown)) == []


if __name__ == "__main__":
    print(*(problem for folder in sys.argv[1:] for problem in find_banned_in_code(ROOT / folder)), sep="\n")
