// Refunds an order, once, by a typed function of the tool.
import { refund } from 'tools:payments/payments';

export function run(input) {
  const { order_id, amount_cents, reason } = JSON.parse(input).input;
  let receipt;
  try {
    // Started again after a crash, this returns the recorded receipt: the money moves at most once.
    receipt = refund({ orderId: order_id, amountCents: amount_cents, reason });
  } catch (error) {
    const refused = error.payload ?? error;
    const { code, policy, message } = refused.val ?? {};
    throw { tag: 'fatal', val: `${code ?? policy}: ${message ?? error}` };
  }
  return JSON.stringify({
    refund_id: receipt.id,
    status: receipt.status,
    // A 64-bit integer is a Number in QuickJS and a BigInt in StarlingMonkey.
    amount_cents: Number(receipt.amountCents),
  });
}
