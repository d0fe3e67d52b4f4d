"""DO: the slots that runs are executed in.

pool        execute a limited number of runs at once, and collect their results
running     one active run, and how to stop it
deadlines   stop runs that time out: one timer for all
watch       report code that blocks the event loop
claiming    track claims, and find runs that were claimed without an answer
pace        estimate how many runs end during a fetch

processes   the pool of processes for cpu trains
process     one of these processes, worker side
child       one of these processes, child side
messages    the messages between the two
reference   how a process finds a train
"""
