# Read by the scripts beside it. A test starts the server that it needs: installing starts none, neither now nor with the machine.
# install_and_start_nothing PACKAGE
install_and_start_nothing() {
    policy=/usr/sbin/policy-rc.d
    if [ -e "$policy" ]; then
        "$policy" "$1" start >/dev/null 2>&1
        if [ $? != 101 ]; then return 1; fi # this machine wants its services started, and that is not ours to change
    else
        trap 'rm -f "$policy"' EXIT
        trap 'exit 1' HUP INT TERM
        printf '#!/bin/sh\nexit 101\n' >"$policy" && chmod 755 "$policy" || return 1
    fi
    apt-get update -qq && apt-get install -y -qq --no-install-recommends "$1" >/dev/null || return 1
    if command -v systemctl >/dev/null; then
        systemctl disable --quiet "$1.service" 2>/dev/null
    fi
}
