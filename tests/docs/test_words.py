"""The package and its pages do not use the words that docs/developers/style.md rejects."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
STYLE = ROOT / "docs" / "developers" / "style.md"
BETWEEN = r"[\s#>]+"  # a phrase may be on two lines, also of a comment or a quotation


def unwanted():
    """The first column of the table in docs/developers/style.md."""
    table = STYLE.read_text().partition("| never | but |\n|---|---|\n")[2].partition("\n\n")[0]
    return [line.split("|")[1].strip() for line in table.splitlines()]


def found(text, phrases):
    """`line: phrase` for each phrase in the text."""
    hits = []
    for phrase in phrases:
        words = BETWEEN.join(map(re.escape, phrase.split()))
        places = re.finditer(rf"\b{words}\b", text, re.IGNORECASE)
        hits += [(text.count("\n", 0, place.start()) + 1, phrase) for place in places]
    return [f"{line}: {phrase}" for line, phrase in sorted(hits)]


def test_rejected_words_are_not_used():
    """Checks all modules of the package and all pages except the page on style."""
    pages = {*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")} - {STYLE}
    files = sorted({*pages, *ROOT.glob("vdev/**/*.py")})
    assert len(files) > len(pages) > 1
    phrases = unwanted()
    hits = [f"{path.relative_to(ROOT)}:{each}" for path in files for each in found(path.read_text(), phrases)]
    assert not hits, "\n".join(["docs/developers/style.md says what to write instead of:", *hits])


def test_the_table_is_found():
    assert {"whoever", "thereby", "wherefrom", "for ever"} <= {*unwanted()}
