"""Trains to declare schedules for, and what tests ask about the outcome."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import BaseModel

from trax.records.schedule import Interval
from trax.train import train_of

if TYPE_CHECKING:
    from trax.schedule.builder import Declarations
    from trax.schedule.declaration import Declaration, GroupDeclaration

FIVE_MINUTES = Interval(seconds=300)


class Table(BaseModel):
    table: str


class Special(Table):
    reason: str = ""


class Nothing(BaseModel):
    pass


@train_of
async def sync(job: Table) -> str:
    return job.table


@train_of
async def publish(job: Nothing) -> Nothing:
    return job


USERS, ORDERS, NOTHING = Table(table="users"), Table(table="orders"), Nothing()


def manifests(declarations: Declarations) -> dict[str, Declaration]:
    return {manifest.external_id: manifest for manifest in declarations.timetable().manifests}


def groups(declarations: Declarations) -> dict[str, GroupDeclaration]:
    return {group.name: group for group in declarations.timetable().groups}


def parents(declarations: Declarations) -> dict[str, str | None]:
    return {external_id: manifest.depends_on for external_id, manifest in manifests(declarations).items()}
