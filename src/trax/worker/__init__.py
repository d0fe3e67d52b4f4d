"""Run jobs: claim runs, execute them in slots, write results, send heartbeats.

parts.py         the components that resources, loops and tests share
entry.py         `wait` of the entries that `app.queue` returns
work_filter.py   the trains and groups that a worker accepts
worker.py        claim runs and execute them in slots
active_run.py    one active run: its token, its deadline, its progress
pool.py          the slots: limited runs at once, deadlines, results
watchdog.py      report code that blocks the event loop
job_runner.py    execute one claimed run
plain_run.py     the same for most runs, in one coroutine function for each train
recorded_run.py  `app.run`: execute here and now, or in a remote process, with a record
run_limits.py    how many `app.run` calls execute at once
results.py       write results in batches, then call hooks
hooks.py         hooks of the app and of its trains
run_log.py       progress and log lines of active runs
capture.py       capture log lines of runs; format and limit log lines
heartbeat.py     the worker's row and its heartbeat; the identity of this process
loop.py          one background loop; stop signals
loops.py         the loops of a worker: claim, finish, heartbeat

processes.py     processes for cpu trains, worker side
child.py         the same, child side
messages.py      the messages between both

telemetry.py     find OpenTelemetry providers
otel.py          spans and metrics
"""
