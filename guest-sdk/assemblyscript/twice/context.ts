/** What a node may know about where it runs. All of it is durable: a node that is started again sees the same values. */

import * as abi from "./abi";

/** The id of the run. */
export function runId(): string {
  abi.runId(abi.out);
  return abi.lift(abi.out);
}

/** The name of the node in the workflow. */
export function node(): string {
  abi.node(abi.out);
  return abi.lift(abi.out);
}

/** Which visit of the node in this run, from 1. */
export function visit(): u32 {
  return abi.visit();
}

/** Which attempt of this visit, from 1. For logs: nothing that is requested may depend on it. */
export function attempt(): u32 {
  return abi.attempt();
}

/**
 * Milliseconds since 1970-01-01T00:00:00Z: when the step became due, moved forward by each answered effect to the time of its
 * answer.
 */
export function now(): u64 {
  return abi.now();
}

/** The next random bytes, at most 65,536. Not secret: whoever knows the run can compute them. */
export function random(count: u32): StaticArray<u8> {
  const bytes = new StaticArray<u8>(<i32>count);
  abi.random(count, abi.out);
  const at = load<usize>(abi.out);
  if (count > 0) {
    memory.copy(changetype<usize>(bytes), at, count);
    heap.free(at);
  }
  return bytes;
}
