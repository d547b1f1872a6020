/**
 * Write nodes for Twice in AssemblyScript.
 *
 * A node is one function, `node`, exported by `assembly/index.ts`. It gets the state of its run, computes, requests effects from the
 * host, and returns how it ended. It never touches the world itself. In return it may be started any number of times, after any
 * crash: what it requested before is answered from the ledger, and nothing happens a second time.
 */

import * as abi from "./abi";
import * as context from "./context";
import { Json } from "./json";
import * as log from "./log";

export { Json, Kind } from "./json";
export { context, log };

/** The state of the run. */
export class State {
  constructor(
    /** The run's input. */
    readonly input: Json,
    /** An object with the last output of each node that has run, of those whose order before or behind this one is fixed. */
    readonly nodes: Json,
    /** The element that this step is about, in a fan-out; else absent. */
    readonly element: Json,
  ) {}
}

/** How a node ended. */
export class End {
  constructor(
    readonly how: How,
    /** The output as JSON, or a message. */
    readonly said: string,
  ) {}
}

export enum How {
  Returned,
  Retryable,
  Fatal,
}

/** Ends the node with an output: JSON, a text, a bool or a number. */
export function output<T>(value: T): End {
  return new End(How.Returned, Json.of<T>(value).toString());
}

/** Starts the step again later, with backoff, as often as the workflow allows. What was confirmed meanwhile stays so. */
export function retryable(message: string): End {
  return new End(How.Retryable, message);
}

/** Ends the run: it fails once each of its effects is known to have happened or not. */
export function fatal(message: string): End {
  return new End(How.Fatal, message);
}

/** Ends the run, since its state is not what the node expects. */
export function unfit(problem: string): End {
  return fatal(`the state does not fit the types of this node: ${problem}`);
}

export enum Outcome {
  Confirmed,
  /** It did not happen. Final: a restarted node gets the same. */
  Failed,
  /** It is not allowed, and was not sent. Final. */
  Denied,
}

/** What became of a request. */
export class Answer {
  /** The effect's id in the ledger, `eff_…`, if it is confirmed. */
  effectId: string = "";
  /** What the tool lets a node see of the provider's result, if it is confirmed. */
  body: Json = Json.absent;
  /** If it failed: a stable word, such as the provider's error code, `http_402` or `exhausted`. */
  code: string = "";
  /** If it is denied: what refused. */
  policy: string = "";
  /** For people, if it is not confirmed. */
  message: string = "";

  constructor(
    readonly slot: string,
    readonly outcome: Outcome,
  ) {}

  get isConfirmed(): bool {
    return this.outcome == Outcome.Confirmed;
  }

  /** Ends the run because of a refusal. */
  refused(): End {
    if (this.outcome == Outcome.Denied) return fatal(`\`${this.slot}\` is denied by ${this.policy}: ${this.message}`);
    return fatal(`\`${this.slot}\` failed with ${this.code}: ${this.message}`);
  }

  /** Ends the run because the effect happened, but its receipt is not what the node expects. */
  misfit(problem: string): End {
    return fatal(
      `\`${this.slot}\` happened (${this.effectId}), but its receipt does not fit the node's type: ${problem}`,
    );
  }
}

/** One request. */
export class Call {
  /** Whether `item` counts. */
  hasItem: bool = false;
  item: u32 = 0;

  constructor(
    readonly slot: string,
    readonly args: Json,
  ) {}

  /** A request for element `item`, from 0, of the array that the workflow bound to the slot with `for_each`. */
  static forItem(slot: string, item: u32, args: Json): Call {
    const call = new Call(slot, args);
    call.hasItem = true;
    call.item = item;
    return call;
  }
}

/**
 * Requests the effect that the workflow grants under `slot`. A request that cannot be answered yet does not return: the host drops
 * the instance, and starts the node again from the beginning when the answer is known.
 */
export function request(slot: string, args: Json): Answer {
  return perform(new Call(slot, args));
}

/** Requests the effect for element `item`, from 0, of the array that the workflow bound to `slot` with `for_each`. */
export function requestItem(slot: string, item: u32, args: Json): Answer {
  return perform(Call.forItem(slot, item, args));
}

/**
 * Requests several, which the host performs concurrently. The answers stand in the order of the calls. When one cannot be
 * answered yet, none is: the node starts again when all can.
 */
export function requestAll(calls: Call[]): Answer[] {
  const count = calls.length;
  // The texts are kept alive by this list while the host reads them.
  const args = new Array<string>(count);
  for (let i = 0; i < count; i++) args[i] = calls[i].args.toString();
  const requests = heap.alloc(<usize>count * abi.REQUEST);
  for (let i = 0; i < count; i++) {
    const at = requests + <usize>i * abi.REQUEST;
    const call = calls[i];
    abi.lower(at, call.slot);
    store<u32>(at, u32(call.hasItem), 8);
    store<u32>(at, call.item, 12);
    abi.lower(at + 16, args[i]);
  }
  abi.requestAll(requests, count, abi.out);
  heap.free(requests);
  const first = load<usize>(abi.out);
  const answers = new Array<Answer>(count);
  for (let i = 0; i < count; i++) answers[i] = answered(calls[i].slot, first + <usize>i * abi.ANSWER);
  if (count > 0) heap.free(first);
  return answers;
}

function perform(call: Call): Answer {
  const slot = call.slot;
  const args = call.args.toString();
  abi.request(
    changetype<usize>(slot),
    slot.length,
    call.hasItem,
    call.item,
    changetype<usize>(args),
    args.length,
    abi.out,
  );
  return answered(slot, abi.out);
}

function answered(slot: string, at: usize): Answer {
  if (load<u8>(at) == 0) {
    const answer = new Answer(slot, Outcome.Confirmed);
    answer.effectId = abi.lift(at + 4);
    answer.body = Json.read(abi.lift(at + 12));
    return answer;
  }
  const isDenied = load<u8>(at, 4) == 1;
  const answer = new Answer(slot, isDenied ? Outcome.Denied : Outcome.Failed);
  const reason = abi.lift(at + 8);
  answer.message = abi.lift(at + 16);
  if (isDenied) answer.policy = reason;
  else answer.code = reason;
  return answer;
}

/** Kept until the host has read it. */
let said: string = "";

/** Runs the node. The entry that `twice node build` writes calls it. */
export function start(at: usize, units: i32, node: (state: State) => End): usize {
  const whole = Json.read(abi.take(at, units));
  const input = whole.get("input");
  const element = whole.get("element");
  const state = new State(input, whole.get("nodes"), element.isNull ? Json.absent : element);
  const end = input.isAbsent ? unfit("there is no `input`") : node(state);
  said = end.said;
  const isFailed = end.how != How.Returned;
  store<u8>(abi.result, u8(isFailed));
  store<u8>(abi.result, u8(end.how == How.Fatal), 4);
  abi.lower(abi.result + (isFailed ? 8 : 4), said);
  return abi.result;
}

/** Gives back what the host has read. */
export function finish(_: usize): void {
  said = "";
}
