// A snapshot of rows in JSON, and the columns that are read from it.
#pragma once

#include <cstdint>

namespace tagae {

struct JsonRows {
    int64_t length, most_services, most_calls, slots;  // the arrays have room for these
    int64_t services, calls;                           // out: how many were read
    double largest;                                    // value of any number
    const char* body;                                  // a NUL follows it
    // Lines with the keys of the document, a service, its metrics, its signals, and a call; a quotation mark ends each key.
    // Those of the document are the time, services, calls, changes, policies and version; of a service, namespace, name,
    // metrics and signals. The first two of a call are its ends.
    const char* keys;
    int64_t* spans;              // out, [3, 2]: start and stop of the time, changes and policies; 0 if missing
    char* ids;                   // out: `namespace/name` and a line break for each service
    int64_t* id_starts;          // [services + 1]; the first is 0
    int32_t* places;             // [slots], for the search of ids
    float *metrics, *signals;    // out, [services, keys], NaN where missing or null
    int64_t *sources, *destinations;
    float* call_metrics;
};

}  // namespace tagae
