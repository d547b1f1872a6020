#include "twice.hpp"

#include <cstdlib>

namespace twice {

namespace {

std::string_view view(twice_text text)
{
    return {text.at, text.length};
}

/* A copy that lasts until the node has ended, with a zero at its end. */
twice_text kept(std::string_view text)
{
    return {twice_zero({text.data(), text.size()}), text.size()};
}

json written(auto &&put)
{
    twice_writer writer{};
    put(&writer);
    return json(twice_json{writer.at, writer.length});
}

answer answered(const twice_answer &answer)
{
    std::string_view slot = answer.slot;
    switch (answer.outcome) {
    case TWICE_CONFIRMED: return receipt{slot, view(answer.effect_id), json(answer.body)};
    case TWICE_FAILED:
        return std::unexpected(refusal{refusal::kind::failed, slot, view(answer.code), view(answer.message)});
    case TWICE_DENIED:
        return std::unexpected(refusal{refusal::kind::denied, slot, view(answer.policy), view(answer.message)});
    }
    std::unreachable();
}

} // namespace

json::json(std::nullptr_t) : json(written(twice_put_null)) {}
json::json(std::string_view text)
    : json(written([&](twice_writer *writer) { twice_put_text(writer, {text.data(), text.size()}); }))
{
}
json json::truth(bool flag)
{
    return written([&](twice_writer *writer) { twice_put_bool(writer, flag); });
}
json json::whole(std::int64_t number)
{
    return written([&](twice_writer *writer) { twice_put_i64(writer, number); });
}
json json::positive(std::uint64_t number)
{
    return written([&](twice_writer *writer) { twice_put_u64(writer, number); });
}
json json::fraction(double number)
{
    return written([&](twice_writer *writer) { twice_put_f64(writer, number); });
}

json json::read(std::string_view text)
{
    return json(twice_read(kept(text)));
}

json object(std::initializer_list<std::pair<const char *, json>> members)
{
    return written([&](twice_writer *writer) {
        twice_object(writer);
        for (const auto &[key, value] : members) {
            twice_key(writer, key);
            twice_put_json(writer, value.raw());
        }
        twice_object_end(writer);
    });
}

json array(std::span<const json> elements)
{
    return written([&](twice_writer *writer) {
        twice_array(writer);
        for (const json &element : elements) twice_put_json(writer, element.raw());
        twice_array_end(writer);
    });
}

failure::failure(bool again, std::string_view message) : again(again), message(view(kept(message))) {}
failure::failure(const refusal &refusal) : failure(false, refusal.text()) {}

std::unexpected<failure> state::unfit(std::string_view problem)
{
    return fatal("the state does not fit the types of this node: ", problem);
}

std::unexpected<failure> receipt::misfit(std::string_view problem) const
{
    return fatal("`", slot, "` happened (", effect_id, "), but its receipt does not fit the node's type: ", problem);
}

std::string refusal::text() const
{
    return join("`", slot, is_failed() ? "` failed with " : "` is denied by ", reason, ": ", message);
}

answer request(std::string_view slot, json args)
{
    return answered(twice_request(kept(slot).at, args.raw()));
}

answer request_item(std::string_view slot, std::uint32_t item, json args)
{
    return answered(twice_request_item(kept(slot).at, item, args.raw()));
}

std::vector<answer> request_all(std::span<const call> calls)
{
    std::vector<twice_call> lowered;
    for (const call &call : calls)
        lowered.push_back({kept(call.slot).at, call.item.has_value(), call.item.value_or(0), call.args.raw()});
    const twice_answer *all = twice_request_all(lowered.data(), lowered.size());
    std::vector<answer> answers;
    for (std::size_t i = 0; i < lowered.size(); i++) answers.push_back(answered(all[i]));
    return answers;
}

std::string_view context::run_id()
{
    return view(twice_run_id());
}

std::string_view context::node()
{
    return view(twice_node_name());
}

void log::write(twice_level level, std::string_view message)
{
    twice_write(level, {message.data(), message.size()});
}

void panic(std::string_view message)
{
    twice_write(TWICE_ERROR, {message.data(), message.size()});
    std::abort();
}

} // namespace twice

extern "C" twice_end twice_node(const twice_state *state)
{
    twice::result result = twice::node({twice::json(state->input), twice::json(state->nodes), twice::json(state->element)});
    if (result) return twice_output(result->raw());
    twice_text message{result.error().message.data(), result.error().message.size()};
    return result.error().again ? twice_retryable(message) : twice_fatal(message);
}
