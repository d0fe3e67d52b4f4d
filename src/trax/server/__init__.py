"""The process of an app: its roles and loops, from start to stop.

roles.py      all, scheduler or worker: start, run and stop the loops of a role
start.py      at start: recover lost runs, retire and seed manifests
duties.py     the duties of a process: manager, dispatcher, watchdog, cleanup, totals
listen.py     the LISTEN connection: other processes wake these loops
watch.py      what has changed, for live pages
processes.py  several worker processes under one parent
"""
