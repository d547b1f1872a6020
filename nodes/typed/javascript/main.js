/** Refunds an order, once, by a typed function of the tool. */

import { refund } from "tools:payments/payments";

export default function typed({ input }) {
  const { order_id, amount_cents, reason } = input;
  // Started again after a crash, this returns the recorded receipt: the money moves at most once. A refusal that is not caught
  // ends the run.
  const receipt = refund({ orderId: order_id, amountCents: amount_cents, reason });
  return { refund_id: receipt.id, status: receipt.status, amount_cents: Number(receipt.amountCents) };
}
