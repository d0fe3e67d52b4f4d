"""The verbs that decide and write: one file per verb, the administrative trains among them.

Settings and routes
live_settings.py     the settings in force: code, environment, and edits of operators
open_store.py        open the store on first use
parameters.py        encode inputs and outputs as JSON, within the limits of the settings
actor.py             `trax.acting`: who changes something, for the audit log
submitter.py         the Submitter protocol; the submitters of an app and the trains routed to them

Into the queue
seed_groups.py       write the groups that code declares; keep operators' values; retire groups of no use
seed.py              seed and rename the manifests that code declares; retire undeclared ones
schedule.py          what a server does first: recover, rename, retire, seed; create and delete at run time
manifest_manager.py  one cycle: queue due manifests; fail runs that timed out, went stale or lost their worker
enqueue.py           queue jobs for callers
trigger.py           queue a manifest by hand; activate a dormant dependent

Through the gate
capacity.py          which entries fit under the limits; pure
job_dispatcher.py    admit queued entries within the limits
routing.py           where a job can run: routes, what live workers accept; park what none accepts

To the end
finish.py            write the results of runs, and what follows: retry, snooze, give up, wake dependents
retry.py             retry policies from settings and code
rescue.py            recover runs of lost workers; count them and stale runs as failures; the watchdog
cancel.py            cancel runs, and withdraw queued entries
dead_letters.py      requeue and acknowledge dead letters; delete old ones
metadata_cleanup.py  delete old records
"""
