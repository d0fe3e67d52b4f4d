"""The administrative trains, and the operations on manifests, entries, runs and dead letters.

startup             recover lost runs, retire and seed manifests when a server starts
seeding             write the manifests that code declares to the database
runtime             create and delete manifests at run time
planning            what seeding would change (`trax plan`)
cycle               one cycle of the manifest manager, and the watchdog
manifest_manager    write entries for due manifests; reap stale runs
entries             insert entries for manifests
triggers            run a manifest by hand
activation          run a dormant dependent from a run of its parent
job_dispatcher      admit queued entries within the limits
parking             park entries that no live worker accepts
hand_off            write the results of submitting runs
finishing           write the results of runs; retry, or write a dead letter
endings             apply run results to manifests
reaping             count runs that failed from outside as failures
policies            retry policies and decision rules from settings and code
resolutions         requeue and acknowledge dead letters
withdrawal          cancel queued entries and runs
dead_letter_cleanup, metadata_cleanup   delete old records
recording           the record of an administrative cycle
why, why_queued     why a manifest, an entry or a run does not start (`trax why`)
overview            numbers and charts of the dashboard
doctor              problems of the database (`trax db doctor`)
"""
