"""Read pages of the dashboard without scripts: open them, follow links, send forms."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlencode, urljoin, urlsplit

if TYPE_CHECKING:
    import httpx2

VOID = {"input", "meta", "link", "br", "hr", "use", "img"}


@dataclass
class Form:
    action: str
    method: str
    fields: list[tuple[str, str]] = field(default_factory=list)
    buttons: list[tuple[str, str, str]] = field(default_factory=list)
    """Name, value and what stands on it."""


class Page(HTMLParser):
    """What a browser would make of a page: its text, links, forms, and everything that could run."""

    def __init__(self, answer: httpx2.Response) -> None:
        super().__init__()
        self.status = answer.status_code
        self.path = answer.url.path
        self.address = answer.url.raw_path.decode()
        self.source = answer.text
        self.size = len(answer.content)
        self.texts: list[str] = []
        self.links: list[str] = []
        self.forms: list[Form] = []
        self.scripts: list[dict[str, str | None]] = []
        self.handlers: list[str] = []
        self.fields: dict[str, dict[str, str | None]] = {}
        self._open: list[str] = []
        self._form: Form | None = None
        self._select: str | None = None
        self.feed(answer.text)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())

    def form(self, label: str, **having: str) -> tuple[Form, tuple[str, str]]:
        """The form with this button, and fields of these values."""
        for form in self.forms:
            for name, value, said in form.buttons:
                if said == label and having.items() <= dict(form.fields).items():
                    return form, (name, value)
        raise AssertionError(f"no button {label!r} with {having} on {self.path}")

    def has_button(self, label: str) -> bool:
        return any(said == label for form in self.forms for _, _, said in form.buttons)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        if tag not in VOID:
            self._open.append(tag)
        self.handlers += [name for name in found if name.startswith("on") or name == "style"]
        match tag:
            case "a" if found.get("href"):
                self.links.append(str(found["href"]))
            case "script":
                self.scripts.append(found)
            case "form":
                self._form = Form(found.get("action") or "", (found.get("method") or "get").lower())
                self.forms.append(self._form)
            case "input" | "textarea" | "select":
                self._take(tag, found)
            case "option" if self._form and self._select and "selected" in found:
                self._form.fields.append((self._select, found.get("value") or ""))
            case "button" if self._form:
                self._form.buttons.append((found.get("name") or "", found.get("value") or "", ""))
            case _:
                pass

    def _take(self, tag: str, found: dict[str, str | None]) -> None:
        name = found.get("name")
        if not name:
            return
        self.fields[name] = found
        self._select = name if tag == "select" else None
        is_box = found.get("type") in {"checkbox", "radio"}
        if self._form and tag == "input" and (not is_box or "checked" in found):
            self._form.fields.append((name, found.get("value") or ""))

    def handle_endtag(self, tag: str) -> None:
        if tag in self._open:
            while self._open.pop() != tag:
                pass
        if tag == "form":
            self._form = None

    def handle_data(self, data: str) -> None:
        if "button" in self._open and self._form and self._form.buttons:
            name, value, said = self._form.buttons[-1]
            self._form.buttons[-1] = (name, value, f"{said} {data}".strip())
        if "textarea" in self._open and self._form:
            names = [name for name, found in self.fields.items() if found]
            self._form.fields.append((names[-1], data))
        if not {"script", "style"} & set(self._open):
            self.texts.append(data)


class Reader:
    """One of them, with the cookies they were given."""

    def __init__(self, client: httpx2.AsyncClient) -> None:
        self.client = client

    async def open(self, path: str, **query: Any) -> Page:
        answer = await self.client.get(
            path + (f"?{urlencode(query)}" if query else ""), follow_redirects=True
        )
        return Page(answer)

    async def send(
        self, page: Page, button: str, values: dict[str, Any] | None = None, **having: str
    ) -> Page:
        """Press a button; `values` is what was typed or ticked before. Gives the page it leads to."""
        form, pressed = page.form(button, **having)
        typed = values or {}
        pairs = [(name, value) for name, value in form.fields if name not in typed]
        for name, value in typed.items():
            several = cast("list[Any]", value) if isinstance(value, list) else [value]
            pairs += [(name, str(one)) for one in several]
        body = urlencode([*pairs, pressed])
        target = urljoin(page.address, form.action) if form.action else page.address
        headers = {"Content-Type": "application/x-www-form-urlencoded", "Sec-Fetch-Site": "same-origin"}
        answer = await self.client.post(target, content=body, headers=headers)
        if answer.is_redirect:
            answer = await self.client.get(answer.headers["location"], follow_redirects=True)
        return Page(answer)


def inside(link: str) -> bool:
    parts = urlsplit(link)
    return not parts.scheme and not parts.netloc and bool(parts.path)
