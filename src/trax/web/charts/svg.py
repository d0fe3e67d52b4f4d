"""SVG elements, with escaped text and attributes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from markupsafe import Markup, escape

if TYPE_CHECKING:
    from collections.abc import Iterable


def element(name: str, *children: str, **attributes: object) -> Markup:
    """`element("rect", class_="bar", x=1)`: a trailing underscore is dropped, others become hyphens."""
    formatted = "".join(
        f' {_attribute(key)}="{_value(value)}"' for key, value in attributes.items() if value is not None
    )
    inside = join_elements(children)
    return Markup(f"<{name}{formatted}>{inside}</{name}>" if children else f"<{name}{formatted}/>")  # noqa: S704


def join_elements(children: Iterable[str]) -> Markup:
    return Markup("").join(children)


def title(text: str) -> Markup:
    """A tooltip, which screen readers announce too."""
    return element("title", text)


def _attribute(key: str) -> str:
    return key.rstrip("_").replace("_", "-")


def _value(value: object) -> str:
    """Format a value; numbers are kept short, since a drawing has thousands of them."""
    if isinstance(value, float):
        return f"{value:.2f}".rstrip("0").rstrip(".")
    return str(value) if isinstance(value, int) else escape(value)
