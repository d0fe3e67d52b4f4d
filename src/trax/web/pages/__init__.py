"""The pages of the dashboard.

Each module is one noun: its handlers call the app, build values for display (`Listing`, …) and render a
template. Changes are plain HTML forms that post to their own page, then shown again (`rendering.py`).

home.py          `/`: key figures and charts; `/workers`
trains.py        `/trains`: the list, and the form to run one
manifests.py     `/manifests`
groups.py        `/groups`
queue.py         `/queue`
executions.py    `/executions`, with a timeline; `/logs`
dead_letters.py  `/dead-letters`
settings.py      `/settings`, and display preferences
audit.py         `/audit`
login.py         `/login`, `/logout`, `/sessions`

rendering.py     templates, static files, preferences, form actions and their messages
listing.py       filter forms and pagination of lists
forms.py         form fields from a JSON Schema, and their values
formats.py       formatting and parsing of values; JSON with colours
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
    manifests,
    queue,
    settings,
    trains,
)

NOUNS = (home, trains, groups, manifests, queue, executions, dead_letters, audit, login, settings)

router = APIRouter(include_in_schema=False)
for noun in NOUNS:
    router.include_router(noun.router)
