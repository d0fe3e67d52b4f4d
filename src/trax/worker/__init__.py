"""Run jobs: claim runs, execute them in slots, write results, send heartbeats.

app_context.py   what resources, loops and tests share; counters; telemetry; the work filter of a worker
entry.py         `wait` of the entries that `app.queue` returns
worker.py        claim runs and execute them in slots
dispatcher.py    the job dispatcher of this process: its visits to the gate
active_run.py    one active run: its job, its deadline, its progress
pool.py          the slots: limited runs at once, the backlog of those that wait, results
deadlines.py     stop runs that exceed their time limit; log those that do not stop
job_runner.py    execute one claimed run
recorded_run.py  `app.run`: execute here and now, or in a remote process, with a record
run_limits.py    how many `app.run` calls execute at once
results.py       write results in batches, then call hooks
hooks.py         hooks of the app and of its trains
run_log.py       progress and log lines of active runs
capture.py       capture log lines of runs; format and limit log lines
heartbeat.py     the worker's row and its heartbeat; the identity of this process; a watch of its event loop
duties.py        a duty, and who wakes whom; those of a worker: claim, finish, heartbeat
loop.py          one background loop; the duties of a process as loops; stop signals

processes.py     processes for cpu trains, worker side
child.py         the same, child side
messages.py      the messages between both

otel.py          OpenTelemetry spans and metrics
"""
