"""GO: which entries may start now, and who gets them.

capacity    which entries fit under the limits
routing     who executes a train
submit      what a submitter is, is given and answers
calling     one call of a submitter, which may hang or fail
"""
