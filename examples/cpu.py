"""Work that computes: each run has a process to itself, which imports this script again."""

import asyncio
import os

from trax import Trax

app = Trax("memory://")


@app.train(cpu=True)
def primes_below(most: int) -> int:
    found = [number for number in range(2, most) if all(number % divisor for divisor in range(2, number))]
    print(f"{len(found)} primes below {most}, counted outside of process {os.getppid()}", flush=True)
    return len(found)


async def main() -> None:
    async with app:
        entry = await app.queue(primes_below, 1000)
        run = await entry.wait()
        print(f"the record of run {run.id}: {run.state}, {run.output}")


if __name__ == "__main__":
    asyncio.run(main())
