#!/bin/sh
# Chromium, for the tests that look at the dashboard: installed where that is possible, else it is said how.
# Without it these tests are skipped; with TRAX_REQUIRE_BROWSER=1, as in CI, they fail.
for name in chromium chromium-browser google-chrome; do
    if command -v "$name" >/dev/null; then exit 0; fi
done

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "installing Chromium, for the tests in a browser …"
    apt-get update -qq && apt-get install -y -qq chromium >/dev/null && exit 0
fi

echo "There is no Chromium here, so no test can look at the dashboard. Install it: apt-get install chromium" >&2
