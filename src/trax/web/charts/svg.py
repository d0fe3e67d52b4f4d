"""Elements of a drawing. Text and attributes are escaped, whatever they hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

from markupsafe import Markup, escape

if TYPE_CHECKING:
    from collections.abc import Iterable


def element(name: str, *children: str, **attributes: object) -> Markup:
    """`element("rect", class_="bar", x=1)`: a trailing underscore falls off, others become hyphens."""
    written = "".join(
        f' {_attribute(key)}="{_value(value)}"' for key, value in attributes.items() if value is not None
    )
    inside = together(children)
    return Markup(f"<{name}{written}>{inside}</{name}>" if children else f"<{name}{written}/>")  # noqa: S704


def together(children: Iterable[str]) -> Markup:
    return Markup("").join(children)


def title(text: str) -> Markup:
    """What a browser shows beside the pointer, and a screen reader says."""
    return element("title", text)


def _attribute(key: str) -> str:
    return key.rstrip("_").replace("_", "-")


def _value(value: object) -> str:
    """Numbers short: a drawing holds thousands of them."""
    if isinstance(value, float):
        return f"{value:.2f}".rstrip("0").rstrip(".")
    return str(value) if isinstance(value, int) else escape(value)
