/**
 * Write nodes for Twice in JavaScript or TypeScript.
 *
 * A node is the default export of its main file, one plain function. It gets the state of its run, computes, *requests*
 * effects from the host, and returns an output. It never touches the world itself. In return it may be started any number
 * of times, after any crash: what it requested before is answered from the ledger, and nothing happens a second time.
 *
 * ```js
 * import { Fatal, effects, log } from "twice-node";
 *
 * export default function refund({ input }) {
 *   if (input.amount_cents === 0) throw new Fatal("there is nothing to refund");
 *   log.info(`refunding ${input.amount_cents} cents of ${input.order_id}`);
 *   const { body } = effects.request("refund", { order_id: input.order_id, amount_cents: input.amount_cents });
 *   return { refund_id: body.id };
 * }
 * ```
 */

export * as context from "./context.js";
export * as effects from "./effects.js";
export * as log from "./log.js";
export { Denied, EffectError, Failed, Fatal, NodeError, NotJson, Retryable } from "./errors.js";
export { run } from "./node.js";
export type { State } from "./node.js";
