"""What MkDocs does to every page beyond Markdown: formulas become MathML, and docstrings lose their Sphinx roles.

pymdownx.arithmatex finds $…$ and $$…$$ in the Markdown; latex2mathml translates what it found when the site is built.
So reading them needs neither a script nor a network.
"""

from __future__ import annotations

import html
import re
from typing import Any

from latex2mathml.converter import convert

DISPLAY = re.compile(r'<div class="arithmatex">\s*\\\[(.*?)\\\]\s*</div>', re.DOTALL)
INLINE = re.compile(r'<span class="arithmatex">\\\((.*?)\\\)</span>', re.DOTALL)
ROLE = re.compile(r":(?:class|func|meth|mod):(?=<code>)")
TOUCHES = {
    "<mi>&#x0007E;</mi>": "<mo>&#x0223C;</mo>",  # ∼ is a relation, with room around it
    "<mo>&#x02016;</mo>": '<mo stretchy="false" lspace="0" rspace="0">&#x02016;</mo>',  # ‖ is a bracket, without
}


def on_page_content(content: str, **_: Any) -> str:
    """Called by MkDocs with the HTML of every page."""
    content = DISPLAY.sub(lambda m: f'<div style="overflow-x: auto">{_mathml(m[1], "block")}</div>', content)
    content = INLINE.sub(lambda m: _mathml(m[1], "inline"), content)
    return ROLE.sub("", content)


def _mathml(formula: str, display: str) -> str:
    made = convert(html.unescape(formula).strip(), display=display)
    for old, new in TOUCHES.items():
        made = made.replace(old, new)
    return made
