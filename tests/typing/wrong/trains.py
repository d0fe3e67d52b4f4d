from __future__ import annotations

from typing import assert_type

from trax.train import Done, Junction, Outcome, Train, junction, short_circuit, train


class SyncTable: ...


class Rows: ...


class Report: ...


@junction
async def fetch(job: SyncTable) -> Rows:
    raise NotImplementedError


@junction
def load(rows: Rows, job: SyncTable) -> Report:
    raise NotImplementedError


def plain(report: Report) -> None:
    raise NotImplementedError


assert_type(fetch, Junction[SyncTable, Report])  # error: reportAssertTypeFailure

no_junction = fetch >> plain  # error: reportOperatorIssue, reportUnknownVariableType
no_function = fetch >> load >> 3  # error: reportOperatorIssue, reportUnknownVariableType
short_circuit(plain)  # error: reportArgumentType

sync_table = train("sync_table", fetch >> load)
other_input: Train[Rows, Report] = sync_table  # error: reportAssignmentType
other_output: Train[SyncTable, Rows] = sync_table  # error: reportAssignmentType

train("misspelt", fetch, prioritty=3)  # error: reportCallIssue
train("priority", fetch, priority="high")  # error: reportArgumentType


async def run() -> None:
    await sync_table.run(Rows())  # error: reportArgumentType
    await sync_table.attempt("text")  # error: reportArgumentType
    sync_table.run_blocking(Report())  # error: reportArgumentType
    await sync_table.run(SyncTable(), cancelation=None)  # error: reportCallIssue
    rows: Rows = await sync_table.run(SyncTable())  # error: reportAssignmentType
    assert rows


def told(outcome: Outcome[Report]) -> str:  # error: reportReturnType
    match outcome:  # error: reportMatchNotExhaustive
        case Done():
            return "done"
