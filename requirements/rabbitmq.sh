#!/bin/sh
# RabbitMQ, for the tests that have Celery use it: installed where that is possible, else it is said how.
# Without it these tests are skipped; with TRAX_REQUIRE_RABBITMQ=1, as in CI, they fail.
server=/usr/lib/rabbitmq/bin/rabbitmq-server
. "$(dirname "$0")/install.sh"

if [ -x "$server" ]; then exit 0; fi

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "installing RabbitMQ, for the tests of Celery with it …"
    install_and_start_nothing rabbitmq-server && test -x "$server" && exit 0
fi

echo "There is no RabbitMQ here, so no test can have Celery use it. Install it: apt-get install rabbitmq-server" >&2
