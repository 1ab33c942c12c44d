#!/usr/bin/env bash
# Push one snapshot of one service with curl, for example from cron.
#
#   examples/push.sh MESH NAMESPACE NAME REQUESTS_PER_SECOND ERROR_RATE P99_SECONDS
#
# TAGAE_URL is the service (http://127.0.0.1:8000); TAGAE_TOKEN_FILE has a token with the scope "write", if it needs one.
set -euo pipefail
[ $# -eq 6 ] || { sed -n 4p "$0" >&2; exit 2; }
mesh=$1 namespace=$2 name=$3 rate=$4 errors=$5 p99=$6

snapshot=$(cat <<JSON
{
  "observed_at": "$(date -u +%Y-%m-%dT%H:%M:%SZ)",
  "services": [
    {
      "namespace": "$namespace",
      "name": "$name",
      "metrics": {"request_rate": $rate, "error_rate": $errors, "p99_latency": $p99}
    }
  ]
}
JSON
)

# Print curl's configuration with the token. It goes through a pipe: everyone on this machine can read command lines.
login() {
  [ -z "${TAGAE_TOKEN_FILE:-}" ] || printf 'header = "Authorization: Bearer %s"\n' "$(cat "$TAGAE_TOKEN_FILE")"
}

# curl tries again after 408, 429, 503 and 504, as long as Retry-After says. A repeated snapshot counts once.
login | curl --config - --silent --show-error --fail-with-body --retry 10 --retry-max-time 60 --retry-connrefused \
  --header 'Content-Type: application/json' --data "$snapshot" \
  "${TAGAE_URL:-http://127.0.0.1:8000}/v1/meshes/$mesh/snapshots"
echo
