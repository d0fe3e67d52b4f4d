"""Decide which entries may start now and where they run, and call submitters.

capacity    which entries fit under the limits
routing     which submitter executes a train
fleet       which trains and groups live workers accept
placing     assign admitted entries to the worker at the gate
submit      the Submitter protocol: Submission, Refused, results
calling     one call of a submitter, which may hang or fail
"""
