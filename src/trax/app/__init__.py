"""The app object and its resources: what a user holds.

app.py           `Trax`: declare trains and schedules, enqueue, run, start and stop
manifests.py     `app.manifests`: schedule, trigger, enable, disable, cancel, delete
groups.py        `app.groups`: limits, priorities, trigger, cancel
queue.py         `app.queue`, `app.queue_many`: validate jobs and enqueue them; the same for a train by name
sync.py          `app.sync`: queue, trigger and run for blocking code
work_queue.py    `app.work_queue`: entries that wait
workers.py       `app.workers`: the processes that run jobs
executions.py    `app.executions`: runs, their logs, cancel, rerun; `app.logs`
dead_letters.py  `app.dead_letters`: requeue, acknowledge
settings.py      `app.settings`: settings that operators edit
audit.py         `app.audit`: what operators changed, and undo
sessions.py      `app.sessions`: sign-ins to the dashboard
secrets.py       `trax secrets rotate`: encrypt stored secrets with the first key
stats.py         `app.stats`: numbers for the dashboard
lists.py         validated lists, pages and counts, shared by the resources
"""
