/** Requests for effects, the only way in which a node reaches the world. */

import * as wit from "twice:node/effects@0.1.0";

import { Denied, type EffectError, Failed, NotJson } from "./errors.js";
import * as json from "./json.js";

/** The proof that an effect happened. */
export interface Receipt<Body = any> {
  /** The effect's id in the ledger, `eff_…`. */
  readonly effectId: string;
  /** What the tool lets a node see of the provider's result. */
  readonly body: Body;
}

/** One request of a list. */
export interface Request {
  /** The name under which the workflow grants the effect to this node. */
  readonly slot: string;
  /** The arguments of the tool's operation; null when left out. */
  readonly args?: unknown;
  /** Which element of the array that the workflow bound to the slot, from 0. Given exactly when it is bound with `for_each`. */
  readonly item?: number | undefined;
}

/**
 * Requests the effect that the workflow grants under `slot`, for element `item` (from 0) when the workflow bound an array
 * to it with `for_each`.
 *
 * @throws {@link Failed} when it did not happen, {@link Denied} when it is not allowed, {@link NotJson} for its arguments.
 */
export function request<Body = any>(slot: string, args?: unknown, item?: number): Receipt<Body> {
  const prepared = prepare({ slot, args, item });
  let receipt: wit.Receipt;
  try {
    receipt = wit.request(prepared);
  } catch (error) {
    throw refusal(slot, error);
  }
  return read(receipt);
}

/**
 * Requests all of a list; the host performs them concurrently. The answers stand in the order of the requests, and an
 * effect that failed or is denied has its error there instead of a receipt. When one cannot be answered yet, none is: the
 * node starts again when all can.
 *
 * @throws {@link NotJson} when the arguments of one cannot be written; nothing was requested then.
 */
export function requestAll<Body = any>(
  requests: readonly Request[],
): (Receipt<Body> | Failed | Denied)[] {
  const answers = wit.requestAll(requests.map(prepare));
  return requests.map(({ slot }, i) => {
    const answer = answers[i]!;
    return answer.tag === "ok" ? read(answer.val) : known(slot, answer.val);
  });
}

function prepare({ slot, args, item }: Request): wit.EffectRequest {
  try {
    return { slot, item: item ?? null, args: json.write(args) };
  } catch (error) {
    throw new NotJson(slot, `the arguments of \`${slot}\` are no JSON: ${(error as Error).message}`);
  }
}

function read<Body>({ effectId, body }: wit.Receipt): Receipt<Body> {
  return { effectId, body: JSON.parse(body) };
}

/** What an import throws for the error of its result is an `Error` that holds it. */
function refusal(slot: string, thrown: unknown): EffectError {
  const error = (thrown as { payload?: wit.EffectError }).payload;
  return error === undefined ? (thrown as EffectError) : known(slot, error);
}

function known(slot: string, error: wit.EffectError): Failed | Denied {
  return error.tag === "failed"
    ? new Failed(slot, error.val.code, error.val.message)
    : new Denied(slot, error.val.policy, error.val.message);
}
