import type * as wit from "twice:node/effects@0.1.0";

import { describe } from "./describe.js";
import { EffectError, Fatal, NodeError, Retryable } from "./errors.js";
import * as json from "./json.js";
import * as log from "./log.js";

/**
 * The state of a run. `Input` is the type of the run's input; `Nodes` has one field for each node whose output this one
 * reads, named as in the workflow; `Element` is what the elements are of the array that the node fans out over.
 */
export interface State<Input = any, Nodes = Record<string, any>, Element = any> {
  /** The run's input. */
  readonly input: Input;
  /** The last output of each node that has run, of those whose order before or behind this one is fixed. */
  readonly nodes: Nodes;
  /** The element that this step is about, in a fan-out. */
  readonly element?: Element;
}

/**
 * Runs a node on JSON text and returns the text of its output, as the host does. A node's tests can call it.
 *
 * @throws {@link Retryable} or {@link Fatal} where the node throws it, and Fatal for an effect's error that it does not
 * catch, be it of a typed function, and for an output that is no JSON. Everything else comes through as it was thrown.
 */
export function run(input: string, node: (state: any) => unknown): string {
  let output: unknown;
  try {
    output = node(JSON.parse(input));
  } catch (error) {
    const refusal = error instanceof EffectError ? error.message : refusalOf(error);
    throw refusal === undefined ? error : new Fatal(refusal);
  }
  if (output instanceof Promise) {
    throw new Fatal("the node is an async function; every request has its answer when it returns, so leave `async` out");
  }
  try {
    return json.write(output);
  } catch (error) {
    throw new Fatal(`the output is no JSON: ${(error as Error).message}`);
  }
}

/** What a typed function of a tool threw for its refusal, in words; it is as final as an {@link EffectError}. */
function refusalOf(thrown: unknown): string | undefined {
  const payload = (thrown as { payload?: unknown } | null | undefined)?.payload;
  if (typeof payload === "string") return payload;
  const { tag, val } = (payload ?? {}) as Partial<wit.EffectError>;
  if (tag === "failed" && val !== undefined) return `failed with ${val.code}: ${val.message}`;
  if (tag === "denied" && val !== undefined) return `denied by ${val.policy}: ${val.message}`;
  return undefined;
}

/** The export of the world: {@link run}, with its errors as the host takes them. */
export function exported(node: (state: any) => unknown): (input: string) => string {
  return (input) => {
    try {
      return run(input, node);
    } catch (error) {
      if (error instanceof NodeError) {
        throw { tag: error instanceof Retryable ? "retryable" : "fatal", val: error.message };
      }
      // A trap carries no text: the log is the only place where its reason can be found.
      log.error(error instanceof Error ? describe(error) : `thrown: ${describe(error)}`);
      throw new Error("the error that the node logged last");
    }
  };
}
