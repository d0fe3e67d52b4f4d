"""GO: which entries may start now.

capacity    which entries fit under the limits
"""
