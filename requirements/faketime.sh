#!/bin/sh
# libfaketime, for the tests that step the clock of a process: installed where that is possible, else it is said how.
# Without it these tests are skipped; with TRAX_REQUIRE_FAKETIME=1, as in CI, they fail.
if command -v faketime >/dev/null; then exit 0; fi

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "installing libfaketime, for the tests that step clocks …"
    apt-get update -qq && apt-get install -y -qq --no-install-recommends faketime >/dev/null && exit 0
fi

echo "There is no libfaketime here, so no test can step a clock. Install it: apt-get install faketime" >&2
