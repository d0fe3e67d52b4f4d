"""The command `list` of a noun: its options and columns, as the noun describes them."""

from __future__ import annotations

import inspect
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from trax.cli.operators import (
    ID_RANGE,
    AsJson,
    CountOnly,
    DatabaseUrl,
    Limit,
    check_duration,
    moment_of,
    operate,
    parse_moment,
)
from trax.cli.output import say, show_json, show_list
from trax.records.nouns import AUDIT

if TYPE_CHECKING:
    from cyclopts import App

    from trax.app.app import Trax
    from trax.records.nouns import Filter, Noun


def add_list(commands: App, noun: Noun, more_help: str = "") -> None:
    """Add the command that lists, pages and counts the records of a noun."""
    options = list_options(noun)
    defaults = {name: default for name, (_, default) in options.items()}

    def list_(**given: Any) -> None:
        show_records(noun, **{**defaults, **given})

    list_.__doc__ = noun.summary + more_help
    list_.__annotations__ = {name: annotation for name, (annotation, _) in options.items()}
    parameters = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        for name, (annotation, default) in options.items()
    ]
    list_.__signature__ = inspect.Signature(parameters)  # pyright: ignore[reportFunctionMemberAccess]
    commands.command(list_, name="list")


def list_options(noun: Noun) -> dict[str, tuple[Any, Any]]:
    """The options of the command, each with its default."""
    return {
        **{name: (option_of(each), each.default) for name, each in noun.filters_by_name.items()},
        "before": (_cursor(noun, "before"), None),
        "after": (_cursor(noun, "after"), None),
        "limit": (Limit, 50),
        "count": (CountOnly, False),
        "database_url": (DatabaseUrl, None),
        "as_json": (AsJson, False),
    }


def option_of(described: Filter) -> Any:
    """The option of one filter, by the type of its values."""
    kind = described.kind
    if kind is datetime:
        kind = datetime | timedelta
    is_optional = kind is not bool or described.default is None
    return Annotated[kind | None if is_optional else kind, parameter_of(described)]


def parameter_of(described: Filter) -> Parameter:
    """The name, help and parsing of the option of a filter."""
    name, about = f"--{described.name.replace('_', '-')}", described.option_help or described.help
    if described.choices:
        return Parameter(name, help=about, name_transform=str.lower)
    if described.kind is datetime:
        return Parameter(name, help=about, converter=parse_moment, validator=check_duration)
    if described.kind is int:
        return Parameter(name, help=about, validator=ID_RANGE)
    if described.kind is bool:
        without = described.negative or (None if described.default is None else ())
        return Parameter(name, help=about, negative=without)
    return Parameter(name, help=about)


def _cursor(noun: Noun, name: str) -> Any:
    """The option `--before` or `--after`; its help says which of them gives the next page."""
    keys, key = ("names", "name") if noun.is_by_name else ("ids", "id")
    is_next = (name == "after") == noun.is_ascending
    direction = {"before": "lower", "after": "higher"}[name]
    about = f"Only names {name} this one." if noun.is_by_name else f"Only {direction} {keys}."
    if is_next:
        about += f" The next page is {name} the last {key} of this one."
    elif not noun.is_ascending:
        about = f"Only {direction} {keys}: newer ones."
    if noun.is_by_name:
        return Annotated[str | None, Parameter(f"--{name}", help=about)]
    return Annotated[int | None, Parameter(f"--{name}", help=about, validator=ID_RANGE)]


def show_records(
    noun: Noun, /, *, database_url: str | None, as_json: bool, count: bool, **options: Any
) -> None:
    """Print a page of the records of a noun, or only their number."""
    filters = {name: options.pop(name) for name in noun.filters_by_name}

    async def load(app: Trax) -> Any:
        resource = getattr(app, noun.name)
        for each in noun.filters_by_name.values():
            if each.kind is datetime:
                filters[each.name] = await moment_of(app, filters[each.name])
        if count:
            return await resource.count(**filters)
        return await resource.list(**options, brief=not as_json, **filters)

    found = operate(database_url, load)
    if not count:
        show_list(found, [column.name for column in noun.command_columns(filters)], as_json=as_json)
    elif as_json:
        show_json({"count": found.number, "exact": found.exact})
    else:
        say(str(found))


Since = Annotated[datetime | timedelta | None, parameter_of(AUDIT.filters_by_name["since"])]
Until = Annotated[datetime | timedelta | None, parameter_of(AUDIT.filters_by_name["until"])]
