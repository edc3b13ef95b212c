"""A figure of matplotlib's for the inside of a page, in the page's own colours."""

from __future__ import annotations

import re
from functools import cache
from xml.etree import ElementTree

from algnn.report.styles import HUES, INKS

SVG = "{http://www.w3.org/2000/svg}"
LINK = "{http://www.w3.org/1999/xlink}href"
NUMBER = re.compile(r"-?\d+\.\d+")
COLOUR = re.compile(r"#[0-9a-f]{6}\b")
# to another element: url(#id), or #id alone as a link; a colour is neither
REFERENCE = re.compile(r"url\(#([\w-]+)\)|(?<!\S)#([a-z][\w-]+)(?!\S)")


def inline(text: str, prefix: str, name: str) -> str:
    """SVG for the inside of a page: no namespaces, own ids, colours by name.

    Parameters
    ----------
    text : str
        A file that matplotlib wrote.
    prefix : str
        Of its ids, no other figure's.
    name : str
        Its class.

    Returns
    -------
    str
        An element.

    Examples
    --------
    >>> body = '<path d="M 1.234 5" style="fill: none; stroke: #1a1f27"/>'
    >>> text = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 9 9">{body}</svg>'
    >>> inline(text, "a", "every")[-66:]
    '<path d="M 1.23 5" style="fill: none; stroke: var(--ink)" /></svg>'
    """
    root = ElementTree.fromstring(text)
    _, _, width, height = root.get("viewBox", "0 0 1 1").split()
    _strip(root)
    values = " ".join(value for element in root.iter() for value in element.attrib.values())
    used = [one or other for one, other in REFERENCE.findall(values)]
    ids = {old: f"{prefix}-{i}" for i, old in enumerate(dict.fromkeys(used))}
    for element in root.iter():
        _rename(element, ids)
    children = "".join(ElementTree.tostring(child, encoding="unicode") for child in root)
    # hidden: the figure's own label says what it shows
    return (
        f'<svg viewBox="0 0 {_round(width)} {_round(height)}" class="{name}"'
        f' width="{_round(width)}" height="{_round(height)}" aria-hidden="true"'
        f' focusable="false">{children}</svg>'
    )


def _strip(element: ElementTree.Element) -> None:
    """Drop what a page has no use for, and groups that hold nothing of their own."""
    children: list[ElementTree.Element] = []
    for child in element:
        tag = str(child.tag).removeprefix(SVG)
        if tag in ("metadata", "style", "title"):
            continue
        child.tag = tag
        _strip(child)
        if tag == "g":
            child.attrib.pop("id", None)
        if tag == "path" and child.get("style") == "fill: none":
            continue
        if tag == "g" and not child.attrib:
            children += list(child)
        elif tag != "defs" or len(child):
            children.append(child)
    for child in list(element):
        element.remove(child)
    element.extend(children)
    if element.tag != "text":
        element.text = None
    for child in element:
        child.tail = None


def _rename(element: ElementTree.Element, ids: dict[str, str]) -> None:
    if LINK in element.attrib:
        element.set("href", element.attrib.pop(LINK))
    if element.get("id") not in ids:
        element.attrib.pop("id", None)
    for key, value in list(element.attrib.items()):
        element.set(key, _attribute(key, value, ids))
    if element.get("transform", "").startswith("rotate(-0 "):
        del element.attrib["transform"]


def _attribute(key: str, value: str, ids: dict[str, str]) -> str:
    if key == "id":
        return ids[value]
    if key == "href":
        return f"#{ids[value[1:]]}" if value.startswith("#") else "".join(value.split())
    if key in ("d", "transform", "x", "y"):
        return " ".join(NUMBER.sub(lambda found: _round(found[0]), value).split())
    value = re.sub(r"url\(#([\w-]+)\)", lambda found: f"url(#{ids[found[1]]})", value)
    if key == "style":
        value = re.sub(r"\s*font-family:[^;]*;|\s*stroke-dashoffset: 0;", "", value)
    return COLOUR.sub(lambda found: _names().get(found[0], found[0]), value)


@cache
def _names() -> dict[str, str]:
    inks = {value[0]: f"var(--{name})" for name, value in INKS.items()}
    return inks | {value[0]: f"var(--hue-{name})" for name, value in HUES.items()}


def _round(number: str) -> str:
    return f"{float(number):.2f}".rstrip("0").rstrip(".")
