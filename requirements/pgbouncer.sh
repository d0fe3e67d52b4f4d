#!/bin/sh
# PgBouncer, for the tests behind a pooler: installed where that is possible, else it is said how.
# Without it these tests are skipped; with TRAX_REQUIRE_PGBOUNCER=1, as in CI, they fail.
program=/usr/sbin/pgbouncer
. "$(dirname "$0")/install.sh"

if [ -x "$program" ]; then exit 0; fi

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "installing PgBouncer, for the tests behind a pooler …"
    install_and_start_nothing pgbouncer && test -x "$program" && exit 0
fi

echo "There is no PgBouncer here, so no test can use a pooler. Install it: apt-get install pgbouncer" >&2
