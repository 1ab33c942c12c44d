"""The service graph metrics that OpenTelemetry's connector and Tempo export."""

from serve_app.collect.prometheus.query import Dialect, Query

VIRTUAL = "virtual_node"  # connection type of a call if one end sends no spans; also the label that says which end
CLIENT_END, SERVER_END = "client", "server"  # values of that label
USER = "user"  # the virtual client of all requests from outside
UNKNOWN = "unknown"  # the virtual server of all calls without a callee name
OWN_MEANING = ("beyla", "obi")  # sources that set the connection type also for calls between services
_METRIC = "traces_service_graph_request"


def opentelemetry() -> Dialect:
    """The service graph metrics that OpenTelemetry's connector and Tempo export [doc].

    ``client`` and ``server`` have no namespace by default. A virtual node stands for an end of a call that sends no
    spans: the server is a service, for example a database, that only its callers measure; the client is outside the
    mesh. The connection type decides, since services may have the same names as virtual nodes. Series of one pair with
    different connection types are different requests.
    """
    server, client = ("=default", "server"), ("=default", "client")
    pair = client + server
    return Dialect(
        "opentelemetry",
        {
            "requests": Query(f"sum by (server) ({_rate('total', *_SERVERS)})", server),
            "failures": Query(f"sum by (server) ({_rate('failed_total', *_SERVERS)}) > 0", server),
            # Virtual servers have no durations of their own, but zeros.
            "buckets": Query(
                f"sum by (server, le) ({_rate('server_seconds_bucket', *_REAL, *_CLIENTS)})"
                f" or sum by (server, le) ({_rate('client_seconds_bucket', *_VIRTUAL_SERVERS)})",
                server,
            ),
        },
        {
            "requests": Query(
                f"sum by (client, server) ({_rate('total', *_CALLS)}) unless on (client) ({_outside_by_name()})", pair
            ),
            "failures": Query(f"sum by (client, server) ({_rate('failed_total', *_CALLS)}) > 0", pair),
            "buckets": Query(f"sum by (client, server, le) ({_rate('client_seconds_bucket', *_CALLS)})", pair),
        },
        (f"{_METRIC}_total{{$match}}",),
    )


# Matchers of disjoint series. Without the virtual end's label, the name says which end it is.
_REAL = (f'connection_type!="{VIRTUAL}"', f'connection_type="{VIRTUAL}",source=~"{"|".join(OWN_MEANING)}"')
_OF_VIRTUAL = f'connection_type="{VIRTUAL}",source!~"{"|".join(OWN_MEANING)}"'
_CLIENTS = (
    f'{_OF_VIRTUAL},{VIRTUAL}="{CLIENT_END}"',
    f'{_OF_VIRTUAL},{VIRTUAL}!~"{CLIENT_END}|{SERVER_END}",client="{USER}"',
)
_VIRTUAL_SERVERS = (
    f'{_OF_VIRTUAL},{VIRTUAL}="{SERVER_END}",server!="{UNKNOWN}"',
    f'{_OF_VIRTUAL},{VIRTUAL}!~"{CLIENT_END}|{SERVER_END}",client!="{USER}",server!="{UNKNOWN}"',
)
_CALLS = (*_REAL, *_VIRTUAL_SERVERS)
_SERVERS = (*_REAL, f'{_OF_VIRTUAL},server!="{UNKNOWN}"')


def _rate(metric: str, *matchers: str) -> str:
    return " or ".join(f"rate({_METRIC}_{metric}{{$match {matcher}}}[$window])" for matcher in matchers)


def _outside_by_name() -> str:
    """Return the callers that are not services in versions without connection types: the names of virtual nodes that
    are never called. Empty if any series has a connection type."""
    names = f"{USER}|{UNKNOWN}"
    virtual_servers = f'count by (server) ({_METRIC}_total{{$match server=~"{names}"}})'
    with_calls = f'label_replace({virtual_servers}, "client", "$1", "server", "(.*)")'
    return (
        f'count by (client) ({_METRIC}_total{{$match client=~"{names}"}}) unless on (client) {with_calls}'
        f' unless on () count({_METRIC}_total{{$match connection_type!=""}})'
    )
