"""ORDER: the trains that run the railway, and the few steps they share.

manifest_manager   what is due goes to the work queue
seeding            what code declares comes into the database
endings            the end of a run, written to its manifest
entries            entries for manifests
why                why a manifest does not run, or an entry waits (why_queued)
planning           what seeding would change
doctor             what is well with the database, and what is not
"""
