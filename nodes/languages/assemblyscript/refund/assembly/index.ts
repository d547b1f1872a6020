/**
 * Refunds an order, once.
 *
 * The node decides what to ask for. Whether it is allowed, whether a person must approve it, under which idempotency key it is
 * sent and what to do after a crash is the business of the workflow, the tool and the host.
 */

import { End, Json, State, fatal, log, output, request, unfit } from "twice";

export function node(state: State): End {
  const orderId = state.input.get("order_id");
  const amount = state.input.get("amount_cents");
  const paid = state.input.get("paid_cents");
  const reason = state.input.get("reason");
  if (!orderId.isText) return unfit("`order_id` is no text");
  if (!amount.isU64) return unfit("`amount_cents` is no amount");
  if (!paid.isU64) return unfit("`paid_cents` is no amount");
  if (!reason.isText && !reason.isNull && !reason.isAbsent) return unfit("`reason` is no text");
  const id = orderId.text();
  const cents = amount.u64();
  if (cents == 0 || cents > paid.u64())
    return fatal(`${cents} cents cannot be refunded: ${paid.u64()} were paid for ${id}`);

  const args = Json.object()
    .set("order_id", id)
    .set("amount_cents", cents)
    .set("reason", reason.text("requested by the customer"));
  // Started again after a crash, this returns the recorded receipt: the money moves at most once.
  const answer = request("refund", args);
  if (!answer.isConfirmed) return answer.refused();
  const refundId = answer.body.get("id");
  const status = answer.body.get("status");
  if (!refundId.isText) return answer.misfit("`id` is no text");
  if (!status.isText) return answer.misfit("`status` is no text");
  log.info(`${id}: ${cents} cents refunded (${answer.effectId})`);
  return output(Json.object().set("refund_id", refundId).set("status", status).set("amount_cents", cents));
}
