/**
 * `value` as JSON text, `undefined` as null.
 *
 * @throws TypeError for what JSON cannot say. `JSON.stringify` alone would make null of an infinite amount.
 */
export function write(value: unknown): string {
  return JSON.stringify(value ?? null, finite) ?? refuse(value);
}

function finite(_key: string, value: unknown): unknown {
  return typeof value === "number" && !Number.isFinite(value) ? refuse(value) : value;
}

function refuse(value: unknown): never {
  throw new TypeError(`${String(value)} cannot be written`);
}
