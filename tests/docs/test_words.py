"""Words that docs/developers/style.md does not want are not in the package, nor on its pages."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
STYLE = ROOT / "docs" / "developers" / "style.md"
BETWEEN = r"[\s#>]+"  # the words of a phrase may be on two lines, of a comment or a quotation too


def unwanted():
    """The first column of the table in docs/developers/style.md."""
    table = STYLE.read_text().partition("| never | but |\n|---|---|\n")[2].partition("\n\n")[0]
    return [line.split("|")[1].strip() for line in table.splitlines()]


def found(text, phrases):
    """`line: phrase` for each place in the text where one of the phrases begins."""
    hits = []
    for phrase in phrases:
        words = BETWEEN.join(map(re.escape, phrase.split()))
        places = re.finditer(rf"\b{words}\b", text, re.IGNORECASE)
        hits += [(text.count("\n", 0, place.start()) + 1, phrase) for place in places]
    return [f"{line}: {phrase}" for line, phrase in sorted(hits)]


def test_older_turns_of_phrase_are_not_used():
    """In no module of the package, no page of docs/ and none at the top; the page on style has to name them."""
    pages = {*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")} - {STYLE}
    files = sorted({*pages, *ROOT.glob("vdev/**/*.py")})
    assert len(files) > len(pages) > 1
    phrases = unwanted()
    hits = [f"{path.relative_to(ROOT)}:{each}" for path in files for each in found(path.read_text(), phrases)]
    assert not hits, "\n".join(["docs/developers/style.md says what to write instead of:", *hits])


def test_the_words_are_those_of_the_style_page():
    """So that a changed table does not leave the test without any."""
    assert {"whoever", "thereby", "wherefrom", "for ever"} <= {*unwanted()}
