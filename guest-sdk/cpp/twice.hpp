/* Write nodes for Twice in C++23.
 *
 * A node is one function, twice::node. It gets the state of its run, computes, requests effects from the host, and returns an output
 * or a failure. It never touches the world itself. In return it may be started any number of times, after any crash: what it
 * requested before is answered from the ledger, and nothing happens a second time.
 *
 * Every view that this header hands out (texts, JSON) lasts until the node has ended. What is handed in is copied where it is kept.
 */
#ifndef TWICE_HPP
#define TWICE_HPP

#include "twice.h"

#include <concepts>
#include <cstdint>
#include <expected>
#include <initializer_list>
#include <iterator>
#include <optional>
#include <ranges>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace twice {

/* JSON. A value is the piece of text in which it stands, so JSON that is only handed on stays as it came, to the last digit. */

/* One JSON value, or none: what a member that is not there gives. */
class json {
public:
    /* No value. Where one is written, it becomes null. */
    json() = default;
    explicit json(twice_json value) : value_(value) {}

    json(std::nullptr_t);
    json(std::string_view text);
    json(const std::string &text) : json(std::string_view(text)) {}
    json(const char *text) : json(std::string_view(text)) {}
    json(std::same_as<bool> auto flag) : json(truth(flag)) {}
    json(std::integral auto number) requires(!std::same_as<decltype(number), bool>)
        : json(std::in_range<std::int64_t>(number) ? whole(static_cast<std::int64_t>(number)) : positive(static_cast<std::uint64_t>(number)))
    {
    }
    json(std::floating_point auto number) : json(fraction(number)) {}

    /* Reads a text. No value if it is not well-formed. */
    static json read(std::string_view text);

    explicit operator bool() const { return value_.at != nullptr; }
    twice_kind kind() const { return twice_kind_of(value_); }
    /* The member `key` of an object. No value if there is none, or if it is no object. */
    json operator[](const char *key) const { return json(twice_get(value_, key)); }
    /* The value, if it is of this kind: a text, bool, number or whole number that fits. */
    template <class T> std::optional<T> as() const;
    /* The text that it stands in. */
    std::string_view text() const { return {value_.at, value_.length}; }
    twice_json raw() const { return value_; }

    /* An element of an array, or a member of an object. */
    struct member;
    class iterator;
    iterator begin() const;
    std::default_sentinel_t end() const { return {}; }

private:
    static json truth(bool);
    static json whole(std::int64_t);
    static json positive(std::uint64_t);
    static json fraction(double);

    twice_json value_{};
};

struct json::member {
    /* Empty in an array. */
    std::string_view key;
    json value;
};

class json::iterator {
public:
    using value_type = member;
    using difference_type = std::ptrdiff_t;

    iterator() = default;
    explicit iterator(twice_json value) : each_(twice_each_of(value)) { ++*this; }
    member operator*() const { return {{each_.key.at, each_.key.length}, json(each_.value)}; }
    iterator &operator++()
    {
        is_there_ = twice_next(&each_);
        return *this;
    }
    void operator++(int) { ++*this; }
    bool operator==(std::default_sentinel_t) const { return !is_there_; }

private:
    twice_each each_{};
    bool is_there_ = false;
};

inline json::iterator json::begin() const { return iterator(value_); }

template <class T> std::optional<T> json::as() const
{
    if constexpr (std::same_as<T, json>) {
        return *this ? std::optional(*this) : std::nullopt;
    } else if constexpr (std::same_as<T, bool>) {
        bool flag;
        return twice_bool_of(value_, &flag) ? std::optional(flag) : std::nullopt;
    } else if constexpr (std::unsigned_integral<T>) {
        std::uint64_t number;
        return twice_u64_of(value_, &number) && std::in_range<T>(number) ? std::optional(static_cast<T>(number)) : std::nullopt;
    } else if constexpr (std::integral<T>) {
        std::int64_t number;
        return twice_i64_of(value_, &number) && std::in_range<T>(number) ? std::optional(static_cast<T>(number)) : std::nullopt;
    } else if constexpr (std::floating_point<T>) {
        double number;
        return twice_f64_of(value_, &number) ? std::optional(static_cast<T>(number)) : std::nullopt;
    } else {
        static_assert(std::constructible_from<T, std::string_view>, "a text, a bool, a number or json");
        twice_text text;
        return twice_text_of(value_, &text) ? std::optional(T(std::string_view(text.at, text.length))) : std::nullopt;
    }
}

/* An object: `twice::object({{"order_id", id}, {"amount_cents", 4200}})`. */
json object(std::initializer_list<std::pair<const char *, json>> members);

/* An array of a list, or of any range of what json can be made of. */
json array(std::span<const json> elements);
inline json array(std::initializer_list<json> elements) { return array(std::span(elements)); }
template <std::ranges::input_range Range>
    requires(!std::convertible_to<Range, std::span<const json>>)
json array(Range &&range)
{
    std::vector<json> elements;
    for (auto &&element : range) elements.emplace_back(element);
    return array(std::span<const json>(elements));
}

/* One text of many: texts as they are, anything else as JSON writes it. (Much smaller in the component than std::format, which can be
 * used as well.) */
template <class... Parts> std::string join(const Parts &...parts)
{
    std::string all;
    auto add = [&](const auto &part) {
        if constexpr (std::convertible_to<decltype(part), std::string_view>)
            all += std::string_view(part);
        else
            all += json(part).text();
    };
    (add(parts), ...);
    return all;
}

/* How a node ends without an output. */

struct refusal;

struct failure {
    /* Whether to start the step again later. What was confirmed meanwhile stays so. */
    bool again;
    std::string_view message;

    /* Copies the message to where it lasts. */
    failure(bool again, std::string_view message);
    /* A refusal that nobody handles ends the run: it is final. */
    failure(const refusal &refusal);
};

/* Starts the step again later, with backoff, as often as the workflow allows. */
template <class... Parts> std::unexpected<failure> retryable(const Parts &...parts)
{
    return std::unexpected(failure(true, join(parts...)));
}
/* Ends the run: it fails once each of its effects is known to have happened or not. */
template <class... Parts> std::unexpected<failure> fatal(const Parts &...parts)
{
    return std::unexpected(failure(false, join(parts...)));
}

using result = std::expected<json, failure>;

/* The value of an std::expected; without one, the function that this stands in returns the error. */
#define TWICE_TRY(expected)                                                 \
    __extension__({                                                         \
        auto &&twice_tried = (expected);                                    \
        if (!twice_tried) return std::unexpected(twice_tried.error());      \
        *std::move(twice_tried);                                            \
    })

/* The node. */

struct state {
    /* The run's input. */
    json input;
    /* The last output of each node that has run, of those whose order before or behind this one is fixed. */
    json nodes;
    /* The element that this step is about, in a fan-out; else no value. */
    json element;

    /* A member of the input. If it is not there or of another kind, the state is not for this node. */
    template <class T> std::expected<T, failure> get(const char *key) const
    {
        if (auto value = input[key].as<T>()) return *std::move(value);
        return unfit(join("`", key, "` is missing or of another kind"));
    }
    /* A failure that says what is wrong with the state. */
    static std::unexpected<failure> unfit(std::string_view problem);
};

/* The node's work. This is what you write. */
result node(const state &state);

/* Effects, the only way in which a node reaches the world. A request that cannot be answered yet does not return: the host drops the
 * instance (no destructor runs), and starts the node again from the beginning when the answer is known. */

struct receipt {
    std::string_view slot;
    /* The effect's id in the ledger, `eff_…`. */
    std::string_view effect_id;
    /* What the tool lets a node see of the provider's result. */
    json body;

    /* A member of the body. If it is not there or of another kind, the receipt is not what the node expects. */
    template <class T> std::expected<T, failure> get(const char *key) const
    {
        if (auto value = body[key].as<T>()) return *std::move(value);
        return misfit(join("`", key, "` is missing or of another kind"));
    }
    /* A failure that says what is wrong with the receipt. */
    std::unexpected<failure> misfit(std::string_view problem) const;
};

/* Why there is no receipt. It is final: a restarted node gets the same. */
struct refusal {
    enum class kind {
        /* It did not happen. */
        failed,
        /* It is not allowed, and was not sent. */
        denied,
    };
    kind kind;
    std::string_view slot;
    /* Of a failed one a stable word, such as the provider's error code, `http_402` or `exhausted`; of a denied one what refused. */
    std::string_view reason;
    /* For people. */
    std::string_view message;

    bool is_failed() const { return kind == kind::failed; }
    /* "`slot` failed with CODE: MESSAGE", "`slot` is denied by POLICY: MESSAGE". */
    std::string text() const;
};

using answer = std::expected<receipt, refusal>;

/* Requests the effect that the workflow grants under `slot`. */
answer request(std::string_view slot, json args);
/* Requests the effect for element `item`, from 0, of the array that the workflow bound to `slot` with `for_each`. */
answer request_item(std::string_view slot, std::uint32_t item, json args);

struct call {
    std::string_view slot;
    /* None but for a slot that is bound to an array. */
    std::optional<std::uint32_t> item{};
    json args{};
};

/* Requests several, which the host performs concurrently. The answers stand in the order of the calls. When one cannot be answered
 * yet, none is: the node starts again when all can. */
std::vector<answer> request_all(std::span<const call> calls);

/* What a node may know about where it runs. All of it is durable: a node that is started again sees the same values. */
namespace context {

std::string_view run_id();
std::string_view node();
/* Which visit of the node in this run, from 1. */
inline std::uint32_t visit() { return twice_visit(); }
/* Which attempt of this visit, from 1. For logs: nothing that is requested may depend on it. */
inline std::uint32_t attempt() { return twice_attempt(); }
/* Milliseconds since 1970-01-01T00:00:00Z: when the step became due, moved forward by each answered effect to the time of its
 * answer. */
inline std::uint64_t now() { return twice_now(); }
/* The next random bytes, at most 65,536. Not secret: whoever knows the run can compute them. */
inline std::span<const std::uint8_t> random(std::uint32_t count) { return {twice_random(count), count}; }

} // namespace context

/* The run's log. Messages longer than 8 KiB are cut, and the log of a call ends at the node's limit. */
namespace log {

void write(twice_level level, std::string_view message);

/* These take parts, as join does. */
template <class... Parts> void debug(const Parts &...parts) { write(TWICE_DEBUG, join(parts...)); }
template <class... Parts> void info(const Parts &...parts) { write(TWICE_INFO, join(parts...)); }
template <class... Parts> void warn(const Parts &...parts) { write(TWICE_WARN, join(parts...)); }
template <class... Parts> void error(const Parts &...parts) { write(TWICE_ERROR, join(parts...)); }

} // namespace log

/* Writes an error to the log and ends the node at once; the step is started again later. For what cannot be. */
[[noreturn]] void panic(std::string_view message);

} // namespace twice

#endif
