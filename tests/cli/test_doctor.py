from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.support import preloaded
from tests.support.preloaded import TRAX

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path


def trax(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return preloaded.run([TRAX, *words], cwd=folder)


def test_the_doctor_exits_by_what_it_found(tmp_path: Path) -> None:
    missing = trax("db", "doctor", folder=tmp_path)
    made_by_asking = list(tmp_path.iterdir())
    trax("db", "migrate", folder=tmp_path)
    well = trax("db", "doctor", folder=tmp_path)
    as_json = trax("db", "doctor", "--json", folder=tmp_path)

    assert (missing.returncode, made_by_asking) == (1, [])
    assert missing.stdout == "WRONG  there are no Trax tables\n       run `trax db migrate`\n"
    assert well.returncode == 0
    assert "ok     the journal mode is wal" in well.stdout
    assert {one["is_wrong"] for one in json.loads(as_json.stdout)["findings"]} == {False}
