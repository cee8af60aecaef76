"""Reader of an HTML page's elements, with the standard library's parser."""

from dataclasses import dataclass
from html.parser import HTMLParser

from jinja2 import FileSystemLoader

from tests.support import ROOT

TEMPLATES = FileSystemLoader(ROOT / "templates")

VOID = frozenset({"meta", "col", "br", "link", "img", "input"})
"""Elements without an end tag."""


@dataclass
class Element:
    """An element's tag, attributes and text; the text includes that of the elements in it."""

    tag: str
    attributes: dict[str, str]
    text: str = ""


class Page(HTMLParser):
    """The elements of a page in order of their start tags, which must pair with end tags."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[Element] = []
        self.pieces: list[str] = []
        """The texts between tags, without space around them."""
        self._open: list[Element] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(Element(tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self._open.append(self.elements[-1])

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop().tag == tag

    def handle_data(self, data: str) -> None:
        self.pieces.append(data.strip())
        for element in self._open:
            element.text += data

    def links(self) -> list[dict[str, str]]:
        """Return the attributes of each link."""
        return [one.attributes for one in self.elements if one.tag == "a"]

    def texts(self, tag: str) -> list[str]:
        return [one.text for one in self.elements if one.tag == tag]

    def attributes(self, name: str) -> list[str]:
        return [one.attributes[name] for one in self.elements if name in one.attributes]
