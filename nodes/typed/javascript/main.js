/** Refunds an order, once, by a typed function of the tool. */

import { refund } from "tools:payments/payments";
import { Fatal } from "twice-node";

export default function typed({ input }) {
  const { order_id, amount_cents, reason } = input;
  let receipt;
  try {
    // Started again after a crash, this returns the recorded receipt: the money moves at most once.
    receipt = refund({ orderId: order_id, amountCents: amount_cents, reason });
  } catch (error) {
    const { code, policy, message } = (error.payload ?? error).val ?? {};
    throw new Fatal(`${code ?? policy}: ${message ?? error}`);
  }
  return { refund_id: receipt.id, status: receipt.status, amount_cents: Number(receipt.amountCents) };
}
