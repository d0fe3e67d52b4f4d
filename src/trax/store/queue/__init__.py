"""The work queue (table `work_queue`): one row for each job that was enqueued.

entry_batches.py  insert the entries of an enqueue call, and those of due manifests
work_queue.py     insert entries, also with a unique key; read them
parking.py        park entries that no live worker can run
requeue.py        put entries back after a run; withdraw queued ones
queue_lists.py    list, page and count entries
"""
