// Channels of services and calls from their metrics: `channel_values` of model/features.py in one pass.
#pragma once

#include "numbers.h"
#include "passes.h"

namespace TAGAE_ISA {

enum Channel { RATE, ERROR, P50, P99, CPU, MEMORY, CONNECTIONS, OWN_TIME, CPU_PER_REQUEST, NODE_CHANNELS };
enum { NODE_METRICS = OWN_TIME, EDGE_METRICS = P99 + 1, WEIGHT = EDGE_METRICS, EDGE_CHANNELS };

TAGAE_INLINE float square(float x) { return x * x; }
TAGAE_INLINE float larger(float a, float b) { return a >= b || a != a ? a : b; }
TAGAE_INLINE float smaller(float a, float b) { return a <= b || a != a ? a : b; }

TAGAE_INLINE float rate_noise(float x, float offset, float interval) {
    return (x + 1.0f / interval) / interval / square(x + offset);
}

TAGAE_INLINE float error_noise(float x, float offset, float n) {
    const float p = (x * n + 0.5f) / (n + 1.0f);
    return p * (1.0f - p) / n * square(1.0f / (p + offset) + 1.0f / (1.0f - p + offset));
}

// What the logarithm is taken of.
TAGAE_INLINE float odds(float x, float offset) { return (x + offset) / (1.0f - x + offset); }

// values = log(values) where observed, else 0.
inline void transform(int64_t count, const uint8_t* observed, float* values) {
    in_vectors(count, [&](int64_t i, auto lanes) {
        const Floats none = {}, found = log(get(values + i, lanes));
        put(values + i, get_mask(observed + i, lanes) ? found : none, lanes);
    });
}

inline void node_channels(const tagae::ChannelPass& f, const double* waited, const double* calls, const double* blind, const double* received) {
    const float* offset = f.node_offsets;
    for (int64_t i = 0; i < f.nodes; ++i) {
        const float* metrics = f.node_features + i * NODE_METRICS;
        const uint8_t* measured = f.node_measured + i * NODE_METRICS;
        float x[NODE_METRICS];
        for (int c = 0; c < NODE_METRICS; ++c) x[c] = smaller(metrics[c], f.largest);
        float* value = f.node + i * NODE_CHANNELS;
        float* noise = f.node_noise + i * NODE_CHANNELS;
        uint8_t* observed = f.node_observed + i * NODE_CHANNELS;
        for (int c = 0; c < NODE_METRICS; ++c) {
            value[c] = c == ERROR ? odds(x[c], offset[c]) : x[c] + offset[c];
            observed[c] = measured[c];
        }
        const float rate = x[RATE], latency = x[P50], busy = larger(rate, 0.05f);
        const double own = double(latency) - waited[i] / double(busy), least = double(0.05f * latency);
        value[OWN_TIME] = float(own >= least || own != own ? own : least) + offset[OWN_TIME];
        const bool is_called = measured[RATE] && rate > 0.05f;
        observed[OWN_TIME] = is_called && measured[P50] && blind[i] <= 0.05 * calls[i];
        value[CPU_PER_REQUEST] = x[CPU] / busy + offset[CPU_PER_REQUEST];
        observed[CPU_PER_REQUEST] = is_called && measured[CPU];
        const float requests = (measured[RATE] ? rate : float(received[i])) * f.interval, n = larger(requests, 1.0f);
        noise[RATE] = rate_noise(rate, offset[RATE], f.interval);
        noise[ERROR] = error_noise(x[ERROR], offset[ERROR], n);
        noise[P50] = noise[OWN_TIME] = 0.39f / n;
        noise[P99] = 3.5f / n;
        noise[CPU] = noise[MEMORY] = 0.0f;
        noise[CONNECTIONS] = noise[CPU_PER_REQUEST] = 1.0f / n;
    }
    transform(f.nodes * NODE_CHANNELS, f.node_observed, f.node);
}

inline void edge_channels(const tagae::ChannelPass& f, const double* calls) {
    const float* offset = f.edge_offsets;
    for (int64_t i = 0; i < f.edges; ++i) {
        const float* metrics = f.edge_features + i * EDGE_METRICS;
        const uint8_t* measured = f.edge_measured + i * EDGE_METRICS;
        float x[EDGE_METRICS];
        for (int c = 0; c < EDGE_METRICS; ++c) x[c] = smaller(metrics[c], f.largest);
        float* value = f.edge + i * EDGE_CHANNELS;
        float* noise = f.edge_noise + i * EDGE_CHANNELS;
        uint8_t* observed = f.edge_observed + i * EDGE_CHANNELS;
        for (int c = 0; c < EDGE_METRICS; ++c) {
            value[c] = c == ERROR ? odds(x[c], offset[c]) : x[c] + offset[c];
            observed[c] = measured[c];
        }
        const float outgoing = float(calls[f.edge_index[i]]), share = x[RATE] / larger(outgoing, 1e-6f);
        value[WEIGHT] = share + offset[WEIGHT];
        observed[WEIGHT] = outgoing > 0.05f;
        const float n = larger(x[RATE] * f.interval, 1.0f), total = larger(outgoing * f.interval, 1.0f);
        noise[RATE] = rate_noise(x[RATE], offset[RATE], f.interval);
        noise[ERROR] = error_noise(x[ERROR], offset[ERROR], n);
        noise[P50] = 0.39f / n;
        noise[P99] = 3.5f / n;
        noise[WEIGHT] = share * (1.0f - share) / total / square(share + offset[WEIGHT]);
    }
    transform(f.edges * EDGE_CHANNELS, f.edge_observed, f.edge);
}

inline void channel_values(const tagae::ChannelPass& f) {
    double *waited = f.sums, *calls = waited + f.nodes, *blind = calls + f.nodes, *received = blind + f.nodes;
    const int64_t *source = f.edge_index, *destination = source + f.edges;
    for (int64_t i = 0; i < f.edges; ++i) {
        const float rate = smaller(f.edge_features[i * EDGE_METRICS + RATE], f.largest);
        const float latency = smaller(f.edge_features[i * EDGE_METRICS + P50], f.largest);
        calls[source[i]] += double(rate);
        received[destination[i]] += double(rate);
        if (f.edge_measured[i * EDGE_METRICS + P50])
            waited[source[i]] += double(rate * latency);
        else
            blind[source[i]] += double(rate);
    }
    node_channels(f, waited, calls, blind, received);
    edge_channels(f, calls);
}

}  // namespace TAGAE_ISA
