/** `value` as a person reads it: texts as they are, errors with their stack and cause, anything else as JSON if it can be. */
export function describe(value: unknown): string {
  if (typeof value === "string") return value;
  if (value instanceof Error) {
    const own = `${value}\n${value.stack ?? ""}`.trimEnd();
    return value.cause === undefined ? own : `${own}\ncaused by: ${describe(value.cause)}`;
  }
  if (typeof value !== "object" || value === null) return String(value);
  try {
    return JSON.stringify(value);
  } catch {
    return String(value);
  }
}
