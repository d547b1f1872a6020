/** The border: the canonical ABI of `wit/node.wit`, with texts as AssemblyScript has them (UTF-16). */

/** The size of an effect-request. */
export const REQUEST: usize = 24;
/** The size of a result<receipt, effect-error>. */
export const ANSWER: usize = 24;

/** Where the host writes what does not fit into a number. */
export const out: usize = memory.data(24, 8);
/** Where the node's own result stands until the host has read it. */
export const result: usize = memory.data(16, 8);

@external("twice:node/effects@0.1.0", "request")
export declare function request(
  slot: usize,
  slotUnits: i32,
  hasItem: bool,
  item: u32,
  args: usize,
  argsUnits: i32,
  out: usize,
): void;

@external("twice:node/effects@0.1.0", "request-all")
export declare function requestAll(requests: usize, count: i32, out: usize): void;

@external("twice:node/context@0.1.0", "run-id")
export declare function runId(out: usize): void;

@external("twice:node/context@0.1.0", "node")
export declare function node(out: usize): void;

@external("twice:node/context@0.1.0", "visit")
export declare function visit(): u32;

@external("twice:node/context@0.1.0", "attempt")
export declare function attempt(): u32;

@external("twice:node/context@0.1.0", "now")
export declare function now(): u64;

@external("twice:node/context@0.1.0", "random")
export declare function random(count: u32, out: usize): void;

@external("twice:node/context@0.1.0", "random-u64")
export declare function randomU64(): u64;

@external("twice:node/log@0.1.0", "write")
export declare function write(level: u32, message: usize, units: i32): void;

/** What the host writes goes here. It is no object, so the collector does not touch it; `take` gives it back. */
export function realloc(old: usize, oldBytes: usize, align: usize, bytes: usize): usize {
  // A pointer to nothing needs only its alignment.
  if (bytes == 0) return align;
  return old == 0 || oldBytes == 0 ? heap.alloc(bytes) : heap.realloc(old, bytes);
}

/** Makes a string of what the host has written. */
export function take(at: usize, units: i32): string {
  if (units == 0) return "";
  const text = String.UTF16.decodeUnsafe(at, <usize>units << 1);
  heap.free(at);
  return text;
}

/** The text whose place and length stand at `at`. */
export function lift(at: usize): string {
  return take(load<usize>(at), load<i32>(at, 4));
}

/** Stores where a text stands, which must be kept alive. */
export function lower(at: usize, text: string): void {
  store<usize>(at, changetype<usize>(text));
  store<i32>(at, text.length, 4);
}
