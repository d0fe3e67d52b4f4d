"""Convert jobs of other schedulers into manifests. No database is written.

crontab.py      lines of a crontab
cron_rules.py   when cron would run them; days of the month and of the week
celery_beat.py  the beat schedule of a Celery app
apscheduler.py  the job store of APScheduler 3, read without running its pickles
foreign.py      one job of another scheduler, its schedule here, and the run times of both
output.py       the manifests as a table with remarks, or as a Python module
"""
