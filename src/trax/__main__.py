"""`python -m trax`: the same as the command `trax`."""

from __future__ import annotations

from trax.cli import main

if __name__ == "__main__":
    main()
