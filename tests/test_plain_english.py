"""The pages are in plain English: short sentences, standard terms, and an actor in each sentence.

Code, comments and targets of links are left out. A failure names the page, the line and what to write.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from paths import ROOT

PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]
# Notes for people who change interpool, longer than all other pages together: only their words are checked.
LABORATORY = {"architecture.md", "benchmarks.md"}
MOST_WORDS = 25  # a sentence, on the average of a page
ADVICE = {
    r"nobody|no one": "name the actor: 'no model', 'no client', 'you need not'",
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
IGNORED = re.compile(r"^```.*?^```$|<!--.*?-->|`[^`]*`|(?<=\])\([^)]*\)", re.DOTALL | re.MULTILINE)
SENTENCE = re.compile(r"""(?<=[.!?])["”)*]*\s+(?=[A-Z“*(\d"])""")
NO_PROSE = ("|", "#", "![", ":::")
ITEM = re.compile(r"^\s*(?:[-*]|\d+\.)\s+")

pages = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def plain_text(page: Path) -> str:
    """The page with other characters in place of what is ignored: lines stay where they are."""
    text = page.read_text(encoding="utf-8")
    return IGNORED.sub(
        lambda found: re.sub(r"[^\n]+", "x" if found[0].startswith("`") else "", found[0]), text
    )


def paragraphs(text: str) -> Iterator[str]:
    """Paragraphs and items of lists, without headings and tables."""
    lines: list[str] = []
    for line in [*text.splitlines(), ""]:
        if lines and (not line.strip() or line.startswith(NO_PROSE) or ITEM.match(line)):
            yield " ".join(lines)
            lines = []
        if line.strip() and not line.startswith(NO_PROSE):
            lines.append(ITEM.sub("", line).strip())


def sentences(page: Path) -> list[str]:
    return [
        sentence.strip("*[] ")
        for paragraph in paragraphs(plain_text(page))
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


@pages
def test_words_are_standard_ones(page: Path) -> None:
    found = [
        f"{page.name}:{number}: {word[0]!r}: write {advice}"
        for number, line in enumerate(plain_text(page).splitlines(), start=1)
        for word in BANNED.finditer(line)
        for banned, advice in ADVICE.items()
        if re.fullmatch(banned, word[0], re.IGNORECASE)
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
