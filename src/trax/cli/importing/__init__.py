"""Convert jobs of other schedulers into manifests. No database is written.

foreign      one job of another scheduler, and its schedule here
crontab      lines of a crontab                  cron_rules   when cron would run them
celery_beat  the beat schedule of a Celery app
apscheduler  the job store of APScheduler 3      inert        read a pickle without running it
                                                 trigger      its triggers, as schedules
days         cron for a day of the month and a weekday that must both match
comparing    compare the next run times of both sides
module       the manifests as a Python module
plan         the manifests as a table, with the differences
"""
