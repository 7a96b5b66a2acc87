"""The package and its pages do not use words that a reader would stumble over."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
BETWEEN = r"[\s#>]+"  # a phrase may be on two lines, also of a comment or a quotation
INSTEAD_OF = {
    "whoever": 'the person or thing that is meant: the reader, the pod; or "no matter who"',
    "thereby": "so, by this",
    "wherefrom": "from which",
    "made anew": "made again, recreated",
    "for ever": "forever",
    "none of ours": "not ours",
}


def found(text, phrases):
    """`line: phrase` for each phrase in the text."""
    hits = []
    for phrase in phrases:
        words = BETWEEN.join(map(re.escape, phrase.split()))
        places = re.finditer(rf"\b{words}\b", text, re.IGNORECASE)
        hits += [(text.count("\n", 0, place.start()) + 1, phrase) for place in places]
    return [f"{line}: {phrase}; write {phrases[phrase]}" for line, phrase in sorted(hits)]


def test_rejected_words_are_not_used():
    pages = {*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")}
    files = sorted({*pages, *ROOT.glob("vdev/**/*.py")})
    assert len(files) > len(pages) > 1
    hits = [f"{path.relative_to(ROOT)}:{each}" for path in files for each in found(path.read_text(), INSTEAD_OF)]
    assert not hits, "\n".join(hits)


def test_a_phrase_on_two_lines_is_found():
    assert ["1: for ever; write forever"] == found("# It waits for\n# ever.\n", INSTEAD_OF)
