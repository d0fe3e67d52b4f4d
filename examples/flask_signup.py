"""A Flask app queues a mail from blocking code, once for each address, however often the button is pressed.

Serve it with `flask --app flask_signup run`, and run the mails in another process:
`trax run flask_signup.py:jobs`. Executed as a script it tries itself out.
"""

from __future__ import annotations

import asyncio

from flask import Flask, request
from pydantic import BaseModel

from trax import Metadata, Trax

web = Flask(__name__)
jobs = Trax("sqlite:///signup.db")


class Welcome(BaseModel):
    address: str


@jobs.train(max_attempts=5, group="mail")
def send_welcome(mail: Welcome) -> str:
    return f"Welcome, {mail.address}!"


jobs.group("mail", max_active_jobs=2)


@web.post("/signup")
def sign_up() -> tuple[dict[str, int], int]:
    address = request.form["address"]
    entry = jobs.sync.queue(send_welcome, Welcome(address=address), unique=address)
    return {"entry": entry.id}, 202


async def wait_for(entry_id: int) -> Metadata:
    """What `trax run` does in its own process, until this mail is sent."""
    async with jobs:
        entry = await jobs.work_queue.get(entry_id)
        return await entry.wait(timeout=30)


def try_out() -> None:
    client = web.test_client()
    answers = [client.post("/signup", data={"address": "ada@example.org"}) for _ in range(2)]
    entries = {answer.get_json()["entry"] for answer in answers}
    print(f"asked twice, queued {len(entries)} mail")

    run = asyncio.run(wait_for(entries.pop()))
    print(f"{run.state}: {run.output}")


if __name__ == "__main__":
    try_out()
