"""The app object and the wiring: the only place that knows all parts.

app.py          `Trax`, what a user holds
recorded.py     a run here and now, with its record and hooks
sync.py         `app.sync`, the same verbs for blocking code
executions.py   `app.executions`
opening.py      the store, opened when first needed
"""
