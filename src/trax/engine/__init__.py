"""The verbs that decide and write: one file per verb, the administrative trains among them.

Settings and routes
live_settings.py     the settings in force: code, environment, and edits of operators
open_store.py        open the store on first use
parameters.py        encode inputs and outputs as JSON, within the limits of the settings
actor.py             `trax.acting`: who changes something, for the audit log
routing.py           which submitter executes a train, and what live workers accept
submitter.py         the Submitter protocol

Into the queue
seed.py              write the manifests that code declares, and retire undeclared ones
startup.py           what a server does first: recover, rename, retire, seed
schedule.py          create and delete manifests at run time
cycle.py             run one cycle of the manifest manager; the watchdog
manifest_manager.py  queue due manifests; fail runs that timed out, went stale or lost their worker
enqueue.py           queue jobs for callers
trigger.py           queue a manifest by hand; activate a dormant dependent

Through the gate
capacity.py          which entries fit under the limits; pure
job_dispatcher.py    admit queued entries within the limits
parking.py           park entries that no live worker accepts

To the end
finish.py            write the results of runs, and what follows from them
retry.py             retry policies from settings and code
rescue.py            count runs of lost workers and stale runs as failures
cancel.py            cancel queued entries and runs
dead_letters.py      requeue and acknowledge dead letters; delete old ones
metadata_cleanup.py  delete old records
"""
