"""Text for drawings that can not measure: one line, safe in XML, about so wide, shortened where it must be."""

from __future__ import annotations

import re
import unicodedata
from html import escape

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_JOINERS = "\u200d\ufe0e\ufe0f"

# Advance widths as parts of the size. They are those of a wide sans-serif face, so that text ends within its box.
_NARROW, _WIDE, _OTHER = 0.36, 0.97, 0.61
_USUAL = {"Lu": 0.71, "Nd": 0.64, "Sm": 0.84, "So": 1.3, "Zs": 0.33, "Mn": 0.0, "Me": 0.0, "Cf": 0.0}


def one_line(text: str) -> str:
    """`text` with white space collapsed and what XML can not carry replaced by U+FFFD."""
    return _NOT_XML.sub("\ufffd", " ".join(text.split()))


def xml(text: str) -> str:
    """`text` as XML character data or attribute value."""
    return escape(one_line(text), quote=True)


def width(text: str, size: float) -> float:
    """About how wide `text` is in pixels, in letters of `size` pixels."""
    return size * sum(map(_advance, text))


def shortened(text: str, size: float, room: float) -> str:
    """`text` if it fits in `room` pixels, else as much of its beginning as does, with an ellipsis."""
    if width(text, size) <= room:
        return text
    left = room - width("…", size)
    for end, character in enumerate(text):
        left -= _advance(character) * size
        if left < 0:
            # Not between the parts of one visible character: an accent, or emoji that are joined.
            while end and (unicodedata.combining(text[end]) or text[end] in _JOINERS or text[end - 1] in _JOINERS):
                end -= 1
            return text[:end].rstrip() + "…"
    return text


def _advance(character: str) -> float:
    if character in "ijlt|.,:;'!()[]f/\\I`":
        return _NARROW
    if character in "mwMW@%…":
        return _WIDE
    if unicodedata.east_asian_width(character) in "WF":
        return 1.3 if unicodedata.category(character) == "So" else 1.0
    return _USUAL.get(unicodedata.category(character), _OTHER)
