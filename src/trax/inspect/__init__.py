"""Inspect an app and its database, without changing anything.

status.py   the status of all servers (`trax status`)
why.py      why a manifest, an entry or a run does not start (`trax why`)
plan.py     what starting this code would change (`trax plan`)
lint.py     problems of an app, from its code (`trax lint`)
doctor.py   problems of the database (`trax db doctor`)
storage.py  its findings about tables and indexes: sizes, vacuum, missing indexes

Verify
verify.py              what must not be in the history (`trax verify`)
history_reader.py      read it chunk by chunk, and collect the findings
run_pass.py            one pass over the runs, which feeds the checks
limits_in_force.py     which limits were in force when
sweep.py               how many runs were active together
job_sweep.py           the attempts of each job, and the order of the queue
record_checks.py       single records: impossible states, lost entries, mismatches, orphans
missed_occurrences.py  schedules that did not run
waiting_jobs.py        jobs that wait longer than anything explains
present_checks.py      what is wrong now

Simulate
simulate.py          the simulated runs of an app's manifests (`trax simulate`)
forecast_figures.py  their lateness, the use of limits, the duration of chains
gantt.py             a chart of one simulated day
simulation.py        its virtual clock and order of events; the turns of duties
simulated_store.py   its database in memory
virtual_server.py    a server of a simulation
simulated_worker.py  its worker, in which the ends of runs are drawn
"""
