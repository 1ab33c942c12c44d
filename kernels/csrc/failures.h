// Failures among few requests: `count_failures` of model/state/few_requests.py in one pass.
#pragma once

#include "channels.h"
#include "passes.h"

namespace TAGAE_ISA {

constexpr int TOGETHER = 4;  // snapshots
constexpr int GROUPS = tagae::LAST / TOGETHER;

enum Usual { USUAL_FAILED, USUAL_MADE, RESTED };

class FailureCounts {
  public:
    explicit FailureCounts(const tagae::CountPass& f) : f_(f), k_(*f.constants) {}

    void run() {
        for (int64_t r = 0; r < f_.rows; ++r) {
            add(r);
            f_.surprise[r] = 0.0f;
            if (is_compared(r)) compare(r);
        }
    }

  private:
    // Count this snapshot, and let the oldest one become usual unless an incident was near.
    void add(int64_t r) {
        const int64_t at = r * f_.channels;
        const float requests = f_.requests[r];
        const bool counted = f_.measured[at + ERROR] && requests < k_.counted;
        const double made = counted ? double(requests) : 0.0;
        const float value = f_.value[at + ERROR];
        const double failed = counted && value > k_.no_failure ? made * share_of(value) : 0.0;
        f_.newest[r] = parts(failed);
        f_.newest[f_.rows + r] = parts(made);
        const float* before = f_.usual_before + r;
        float* usual = f_.usual + r;
        const float rested = f_.paused[r] ? 0.0f : before[RESTED * f_.rows] + 1.0f;
        const bool learns = rested > float(tagae::LAST);
        const uint16_t* oldest = f_.recent_before[tagae::LAST - 1] + r;
        for (int i = USUAL_FAILED; i <= USUAL_MADE; ++i) {
            const float past = before[i * f_.rows];
            usual[i * f_.rows] = learns ? past * k_.keep + float(oldest[i * f_.rows]) / k_.parts : past;
        }
        usual[RESTED * f_.rows] = rested;
    }

    bool is_lasting(int64_t r) const { return f_.past_long[r * f_.channels + ERROR] > k_.least_long; }
    bool is_few(int64_t r) const { return f_.requests[r] < k_.enough; }
    float usual(Usual what, int64_t r) const { return f_.usual[what * f_.rows + r]; }
    float& level(int s, int64_t r) const { return f_.level[(s * f_.rows + r) * f_.channels + ERROR]; }
    // Counts t snapshots ago; 0: of this one.
    const uint16_t* recent(int t) const { return t ? f_.recent_before[t - 1] : f_.newest; }
    double failed(int t, int64_t r) const { return recent(t)[r] / double(k_.parts); }
    double made(int t, int64_t r) const { return recent(t)[f_.rows + r] / double(k_.parts); }

    bool is_in_question(int64_t r) const {
        bool above = false;
        for (int s = 0; s < tagae::SCALES; ++s) above |= level(s, r) > k_.tail_start;
        return (above && f_.requests[r] < k_.counted) || (is_lasting(r) && is_few(r));
    }

    bool is_compared(int64_t r) const {
        if (!(f_.requests[r] < k_.counted) && f_.measured[r * f_.channels + ERROR]) return false;
        if (!(f_.seen[r * f_.channels + ERROR] > 0.0f)) return false;
        if (!is_in_question(r) && !(is_lasting(r) && usual(USUAL_MADE, r) > 0.0f)) return false;
        if (failed(0, r) >= double(k_.several) || is_lasting(r)) return true;
        for (int s = 1; s < tagae::SCALES; ++s)
            if (level(s, r) > k_.tail_start) return true;
        level(0, r) = smaller(level(0, r), k_.clip);
        return false;
    }

    void compare(int64_t r) {
        const double before = usual(USUAL_FAILED, r), made_before = usual(USUAL_MADE, r);
        const bool is_unsure = is_few(r) && made_before > 0.0, in_question = is_in_question(r);
        double found[tagae::SCALES], failures = 0, together[GROUPS] = {}, requests = 0, since = 0, failing = 0, taken = 0, taken_failed = 0;
        for (int t = 0, s = 0; t < tagae::LAST; ++t) {
            const double lost = failed(t, r), sent = made(t, r), last = double(k_.enough) - requests;
            const double take = last > sent ? sent : (last > 0.0 ? last : 0.0);
            failures += lost;
            requests += sent;
            if (failures <= 0.0) since += sent;
            if (lost > 0.0) failing = requests - since;  // requests from the first to the last failure
            taken += take;
            if (sent > 0.0) taken_failed += lost * take / sent;
            together[t / TOGETHER] += lost;
            if (t + 1 == (1 << (2 * s))) found[s++] = sigmas(failures, requests, before, made_before);
        }
        const double going_on = continues(failures, failing, since);
        if (in_question && made_before > 0.0)
            for (int s = 0; s < tagae::SCALES; ++s) level(s, r) = smaller(level(s, r), float(found[s]));
        if (is_unsure) level(tagae::SCALES - 1, r) = float(found[tagae::SCALES - 1] * going_on);
        const int64_t at = r * f_.channels + ERROR;
        if (is_few(r) && taken > 0.0) f_.value[at] = value_of(taken_failed / taken);
        if (is_unsure && level(tagae::SCALES - 1, r) >= k_.lasting) f_.known[at] = 1;
        const double share = failures / (requests > 1e-9 ? requests : 1e-9);
        const double normal = before / (made_before > 1e-9 ? made_before : 1e-9);
        if (!is_lasting(r) || requests >= double(tagae::LAST * k_.counted) || share - normal < double(k_.material)) return;
        const double rare = decades(sigmas(apart(together), requests, before, made_before));
        if (rare >= double(k_.certain)) f_.surprise[r] = float((rare < double(k_.most) ? rare : double(k_.most)) * going_on);
    }

    // The failures that count: of each group as many as of the second smallest one, but at least `at_once`.
    double apart(const double (&together)[GROUPS]) const {
        double least = together[0], second = 1e300, sum = 0.0;
        for (int g = 1; g < GROUPS; ++g) {
            second = together[g] < least ? least : (together[g] < second ? together[g] : second);
            least = together[g] < least ? together[g] : least;
        }
        const double most = second > double(k_.at_once) ? second : double(k_.at_once);
        for (const double failed : together) sum += failed < most ? failed : most;
        return sum;
    }

    static double sigmas(double failed, double made, double before, double made_before) {
        if (!(made_before > 0.0)) return 0.0;
        const double least = 1e-9, total = failed + before, expected = total * made / (made + made_before);
        const double later = failed - 0.5 > expected ? failed - 0.5 : expected;
        const double earlier = total - later > least ? total - later : least;
        const double usual = total - expected > least ? total - expected : least;
        const double ratio = (later > least ? later : least) / (expected > least ? expected : least);
        const double deviance = later * __builtin_log(ratio) + earlier * __builtin_log(earlier / usual);
        return deviance > 0.0 ? __builtin_sqrt(2.0 * deviance) : 0.0;
    }

    static double decades(double sigmas) {
        return sigmas > 1.0 ? sigmas * sigmas / 4.605170185988092 + __builtin_log10(sigmas * 2.5066282746310002) : 0.0;
    }

    double continues(double failures, double failing, double since) const {
        const double good = 1.0 - (failures - 0.5) / (failing > 1e-9 ? failing : 1e-9);
        const double chance = __builtin_pow(good > 0.0 ? (good < 1.0 ? good : 1.0) : 0.0, since) / double(k_.by_chance);
        return chance < 1.0 ? chance : 1.0;
    }

    double share_of(float value) const {
        const double odds = double(__builtin_expf(value)), offset = double(k_.offset);
        const double share = (odds * (1.0 + offset) - offset) / (1.0 + odds);
        return share > 0.0 ? (share < 1.0 ? share : 1.0) : 0.0;
    }

    float value_of(double share) const { return float(__builtin_log((share + k_.offset) / (1.0 - share + k_.offset))); }
    uint16_t parts(double count) const { return uint16_t(__builtin_rint(count * double(k_.parts))); }

    const tagae::CountPass& f_;
    const tagae::CountConstants k_;
};

inline void count_failures(const tagae::CountPass& f) { FailureCounts(f).run(); }

}  // namespace TAGAE_ISA
