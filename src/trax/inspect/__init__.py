"""Look at an app and its database. Nothing here changes anything.

status.py  the status of all servers (`trax status`)
why.py     why a manifest, an entry or a run does not start (`trax why`)
plan.py    what starting this code would change (`trax plan`)
lint.py    problems of an app, from its code (`trax lint`)
doctor.py  problems of the database (`trax db doctor`)

simulation.py      run the engine on a simulated clock, from a seed
virtual_server.py  a server of a simulation

verify.py              what must not be in the history (`trax verify`)
limits_in_force.py     which limits were in force when
sweep.py               how many runs were active together
record_checks.py       single records: impossible states, lost entries, orphans
missed_occurrences.py  schedules that did not run
"""
