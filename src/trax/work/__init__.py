"""DO: slots that runs are executed in.

pool        keeps so many runs going at once, and collects how they ended
running     one of them, and how to stop it
deadlines   stops what takes too long: one timer for all
watch       says whose code holds up the event loop

processes   where cpu trains run: so many at most
process     one of them, seen from the worker
child       the same, seen from inside
messages    what the two say to each other
reference   how a process finds a train
"""
