"""The app object and the wiring: the only place that knows all parts.

app.py          `Trax`, what a user holds
recorded.py     a run here and now, with its record and hooks
sync.py         `app.sync`, the same verbs for blocking code
executions.py   `app.executions`; asked_lists.py: its lists, those of entries and those of log lines
sessions.py     `app.sessions`: who is signed in to the dashboard
opening.py      the store, opened when first needed
roles.py        what a process does: all duties, a scheduler's or a worker's; from start to stop
duties.py       each duty as a loop: what a turn does, and when the next is wanted
loop.py         one duty, turn after turn
listen.py       what other processes announce wakes the loops of this one
signals.py      SIGTERM and SIGINT: stop, hurry, now
log_limit.py    lines that strangers can cause: one of a kind in so many seconds
telemetry/      spans and metrics, for processes where OpenTelemetry listens
extras.py       what needs more than the core, imported when asked for
processes.py    several worker processes under one parent
watching.py     what has changed, for those who keep watching; status and odometer: for those who measure
secrets.py      `trax secrets rotate`: what is encrypted, under another key
why.py          `app.why`; planning, linting and doctor: what `trax plan`, `lint` and `db doctor` ask
"""
