"""Stands in for the process that speaks to Ray: answers lines as the runs in them ask for it."""

from __future__ import annotations

import json
import os
import sys
from threading import Event
from typing import Any


def answer(verb: str, what: list[Any]) -> dict[str, Any]:
    wishes = [str(wish) for run in what if verb == "hand_over" for wish in run[1]]
    if "die" in wishes:
        os._exit(1)
    if "hang" in wishes:
        Event().wait()
    if "fail" in wishes:
        return {"failed": "ValueError: no"}
    refused = {str(what[0][0]): "too much"} if "refuse" in wishes else {}
    return {"refused": refused}


def main() -> None:
    sys.stdin.readline()
    for line in sys.stdin:
        verb, what = json.loads(line)
        response = answer(verb, what)
        if "refused" in response:
            print(json.dumps({"problem": [7, f"{verb} by {os.getpid()}"]}))  # noqa: T201
        print(json.dumps(response), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
