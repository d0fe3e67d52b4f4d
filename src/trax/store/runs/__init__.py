"""Runs (table `metadata`) and their log lines (table `log`): one row for each attempt.

claim.py      claim pending runs for a worker, by priority or by id
hand_over.py  the outbox: pending runs of remote submitters
metadata.py   insert, finish, cancel and read runs
run_log.py    progress, log lines and cancel requests
rescue.py     end runs that timed out, went stale or lost their worker
cleanup.py    delete old runs
run_lists.py  list, page and count runs
"""
