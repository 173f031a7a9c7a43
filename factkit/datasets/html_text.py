"""The text of web pages."""

import re
from html.parser import HTMLParser

_MARKUP = re.compile(r"<[a-zA-Z!/]|&#?\w+;")
# tags within a word or phrase; every other tag ends one
_INLINE = frozenset("b i em strong sub sup u s small mark font wbr".split())


def plain_text(text: str) -> str:
    """The text of a web page, a line for each block; other text with plain spaces."""
    if _MARKUP.search(text):
        page = _PageText()
        page.feed(text)
        page.close()
        text = "".join(page.parts)
    lines = (" ".join(line.split()) for line in text.splitlines())
    return "\n".join(line for line in lines if line)


class _PageText(HTMLParser):
    """Collects a page's text, without scripts and styles."""

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []
        self.skipping = ""

    def handle_starttag(self, tag, attrs):
        if tag in ("script", "style"):
            self.skipping = tag
        if tag not in _INLINE:
            self.parts.append("\n")

    def handle_endtag(self, tag):
        if tag == self.skipping:
            self.skipping = ""
        if tag not in _INLINE:
            self.parts.append("\n")

    def handle_data(self, data):
        if not self.skipping:
            self.parts.append(data)
