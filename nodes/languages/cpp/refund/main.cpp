/* Refunds an order, once.
 *
 * The node decides what to ask for. Whether it is allowed, whether a person must approve it, under which idempotency key it is
 * sent and what to do after a crash is the business of the workflow, the tool and the host.
 */
#include "twice.hpp"

using text = std::string_view;

/* A text, or a default if there is none. */
static std::expected<text, twice::failure> reason_of(const twice::state &state)
{
    auto reason = state.input["reason"].kind();
    if (reason == TWICE_NONE || reason == TWICE_NULL) return "requested by the customer";
    return state.get<text>("reason");
}

twice::result twice::node(const twice::state &state)
{
    auto order_id = TWICE_TRY(state.get<text>("order_id"));
    auto amount_cents = TWICE_TRY(state.get<std::uint64_t>("amount_cents"));
    auto paid_cents = TWICE_TRY(state.get<std::uint64_t>("paid_cents"));
    auto reason = TWICE_TRY(reason_of(state));
    if (amount_cents == 0 || amount_cents > paid_cents)
        return twice::fatal(amount_cents, " cents cannot be refunded: ", paid_cents, " were paid for ", order_id);

    auto args = twice::object({{"order_id", order_id}, {"amount_cents", amount_cents}, {"reason", reason}});
    /* Started again after a crash, this returns the recorded receipt: the money moves at most once. */
    auto receipt = TWICE_TRY(twice::request("refund", args));
    auto id = TWICE_TRY(receipt.get<text>("id"));
    auto status = TWICE_TRY(receipt.get<text>("status"));
    twice::log::info(order_id, ": ", amount_cents, " cents refunded (", receipt.effect_id, ")");
    return twice::object({{"refund_id", id}, {"status", status}, {"amount_cents", amount_cents}});
}
