/** What AssemblyScript's library wants of its surroundings. `twice node build` puts these in its place. */

import * as abi from "./abi";
import * as log from "./log";

/** An error that is thrown, or an assertion that does not hold. A trap carries no text, so the reason goes to the log first. */
export function abort(message: string | null, file: string | null, line: u32, column: u32): void {
  const reason = message === null ? "aborted" : message;
  const place = file === null ? "" : file;
  log.error(`${reason} (${place}:${line}:${column})`);
  unreachable();
}

/** What Math.random starts from. */
export function seed(): f64 {
  return reinterpret<f64>(abi.randomU64());
}
