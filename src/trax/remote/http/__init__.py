"""Run jobs in processes that serve an HTTP endpoint, with or without a database of their own.

Server side
workers.py   `HttpWorkers`, the submitter
client.py    signed calls of an endpoint, retried

Worker side
endpoint.py  `HttpEndpoint`: execute runs, or stream them to the caller
requests.py  verify a request, read its body within limits, respond

Both
signing.py   sign and verify calls and responses with a shared secret
protocol.py  events and outcomes of a run as JSON lines
"""
