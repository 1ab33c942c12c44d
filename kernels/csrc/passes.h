// What the compiled passes over series are called with. Independent of Python and of the instruction set.
//
// A series is one channel of a service or of a call. All arrays are contiguous; S are the time scales, C the channels.
#pragma once

#include <cstdint>

namespace tagae {

constexpr int SCALES = 3;
constexpr int LAST = 16;  // snapshots whose failures are counted one by one
constexpr int MAX_CHANNELS = 64;

// Constants of model/state/filters.py, in this order.
struct FilterConstants {
    float fast, slow, short_rate, long_rate, prior_weight, clip, clip_consistency, bound, memorable, support;
    float short_scale, long_scale, limit, tail_start, rested[SCALES], fade, excess_limit, enough;
};

struct FilterPass {
    int64_t rows, channels;
    const FilterConstants* constants;
    const float* floor;        // [C] variance
    const uint8_t* two_sided;  // [C]
    const float* alone;        // [C] requests from which a single one cannot set the value
    const float* weight;       // [C] how far each request confirms or denies the averages
    const float* before;       // [13, rows, C]
    const float *value, *noise;
    const uint8_t* measured;          // [rows, C]
    const uint8_t *muted, *paused;    // [rows]
    const float* requests;            // [rows]
    float *after, *now, *level, *expected, *spread;  // level [S, rows, C]
    uint8_t* known;
};

// Constants of model/state/few_requests.py, in this order.
struct CountConstants {
    float enough, counted, parts, offset, no_failure, keep, tail_start, clip, least_long, several;
    float lasting, by_chance, at_once, certain, most, material;
};

struct CountPass {
    int64_t rows, channels;
    const CountConstants* constants;
    const uint16_t* recent_before[LAST];  // [2, rows] each, newest first
    const float* usual_before;      // [3, rows]
    const float *past_long, *seen;  // [rows, C]
    const uint8_t* measured;        // [rows, C]
    const float* requests;          // [rows]
    const uint8_t* paused;          // [rows]
    uint16_t* newest;  // [2, rows]
    float *usual, *level, *value;  // level [S, rows, C] and value change in place, and so does known
    uint8_t* known;
    float* surprise;  // [rows]
};

// Constants of model/scoring/calibration.py, in this order.
struct TailConstants {
    float tail_start, tail_memory, rate_weight, scale_weight, explained_at_most, limit;
};

struct TailPass {
    int64_t rows, channels, exposures;
    const TailConstants* constants;
    const float *rate, *mean_excess, *shape;  // [exposures, S, C]
    const float* impact;                      // [4, exposures, S, C]
    const int64_t* exposure;                  // [rows]
    const float *level, *exceed_count, *exceed_sum;             // [S, rows, C]
    const float *now, *predicted, *expected, *spread, *seen;    // [rows, C]
    const uint8_t* observed;
    float *surprise, *raw, *explained;        // [rows, C]
};

struct ChannelPass {
    int64_t nodes, edges;
    float interval, largest;
    const float *node_offsets, *edge_offsets;  // [9], [5]
    const float *node_features, *edge_features;
    const uint8_t *node_measured, *edge_measured;
    const int64_t* edge_index;  // [2, edges]
    double* sums;               // [4, nodes] zeros: workspace
    float *node, *node_noise, *edge, *edge_noise;
    uint8_t *node_observed, *edge_observed;
};

struct Passes {
    void (*update_filters)(const FilterPass&);
    void (*calibrate)(const TailPass&);
    void (*channel_values)(const ChannelPass&);
    void (*count_failures)(const CountPass&);
};
extern const Passes NEON_PASSES, AVX2_PASSES, AVX512_PASSES;  // those for this kind of processor are compiled

}  // namespace tagae
