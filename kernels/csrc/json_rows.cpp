// Reads a snapshot in JSON into columns, in one pass. For kernels/json_rows.py. A library of its own, without torch.
//
// The reader accepts only documents that are plainly right, and gives up on all others. The caller then decodes the
// document in the way that finds its mistakes. So there is one place that words them, and this file has no messages.
#include "json_rows.h"

#include <charconv>
#include <cstring>

#include "processor.h"

namespace tagae {
namespace {

constexpr int MAX_KEYS = 16;        // of one object
constexpr int LONGEST_SEARCH = 256;  // slots; names chosen to collide cost no more than this
constexpr uint64_t EXACT_DIGITS = uint64_t{1} << 53;
constexpr double POWERS[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                             1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
constexpr int64_t EXACT_POWER = 22;  // of ten, as a double

struct Text {
    const char* start = nullptr;
    size_t length = 0;
};

bool is_digit(char c) { return static_cast<unsigned char>(c - '0') < 10; }

// Eight bytes at a time: the high bit of each byte that is below `limit`, or equal to `c`; bits above the first may be
// wrong.
constexpr uint64_t ONES = 0x0101010101010101, HIGHS = 0x8080808080808080;
uint64_t below(uint64_t bytes, uint64_t limit) { return (bytes - ONES * limit) & ~bytes & HIGHS; }
uint64_t equal(uint64_t bytes, unsigned char c) { return below(bytes ^ (ONES * c), 1); }

uint64_t load(const char* from, size_t bytes) {
    uint64_t word = 0;
    std::memcpy(&word, from, bytes);
    return word;
}

// Keys of one kind of object: names, each with the quotation mark at its end.
struct Keys {
    Text names[MAX_KEYS];
    int count = 0;

    // Reads one line, and returns the next one; nullptr if a line has too many keys.
    const char* read(const char* line) {
        while (line && *line && *line != '\n') {
            if (count == MAX_KEYS) return nullptr;
            const char* stop = std::strchr(line, '"') + 1;
            names[count++] = {line, static_cast<size_t>(stop - line)};
            line = stop;
        }
        return line && *line ? line + 1 : line;
    }
};

// Positions of the services by their ids. Slots are a power of two, at least twice as many as services.
class Places {
  public:
    // Returns false for two equal ids, or if ids collide too often.
    bool fill(const JsonRows& rows) {
        rows_ = &rows;
        mask_ = 1;
        while (mask_ < 2 * rows.services) mask_ *= 2;
        if (mask_ > rows.slots) return false;
        std::memset(rows.places, -1, static_cast<size_t>(mask_) * sizeof(*rows.places));
        --mask_;
        for (int64_t i = 0; i < rows.services; ++i) {
            int32_t* slot = search(id(i));
            if (!slot || *slot >= 0) return false;
            *slot = static_cast<int32_t>(i);
        }
        return true;
    }

    // The position of a service; -1 if there is none.
    int64_t find(Text name) const {
        const int32_t* slot = search(name);
        return slot ? *slot : -1;
    }

  private:
    Text id(int64_t i) const {
        const int64_t start = rows_->id_starts[i];
        return {rows_->ids + start, static_cast<size_t>(rows_->id_starts[i + 1] - 1 - start)};
    }

    // The slot of this id, or the free one where it belongs; nullptr after too many others.
    int32_t* search(Text name) const {
        int64_t at = static_cast<int64_t>(hash(name)) & mask_;
        for (int tries = 0; tries < LONGEST_SEARCH; ++tries, at = (at + 1) & mask_) {
            int32_t* slot = rows_->places + at;
            if (*slot < 0) return slot;
            const Text known = id(*slot);
            if (known.length == name.length && !std::memcmp(known.start, name.start, name.length)) return slot;
        }
        return nullptr;
    }

    static uint64_t hash(Text name) {
        uint64_t h = name.length;
        const auto mix = [&h](uint64_t word) {
            h = (h ^ word) * 0x9E3779B97F4A7C15;
            h ^= h >> 32;
        };
        size_t i = 0;
        for (; i + 8 <= name.length; i += 8) mix(load(name.start + i, 8));
        mix(load(name.start + i, name.length - i));
        return h;
    }

    const JsonRows* rows_ = nullptr;
    int64_t mask_ = 0;
};

// Each function reads one thing, moves on behind it, and returns false where it gives up. A NUL stands behind the body, so
// a single character can be read without a look at the length.
class Reader {
  public:
    explicit Reader(JsonRows& rows) : rows_(rows), at_(rows.body), end_(rows.body + rows.length) {}

    bool read() {
        const char* line = rows_.keys;
        for (Keys* keys : {&document_, &service_, &metrics_, &signals_, &call_}) line = keys->read(line);
        if (!line) return false;
        const char* calls = nullptr;  // where they begin, if they come before the services
        const bool is_read = object(document_, [&](int key) {
            switch (key) {
                case 0:
                    return instant();
                case 1:
                    return services();
                case 2:
                    if (has_services_) return list([this] { return call(); });
                    calls = at_;
                    return skip_list();
                case 3:
                case 4:
                    return spanned(key - 2, [this] { return skip_list(); });
                default:
                    return take('1');  // the version
            }
        });
        if (!is_read || !has_services_ || !rows_.spans[1]) return false;
        spaces();
        if (at_ != end_) return false;
        if (!calls) return true;
        at_ = calls;
        return list([this] { return call(); });
    }

  private:
    void spaces() {
        while (*at_ == ' ' || *at_ == '\n' || *at_ == '\r' || *at_ == '\t') ++at_;
    }

    bool take(char expected) {
        spaces();
        if (*at_ != expected) return false;
        ++at_;
        return true;
    }

    bool take_null() {
        spaces();
        if (end_ - at_ < 4 || std::memcmp(at_, "null", 4)) return false;
        at_ += 4;
        return true;
    }

    // An object with these keys, each at most once. `value(i)` reads the value of key i.
    template <class Value>
    bool object(const Keys& keys, Value value) {
        if (!take('{')) return false;
        if (take('}')) return true;
        unsigned seen = 0;
        int last = -1;
        do {
            const int key = find_key(keys, last + 1);
            if (key < 0 || (seen >> key & 1) || !take(':') || !value(key)) return false;
            seen |= 1u << key;
            last = key;
        } while (take(','));
        return take('}');
    }

    // Objects of a list have their keys in the same order nearly always, so the search begins at the `likely` one.
    int find_key(const Keys& keys, int likely) {
        if (!take('"')) return -1;
        for (int tries = 0; tries < keys.count; ++tries, ++likely) {
            if (likely >= keys.count) likely = 0;
            const Text& name = keys.names[likely];
            if (static_cast<size_t>(end_ - at_) >= name.length && !std::memcmp(at_, name.start, name.length)) {
                at_ += name.length;
                return likely;
            }
        }
        return -1;
    }

    template <class Row>
    bool list(Row row) {
        if (!take('[')) return false;
        if (take(']')) return true;
        do {
            if (!row()) return false;
        } while (take(','));
        return take(']');
    }

    // A text without escapes. Whether it is UTF-8 is left to the caller.
    bool text(Text& found) {
        if (!take('"')) return false;
        const char* start = at_;
        for (; end_ - at_ >= 8; at_ += 8) {
            const uint64_t word = load(at_, 8);
            if (const uint64_t stop = equal(word, '"') | equal(word, '\\') | below(word, ' ')) {
                at_ += __builtin_ctzll(stop) / 8;
                break;
            }
        }
        while (*at_ != '"' && *at_ != '\\' && static_cast<unsigned char>(*at_) >= ' ') ++at_;
        if (*at_ != '"') return false;
        found = {start, static_cast<size_t>(at_++ - start)};
        return true;
    }

    // A number that is not negative, rounded to double and then to float, as numpy does.
    bool number(float& value) {
        spaces();
        const char* start = at_;
        uint64_t digits = 0;
        while (is_digit(*at_)) digits = 10 * digits + static_cast<uint64_t>(*at_++ - '0');
        int64_t count = at_ - start, exponent = 0;
        if (!count || (*start == '0' && count > 1)) return false;
        if (*at_ == '.') {
            const char* fraction = ++at_;
            while (is_digit(*at_)) digits = 10 * digits + static_cast<uint64_t>(*at_++ - '0');
            exponent = fraction - at_;
            if (!exponent) return false;
            count -= exponent;
        }
        if (*at_ == 'e' || *at_ == 'E') {
            ++at_;
            const bool is_negative = *at_ == '-';
            if (*at_ == '-' || *at_ == '+') ++at_;
            const char* first = at_;
            int64_t power = 0;
            while (is_digit(*at_)) power = power < 1000 ? 10 * power + (*at_++ - '0') : (++at_, power);
            if (at_ == first) return false;
            exponent += is_negative ? -power : power;
        }
        double exact = 0;
        if (count <= 19 && digits <= EXACT_DIGITS && -EXACT_POWER <= exponent && exponent <= EXACT_POWER) {
            // Both are exact doubles, so the result is rounded once.
            exact = static_cast<double>(digits);
            exact = exponent < 0 ? exact / POWERS[-exponent] : exact * POWERS[exponent];
        } else {
            const auto read = std::from_chars(start, at_, exact);
            if (read.ec != std::errc() || read.ptr != at_) return false;
        }
        if (!(exact <= rows_.largest)) return false;
        value = static_cast<float>(exact);
        return true;
    }

    bool number_or_null(float& value) { return take_null() || number(value); }

    // Null, or an object of numbers.
    bool numbers(const Keys& keys, float* values) {
        return take_null() || object(keys, [&](int key) { return number_or_null(values[key]); });
    }

    bool services() {
        has_services_ = list([this] { return service(); }) && rows_.services && places_.fill(rows_);
        return has_services_;
    }

    bool service() {
        if (rows_.services >= rows_.most_services) return false;
        float* metrics = rows_.metrics + rows_.services * metrics_.count;
        float* signals = rows_.signals + rows_.services * signals_.count;
        fill(metrics, metrics_.count);
        fill(signals, signals_.count);
        Text of_namespace, name;
        const bool is_read = object(service_, [&](int key) {
            switch (key) {
                case 0:
                    return text(of_namespace);
                case 1:
                    return text(name);
                case 2:
                    return numbers(metrics_, metrics);
                default:
                    return numbers(signals_, signals);
            }
        });
        if (!is_read || !of_namespace.length || !name.length) return false;
        if (std::memchr(of_namespace.start, '/', of_namespace.length)) return false;
        const int64_t start = rows_.id_starts[rows_.services];
        char* id = rows_.ids + start;
        std::memcpy(id, of_namespace.start, of_namespace.length);
        id += of_namespace.length;
        *id++ = '/';
        std::memcpy(id, name.start, name.length);
        id[name.length] = '\n';  // not in any text, so the caller can split at it
        rows_.id_starts[++rows_.services] = id + name.length + 1 - rows_.ids;
        return true;
    }

    bool call() {
        if (rows_.calls >= rows_.most_calls) return false;
        const int64_t row = rows_.calls++;
        float* metrics = rows_.call_metrics + row * (call_.count - 2);
        fill(metrics, call_.count - 2);
        Text source, destination;
        const bool is_read = object(call_, [&](int key) {
            return key == 0 ? text(source) : key == 1 ? text(destination) : number_or_null(metrics[key - 2]);
        });
        if (!is_read || !source.length || !destination.length) return false;
        rows_.sources[row] = places_.find(source);
        rows_.destinations[row] = places_.find(destination);
        return rows_.sources[row] >= 0 && rows_.destinations[row] >= 0;
    }

    static void fill(float* values, int count) {
        for (int i = 0; i < count; ++i) values[i] = __builtin_nanf("");
    }

    bool instant() {
        Text ignored;
        return spanned(0, [&] { return text(ignored); });
    }

    // Reads a value and notes where it is.
    template <class Value>
    bool spanned(int span, Value value) {
        spaces();
        rows_.spans[2 * span] = at_ - rows_.body;
        if (!value()) return false;
        rows_.spans[2 * span + 1] = at_ - rows_.body;
        return true;
    }

    // Moves behind a list, and reads only brackets and texts. The content is read later.
    bool skip_list() {
        spaces();
        if (*at_ != '[') return false;
        for (int64_t depth = 0; at_ != end_; ++at_) {
            if (*at_ == '"') {
                for (++at_; at_ != end_ && *at_ != '"'; ++at_)
                    if (*at_ == '\\' && ++at_ == end_) return false;
                if (at_ == end_) return false;
            }
            depth += (*at_ == '[' || *at_ == '{') - (*at_ == ']' || *at_ == '}');
            if (!depth) {
                ++at_;
                return true;
            }
        }
        return false;
    }

    JsonRows& rows_;
    const char* at_;
    const char* end_;
    Keys document_, service_, metrics_, signals_, call_;
    Places places_;
    bool has_services_ = false;
};

}  // namespace
}  // namespace tagae

// Identifies the struct that this library was built for.
TAGAE_EXPORT const char* tagae_schemas() { return TAGAE_SCHEMAS; }

// There is one body, for every processor.
TAGAE_EXPORT const char* tagae_choose(const char*) { return "cpu"; }

// Returns 0 where the reader gives up.
TAGAE_EXPORT int tagae_read_rows(tagae::JsonRows* rows) { return tagae::Reader(*rows).read(); }
