/* Refunds an order, once.
 *
 * The node decides what to ask for. Whether it is allowed, whether a person must approve it, under which idempotency key it is
 * sent and what to do after a crash is the business of the workflow, the tool and the host.
 */
#include "twice.h"

#include <inttypes.h>

typedef struct {
    twice_text id;
    uint64_t amount_cents, paid_cents;
    twice_text reason;
} order;

/* What is wrong with the input, or NULL. */
static const char *read_order(twice_json input, order *into)
{
    if (!twice_text_of(twice_get(input, "order_id"), &into->id)) return "`order_id` is no text";
    if (!twice_u64_of(twice_get(input, "amount_cents"), &into->amount_cents)) return "`amount_cents` is no amount";
    if (!twice_u64_of(twice_get(input, "paid_cents"), &into->paid_cents)) return "`paid_cents` is no amount";
    twice_json reason = twice_get(input, "reason");
    twice_kind kind = twice_kind_of(reason);
    into->reason = twice_from("requested by the customer");
    if (kind != TWICE_NONE && kind != TWICE_NULL && !twice_text_of(reason, &into->reason)) return "`reason` is no text";
    return NULL;
}

static twice_json refund_args(const order *order)
{
    twice_writer args = {0};
    twice_object(&args);
    twice_key(&args, "order_id");
    twice_put_text(&args, order->id);
    twice_key(&args, "amount_cents");
    twice_put_u64(&args, order->amount_cents);
    twice_key(&args, "reason");
    twice_put_text(&args, order->reason);
    twice_object_end(&args);
    return twice_written(&args);
}

twice_end twice_node(const twice_state *state)
{
    order order;
    const char *problem = read_order(state->input, &order);
    if (problem != NULL) return twice_unfit("%s", problem);
    if (order.amount_cents == 0 || order.amount_cents > order.paid_cents)
        return twice_fatal(twice_format("%" PRIu64 " cents cannot be refunded: %" PRIu64 " were paid for %.*s",
                                        order.amount_cents, order.paid_cents, TWICE_ARG(order.id)));

    /* Started again after a crash, this returns the recorded receipt: the money moves at most once. */
    twice_answer answer = twice_request("refund", refund_args(&order));
    if (answer.outcome != TWICE_CONFIRMED) return twice_refused(&answer);
    twice_text id, status;
    if (!twice_text_of(twice_get(answer.body, "id"), &id)) return twice_misfit(&answer, "`id` is no text");
    if (!twice_text_of(twice_get(answer.body, "status"), &status)) return twice_misfit(&answer, "`status` is no text");
    twice_log(TWICE_INFO, "%.*s: %" PRIu64 " cents refunded (%.*s)", TWICE_ARG(order.id), order.amount_cents,
              TWICE_ARG(answer.effect_id));

    twice_writer output = {0};
    twice_object(&output);
    twice_key(&output, "refund_id");
    twice_put_text(&output, id);
    twice_key(&output, "status");
    twice_put_text(&output, status);
    twice_key(&output, "amount_cents");
    twice_put_u64(&output, order.amount_cents);
    twice_object_end(&output);
    return twice_output(twice_written(&output));
}
