/* Does whatever a test asks of a node: the run's input lists steps, the output lists what came of each. */
#include "twice.hpp"

#include <chrono>
#include <cstdlib>
#include <iostream>
#include <random>

using twice::json;
using text = std::string_view;

namespace {

/* What a step leaves behind. */
struct came {
    json value;
    /* Whether it is the node's output, and not a note. */
    bool is_output = false;
};
using taken = std::expected<came, twice::failure>;

text text_at(json step, const char *key)
{
    return step[key].as<text>().value_or("");
}

std::uint32_t number_at(json step, const char *key)
{
    return step[key].as<std::uint32_t>().value_or(0);
}

bool is_left_out(json step)
{
    auto until_attempt = step["until_attempt"].as<std::uint32_t>();
    auto until_visit = step["until_visit"].as<std::uint32_t>(), from_visit = step["from_visit"].as<std::uint32_t>();
    return (until_attempt && twice::context::attempt() >= *until_attempt) ||
           (until_visit && twice::context::visit() >= *until_visit) || (from_visit && twice::context::visit() < *from_visit);
}

json note(const twice::answer &answer)
{
    if (answer) return twice::object({{"effect_id", answer->effect_id}, {"body", answer->body}});
    const auto &refusal = answer.error();
    return twice::object({{refusal.is_failed() ? "failed" : "denied", refusal.reason}, {"message", refusal.message}});
}

twice::answer request(json step)
{
    auto item = step["item"].as<std::uint32_t>();
    if (item) return twice::request_item(text_at(step, "slot"), *item, step["args"]);
    return twice::request(text_at(step, "slot"), step["args"]);
}

json request_all(json requests)
{
    std::vector<twice::call> calls;
    for (auto [key, call] : requests)
        calls.push_back({text_at(call, "slot"), call["item"].as<std::uint32_t>(), call["args"]});
    return twice::array(twice::request_all(calls) | std::views::transform(note));
}

json nested(std::uint32_t depth)
{
    return json::read(std::string(depth, '[') + "null" + std::string(depth, ']'));
}

json random(std::uint32_t count)
{
    return twice::array(twice::context::random(count));
}

json context()
{
    return twice::object({
        {"run", twice::context::run_id()},
        {"node", twice::context::node()},
        {"visit", twice::context::visit()},
        {"attempt", twice::context::attempt()},
    });
}

/* What C++ itself says of time and chance. */
json native()
{
    auto now = std::chrono::system_clock::now().time_since_epoch();
    return twice::object({
        {"now", std::chrono::duration_cast<std::chrono::milliseconds>(now).count()},
        {"random", std::random_device()()},
        {"engine", std::mt19937()()},
    });
}

twice_level level(text level)
{
    if (level == "debug") return TWICE_DEBUG;
    if (level == "warn") return TWICE_WARN;
    if (level == "error") return TWICE_ERROR;
    return TWICE_INFO;
}

taken take(json step, const twice::state &state)
{
    auto what = text_at(step, "do"), slot = text_at(step, "slot"), message = text_at(step, "message");
    if (what == "request") {
        auto answer = request(step);
        if (step["must"].as<bool>().value_or(false)) TWICE_TRY(answer);
        return came{note(answer)};
    }
    if (what == "request_all") return came{request_all(step["requests"])};
    if (what == "request_big") return came{note(twice::request(slot, std::string(number_at(step, "bytes"), 'x')))};
    if (what == "request_deep") return came{note(twice::request(slot, nested(number_at(step, "depth"))))};
    if (what == "request_volatile")
        return came{note(twice::request(slot, twice::object({{"now", twice::context::now()}, {"random", random(8)}})))};
    if (what == "retryable") return twice::retryable(message);
    if (what == "fatal") return twice::fatal(message);
    if (what == "panic") twice::panic(message);
    if (what == "trap") std::abort();
    if (what == "log") {
        twice::log::write(level(text_at(step, "level")), message);
        return came{nullptr};
    }
    if (what == "print") {
        std::cout << message << std::endl;
        return came{nullptr};
    }
    if (what == "now") return came{twice::context::now()};
    if (what == "random") return came{random(number_at(step, "count"))};
    if (what == "context") return came{context()};
    if (what == "nodes") return came{state.nodes};
    if (what == "native") return came{native()};
    if (what == "return") return came{step["output"], true};
    return twice::fatal("there is no step `", what, "`");
}

} // namespace

twice::result twice::node(const twice::state &state)
{
    std::string name(twice::context::node());
    json named = state.input["nodes"][name.c_str()];
    std::vector<json> notes;
    for (auto [key, step] : named ? named : state.input["steps"]) {
        if (is_left_out(step)) continue;
        auto [value, is_output] = TWICE_TRY(take(step, state));
        if (is_output) return value;
        notes.push_back(value);
    }
    return twice::object({{"notes", twice::array(notes)}});
}
