"""Pages, docstrings and comments are in plain English: short sentences, standard terms, an actor in each.

Code, comments in pages and targets of links are left out. A failure names the file, the line
and what to write.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
from paths import ROOT

PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]
FOLDERS = ("handler", "archiver_ext", "native", "scripts", "model_store", "tests")
# Notes for people who change interpool, longer than all other pages together: only their words are checked.
LABORATORY = {"architecture.md", "benchmarks.md"}
PROGRAMS = {".py", ".cc", ".h", ".cpp"}
MOST_WORDS = 25  # a sentence, on the average of a page
LONGEST = 32  # words of a sentence in code; 25 are what a writer aims at
ADVICE = {
    r"(?:no|some|any)body|no one": "name the actor: 'no model', 'each client', 'you need not'",
    r"whoever": "name the actor: 'a client that', 'an attacker who'",
    r"whatever": "'any', 'all else', or 'with every'",
    r"told": "'asked', 'configured', or the option's name; not 'told apart' but 'distinguished'",
    r"mends?|mending": "'fix'",
    r"kin": "'others like it'",
    r"parting": "'isolation'",
    r"lessons": "'notes', or what they say",
    r"looked[- ]for": "'searched', or interpool as the subject: 'interpool looks for'",
    r"settling": "'stable', or 'decided'",
    r"late": "'deferred' of imports; of time, say after what",
}
BANNED = re.compile(r"\b(" + "|".join(f"(?:{words})" for words in ADVICE) + r")\b", re.IGNORECASE)
CLAUSE = re.compile(r"(?:What|Who|Whoever|Where) (?!.*[?:]$)")
IGNORED = re.compile(r"^```.*?^```$|<!--.*?-->|(`+)[^`]+\1|(?<=\])\([^)]*\)", re.DOTALL | re.MULTILINE)
SENTENCE = re.compile(r"""(?<=[^.].[.!?])["”)*]*\s+(?=[\w“*("])""")  # also "glibc does"; not after "e.g."
NO_PROSE = re.compile(r"\||#|!\[|:::|.*\S {3}")  # also a table in a docstring, by its columns
ITEM = re.compile(r"^(?:\s*(?:[-*]|\d+\.)\s+|\s+\*{0,2}\w+: |\s*\w+:$)")  # also of a docstring's sections
DIRECTIVE = re.compile(r"#(?: ?(?:noqa|type|fmt):|!).*|# ?")

pages = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def plain_text(file: Path) -> str:
    """The page, or what is prose in a program, without what is ignored: lines stay where they are."""
    text = file.read_text(encoding="utf-8")
    return IGNORED.sub(
        lambda found: re.sub(r"[^\n]+", "X" if found[0].startswith("`") else "", found[0]),
        of_python(text) if file.suffix == ".py" else text if file.suffix == ".md" else of_cpp(text),
    )


def of_cpp(source: str) -> str:
    """The comments that stand on lines of their own."""
    return "\n".join(re.sub(r"^\s*// ?|.*", "", line, count=1) for line in source.splitlines())


def of_python(source: str) -> str:
    """Docstrings and comments; a comment begins as an item of a list."""
    alone = [line.lstrip().startswith("#") for line in source.splitlines()]
    lines = [""] * len(alone)
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))):
                for number, line in enumerate(text.splitlines(), start=node.lineno - 1):
                    lines[number] = line
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            number = token.start[0] - 1
            goes_on = number > 0 and alone[number - 1] and alone[number]
            lines[number] = ("" if goes_on else "- ") + DIRECTIVE.sub("", token.string, count=1)
    return "\n".join(lines)


def paragraphs(text: str) -> Iterator[str]:
    """Paragraphs and items of lists, without headings and tables."""
    lines: list[str] = []
    for line in [*text.splitlines(), ""]:
        if lines and (not line.strip() or NO_PROSE.match(line) or ITEM.match(line)):
            yield " ".join(lines)
            lines = []
        if line.strip() and not NO_PROSE.match(line):
            lines.append(ITEM.sub("", line, count=1).strip())


def sentences(file: Path) -> list[str]:
    return [
        sentence.strip("*[] ")
        for paragraph in paragraphs(plain_text(file))
        for sentence in SENTENCE.split(paragraph)
        if re.search(r"\w", sentence)
    ]


def words(sentence: str) -> int:
    return len(re.findall(r"[\w'./-]+", sentence))


@pages
def test_sentences_are_short(page: Path) -> None:
    found = sentences(page)
    average = sum(map(words, found)) / max(1, len(found))
    longest = "\n".join(sorted(found, key=words)[-3:])
    assert average <= MOST_WORDS, f"{page.name}: {average:.1f} words a sentence; the longest:\n{longest}"


def banned_words(file: Path) -> list[str]:
    return [
        f"{file}:{number}: {word[0]!r}: write {advice}"
        for number, line in enumerate(plain_text(file).splitlines(), start=1)
        for word in BANNED.finditer(line)
        for banned, advice in ADVICE.items()
        if re.fullmatch(banned, word[0], re.IGNORECASE)
    ]


@pages
def test_words_are_standard_ones(page: Path) -> None:
    found = banned_words(page)
    assert not found, "\n".join(found)


@pytest.mark.parametrize("folder", FOLDERS)
def test_docstrings_and_comments_have_short_sentences_of_standard_words(folder: str) -> None:
    programs = sorted(path for path in (ROOT / folder).rglob("*") if path.suffix in PROGRAMS)
    assert programs
    found = [word for program in programs for word in banned_words(program)]
    found += [
        f"{program}: {words(sentence)} words, and {LONGEST} at most: {sentence}"
        for program in programs
        for sentence in sentences(program)
        if words(sentence) > LONGEST
    ]
    assert not found, "\n".join(found)


@pages
def test_no_clause_is_a_subject_and_conditions_say_if(page: Path) -> None:
    if page.name in LABORATORY:
        return
    found = [f"{page.name}: {sentence}" for sentence in sentences(page) if CLAUSE.match(sentence)]
    assert not found, "name the subject, or write 'if' of a condition:\n" + "\n".join(found)


@pytest.mark.long
@pytest.mark.parametrize(
    ("text", "test"),
    [
        ("It is a page that goes on. " + "and on " * 30 + "without end.", test_sentences_are_short),
        ("Nobody needs it.", test_words_are_standard_ones),
        ("It is\ntold so.", test_words_are_standard_ones),
        ("It works. What is missing is an error.", test_no_clause_is_a_subject_and_conditions_say_if),
        ("- Where it fails, try again.", test_no_clause_is_a_subject_and_conditions_say_if),
    ],
)
def test_what_is_not_plain_is_found(text: str, test, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(text)
    with pytest.raises(AssertionError):
        test(page)
    page.write_text(f"```\n{text}\n```\n\nIt is plain. What is it?\n\n`told` is code.\n")
    test(page)


@pytest.mark.long
@pytest.mark.parametrize(
    ("source", "is_plain"),
    [
        ('"""Nobody needs it."""', False),
        ("def f():\n    '''It works.\n\n    Args:\n        x: is told.\n    '''", False),
        ("x = 1  # told\n", False),
        ("# One" + " and one" * 20 + "\n#" + " and one" * 20, False),
        ("x = 'nobody is told'", True),
        ('"""Nothing. ``told`` is code."""', True),
        ("".join(f"x = {number}  # each of these is a comment of its own\n" for number in range(9)), True),
    ],
)
def test_programs_that_are_not_plain_are_found(
    source: str, is_plain: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    (tmp_path / "program.py").write_text(source)
    with nullcontext() if is_plain else pytest.raises(AssertionError):
        test_docstrings_and_comments_have_short_sentences_of_standard_words(".")
