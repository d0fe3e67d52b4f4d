"""The pages of the dashboard.

Each module is one noun: its handlers ask the app, make values of what it says (`Listing`, `Course`, …) and
show a template. Changes are plain forms, sent to the page they are on, which is then shown again (`acts.py`).

rendering.py   templates and what all of them know       listing.py    pages of long lists
acts.py        forms, done in the visitor's name         messages.py   what is said once afterwards
fields.py      a form from a JSON Schema                 filling.py    what is typed into it
words.py       values spelled for people                 taste.py      what a viewer likes
"""

from __future__ import annotations

from fastapi import APIRouter

from trax.web.pages import (
    audit,
    dead_letters,
    executions,
    groups,
    home,
    login,
    logs,
    manifests,
    queue,
    sessions,
    settings,
    trains,
    workers,
)

NOUNS = (
    home,
    trains,
    groups,
    manifests,
    queue,
    executions,
    dead_letters,
    workers,
    logs,
    audit,
    sessions,
    settings,
    login,
)

router = APIRouter(include_in_schema=False)
for noun in NOUNS:
    router.include_router(noun.router)
