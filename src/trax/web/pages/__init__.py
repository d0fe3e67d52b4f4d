"""The pages of the dashboard.

Each module is one noun: its handlers call the app, build values for display (`Listing`, …) and render a
template. Changes are plain HTML forms that post to their own page, which is then shown again (`acts.py`).

rendering.py     templates and their shared variables      listing.py    pagination of lists
acts.py          form actions, audited                     messages.py   one-time messages after an action
fields.py        form fields from a JSON Schema            filling.py    form texts to values and back
words.py         formatting of values                      spelled.py    parsing of typed values
coloured.py      JSON with syntax colours                  course.py     timeline of an execution
taste.py         display preferences                       assets.py     static files
problem_page.py  error pages
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
