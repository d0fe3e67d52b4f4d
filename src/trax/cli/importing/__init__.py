"""MOVING IN: what other schedulers were told, as manifests of ours. Nothing is written to any database.

foreign      one schedule of theirs, and what it is here
crontab      lines of a crontab                  cron_rules   when cron itself would run them
celery_beat  the beat schedule of a Celery app
apscheduler  the job store of APScheduler 3      inert        what a pickle says, without running it
                                                 trigger      its triggers, in our words
days         a day of the month and a day of the week, where both must match
comparing    the next moments of both sides
module       the manifests as a Python module
plan         the manifests as a table, with what differs, in words
"""
