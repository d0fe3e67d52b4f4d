"""Manifests (table `manifest`): which train runs when.

manifest_seed.py     write declared manifests: insert, change, rename, link, retire
manifest_due.py      select due manifests, load their states, set when they are due next
manifest_results.py  apply the results of runs; make dependents due
manifest_rows.py     read, list, lock, enable and disable manifests
"""
