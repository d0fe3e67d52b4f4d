"""The app object, its resources, and the processes that run it.

What a user holds
app.py              `Trax`
queueing.py         `app.queue`, `app.queue_many`; wishes.py: their arguments, validated
bare.py             enqueue a train by name, without its code
entry.py            the entry that `app.queue` returns; waiting.py: how it waits for its job
recorded.py         `app.run`: execute here and now, with a record and hooks
by_name.py          the same for a train given by its name
limits.py           how many `app.run` calls execute at once
far.py              `app.run(…, on=remote)`: execute in a process without a database
sync.py             `app.sync`: queue, trigger and run for blocking code
manifests.py        `app.manifests`
groups.py           `app.groups`
executions.py       `app.executions`; withdrawing.py: withdraw cancelled runs from submitters
work_queue.py       `app.work_queue`
dead_letters.py     `app.dead_letters`
workers.py          `app.workers`
settings.py         `app.settings`; live_settings.py: the settings in force
audit.py            `app.audit`; acting.py: `trax.acting`, who changes something
sessions.py         `app.sessions`: sign-ins to the dashboard
stats.py            `app.stats`
logs.py             `app.logs`
why.py              `app.why`
asked_lists.py      validated lists, pages and counts
checks.py, words.py argument validation

What an app is made of
parts.py            everything the app object and its processes share
opening.py          the store, opened on first use
parameters.py       input and output codecs, with the limits of the settings
hooks.py            hooks of the app and of its trains
activating.py       `current().activate`
identity.py         host, environment and instance of this process
extras.py           import optional dependencies
telemetry/          OpenTelemetry spans and metrics

Run it
roles.py            all, scheduler or worker: from start to stop
startup.py          migrate, seed and retire at start
duties.py           the background loops and what one turn of each does
loop.py             one background loop
listen.py           LISTEN connection: other processes wake the loops of this one
signals.py          SIGTERM and SIGINT
processes.py        several worker processes under one parent
collector.py        garbage collector settings of a server
worker.py           claim runs and execute them in slots; takes.py: which trains and groups
job.py              execute one claimed run; outcomes.py: its result
endings.py          write results, then call hooks
notebook.py         log lines and progress of runs; capture.py: from logging; progress.py: of one run
presence.py         the worker's row and its heartbeat
handing_over.py     hand runs over to a submitter; open_submitters.py: their connections
receiving.py        claim by id what a submitter handed to this process

Look at it
odometer.py         counters of this process
status.py           the status of all servers
watching.py         what has changed, for live pages
timing.py           when a manifest runs next, in detail
linting.py          `trax lint`; lint_queued.py: `trax lint --queued`
planning.py         `trax plan`
doctor.py           `trax db doctor`
secrets.py          `trax secrets rotate`
log_formats.py      log records as text or JSON lines
log_limit.py        limit repeated log lines
"""
