/** What every author expects to be there, and the engine lacks or has fixed at build time. */

import * as context from "./context.js";
import { describe } from "./describe.js";
import * as log from "./log.js";

const printed =
  (write: (message: string) => void) =>
  (...values: unknown[]): void =>
    write(values.map(describe).join(" "));

globalThis.console ??= {
  debug: printed(log.debug),
  log: printed(log.info),
  info: printed(log.info),
  warn: printed(log.warn),
  error: printed(log.error),
};

// The component is a snapshot of an engine that has run the module's top level, its generator seeded: its numbers would be
// the same in every run. There is no host yet while the snapshot is taken.
const built = Math.random;
let started = false;

Math.random = () => {
  if (!started) return built();
  const bytes = new DataView(context.random(8).slice().buffer);
  return (bytes.getUint32(0) * 2 ** 21 + (bytes.getUint32(4) >>> 11)) / 2 ** 53;
};

/** From here on there is a host to ask. */
export function start(): void {
  started = true;
}
