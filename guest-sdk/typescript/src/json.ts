/**
 * `value` as JSON text. `undefined` is null where it stands for the whole, and a member that is `undefined` is left out.
 *
 * @throws TypeError for what JSON cannot say, with its place. `JSON.stringify` alone would make null of an infinite amount,
 * `{}` of a Map, and nothing of a function.
 */
export function write(value: unknown): string {
  // The objects around the value that is being written, outermost first, with their places.
  const around: { readonly value: unknown; readonly place: string }[] = [];
  const text = JSON.stringify(value ?? null, function (this: unknown, key: string, value: unknown): unknown {
    while (around.length > 0 && around.at(-1)!.value !== this) around.pop();
    const holder = around.at(-1);
    const place = holder === undefined ? "" : `${holder.place}/${key.replaceAll("~", "~0").replaceAll("/", "~1")}`;
    const what = unsayable(value, Array.isArray(this));
    if (what !== undefined) throw new TypeError(`${place === "" ? "" : `${place}: `}${what} cannot be written`);
    if (typeof value === "object" && value !== null) around.push({ value, place });
    return value;
  });
  return text ?? "null";
}

/** What `value` is, if JSON cannot say it. */
function unsayable(value: unknown, inArray: boolean): string | undefined {
  switch (typeof value) {
    case "number":
      return Number.isFinite(value) ? undefined : String(value);
    case "undefined":
      return inArray ? "undefined in an array" : undefined;
    case "function":
    case "symbol":
    case "bigint":
      return `a ${typeof value}`;
    case "object":
      return opaque.some((kind) => value instanceof kind) ? `a ${value!.constructor.name}` : undefined;
    default:
      return undefined;
  }
}

/** Objects whose content is in no member. */
const opaque = [Map, Set, WeakMap, WeakSet, Promise, RegExp, ArrayBuffer];
