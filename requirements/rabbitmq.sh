#!/bin/sh
# RabbitMQ, for the tests that have Celery use it: installed where that is possible, else it is said how.
# Without it these tests are skipped; with TRAX_REQUIRE_RABBITMQ=1, as in CI, they fail.
server=/usr/lib/rabbitmq/bin/rabbitmq-server
policy=/usr/sbin/policy-rc.d

# The tests start a broker of their own, so installing starts none: neither now nor with the machine.
install_and_start_nothing() {
    if [ -e "$policy" ]; then
        "$policy" rabbitmq-server start >/dev/null 2>&1
        if [ $? != 101 ]; then return 1; fi # this machine wants its services started, and that is not ours to change
    else
        trap 'rm -f "$policy"' EXIT
        trap 'exit 1' HUP INT TERM
        printf '#!/bin/sh\nexit 101\n' >"$policy" && chmod 755 "$policy" || return 1
    fi
    apt-get update -qq && apt-get install -y -qq --no-install-recommends rabbitmq-server >/dev/null || return 1
    if command -v systemctl >/dev/null; then
        systemctl disable --quiet rabbitmq-server.service 2>/dev/null
    fi
    test -x "$server"
}

if [ -x "$server" ]; then exit 0; fi

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "installing RabbitMQ, for the tests of Celery with it …"
    install_and_start_nothing && exit 0
fi

echo "There is no RabbitMQ here, so no test can have Celery use it. Install it: apt-get install rabbitmq-server" >&2
