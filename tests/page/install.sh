#!/usr/bin/env bash
# Install the browser for the page's tests if it is missing and permitted. Without it the tests are skipped.
#   install.sh BIN    BIN: the bin folder of the environment that runs the tests
set -euo pipefail
bin=$1
cd "$(dirname "$0")/../.."

if ! command -v chromium >/dev/null; then
    root=()
    [ "$(id -u)" = 0 ] || root=(sudo -n)
    if ! command -v apt-get >/dev/null || ! "${root[@]}" true 2>/dev/null; then
        echo "test-page: no Chromium here, and no apt-get with root; install it yourself to run these tests" >&2
    else
        echo "test-page: installing chromium"
        { "${root[@]}" apt-get update -qq && "${root[@]}" env DEBIAN_FRONTEND=noninteractive \
            apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core >/dev/null; } ||
            echo "test-page: chromium could not be installed; these tests are skipped" >&2
    fi
fi

"$bin/python" -c 'import playwright, axe_playwright_python' 2>/dev/null ||
    "$bin/pip" install --quiet --disable-pip-version-check -c constraints.txt -e '.[page]' ||
    echo "test-page: the extra 'page' could not be installed; these tests are skipped" >&2
