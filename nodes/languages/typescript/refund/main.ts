/**
 * Refunds an order, once.
 *
 * The node decides *what* to ask for. Whether it is allowed, whether a person must approve it, under which idempotency key
 * it is sent and what to do after a crash is the business of the workflow, the tool and the host.
 */

import { Fatal, type State, effects, log } from "twice-node";

interface Input {
  order_id: string;
  amount_cents: number;
  paid_cents: number;
  reason?: string | null;
}

/** What the tool lets a node see of the provider's refund. */
interface Refund {
  id: string;
  status: string;
}

interface Output {
  refund_id: string;
  status: string;
  amount_cents: number;
}

export default function refund({ input }: State<Input>): Output {
  const { order_id, amount_cents, paid_cents, reason } = input;
  if (!(amount_cents > 0 && amount_cents <= paid_cents)) {
    throw new Fatal(`${amount_cents} cents cannot be refunded: ${paid_cents} were paid for ${order_id}`);
  }
  // Started again after a crash, this returns the recorded receipt: the money moves at most once.
  const { effectId, body } = effects.request<Refund>("refund", {
    order_id,
    amount_cents,
    reason: reason ?? "requested by the customer",
  });
  log.info(`${order_id}: ${amount_cents} cents refunded (${effectId})`);
  return { refund_id: body.id, status: body.status, amount_cents };
}
