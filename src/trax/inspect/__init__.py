"""Inspect an app and its database, without changing anything.

status.py   the status of all servers (`trax status`)
why.py      why a manifest, an entry or a run does not start (`trax why`)
plan.py     what starting this code would change (`trax plan`)
lint.py     problems of an app, from its code (`trax lint`)
doctor.py   problems of the database (`trax db doctor`)
storage.py  its findings about tables and indexes: sizes, vacuum, missing indexes

Verify
verify.py              what must not be in the history (`trax verify`)
limits_in_force.py     which limits were in force when
sweep.py               how many runs were active together
record_checks.py       single records: impossible states, lost entries, orphans
missed_occurrences.py  schedules that did not run

Simulate
simulate.py          the simulated runs of an app's manifests (`trax simulate`)
forecast_figures.py  their lateness, the use of limits, the duration of chains
gantt.py             a chart of one simulated day
simulation.py        its virtual clock and order of events; its duties, and what trains do
simulated_store.py   its database in memory
virtual_server.py    a server of a simulation: the turns of its duties
"""
