"""DO: slots that runs are executed in.

pool    keeps so many runs going at once, and collects how they ended
"""
