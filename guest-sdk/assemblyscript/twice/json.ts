/** JSON, which AssemblyScript's library does not have. Numbers keep their digits until they are read. */

export enum Kind {
  /** What a member that is not there is. Where one is written, it becomes null. */
  Absent,
  Null,
  Bool,
  Number,
  Text,
  Array,
  Object,
}

/** One JSON value. */
export class Json {
  private constructor(
    readonly kind: Kind,
    /** The digits of a number, a text, or "true" or "false". */
    private readonly said: string = "",
    /** The elements of an array, or what the members of an object are. */
    private readonly values: Json[] = [],
    private readonly names: string[] = [],
  ) {}

  static readonly absent: Json = new Json(Kind.Absent);
  static readonly null: Json = new Json(Kind.Null);

  /** An empty object, to be filled with `set`. */
  static object(): Json {
    return new Json(Kind.Object);
  }

  /** An empty array, to be filled with `push`. */
  static array(): Json {
    return new Json(Kind.Array);
  }

  /** JSON of a text, a bool, a number, or of JSON itself. A number that JSON does not have (infinite, or none) is null. */
  static of<T>(value: T): Json {
    if (value instanceof Json) return value;
    if (isString<T>()) return new Json(Kind.Text, <string>value);
    if (isBoolean<T>()) return new Json(Kind.Bool, value ? "true" : "false");
    if (isFloat<T>()) return isFinite(<f64>value) ? new Json(Kind.Number, (<f64>value).toString()) : Json.null;
    if (isInteger<T>()) return new Json(Kind.Number, value.toString());
    ERROR("JSON is made of a text, a bool, a number or Json");
  }

  /** Reads a text. Absent if it is not well-formed. */
  static read(text: string): Json {
    const reader = new Reader(text);
    const value = reader.value();
    reader.space();
    return reader.isAtEnd ? value : Json.absent;
  }

  static raw(kind: Kind, said: string, values: Json[], names: string[]): Json {
    return new Json(kind, said, values, names);
  }

  /** Sets a member of an object, behind those that are there. */
  set<T>(name: string, value: T): Json {
    this.names.push(name);
    this.values.push(Json.of<T>(value));
    return this;
  }

  /** Adds an element to an array. */
  push<T>(value: T): Json {
    this.values.push(Json.of<T>(value));
    return this;
  }

  /** The member `name` of an object. Absent if there is none, or if this is no object. */
  get(name: string): Json {
    const index = this.names.indexOf(name);
    return index < 0 ? Json.absent : this.values[index];
  }

  /** The element at `index` of an array, or member of an object. Absent if there is none. */
  at(index: i32): Json {
    return index < 0 || index >= this.values.length ? Json.absent : this.values[index];
  }

  /** The name of the member at `index` of an object. */
  nameAt(index: i32): string {
    return index < 0 || index >= this.names.length ? "" : this.names[index];
  }

  /** How many elements or members there are. */
  get length(): i32 {
    return this.values.length;
  }

  get isAbsent(): bool {
    return this.kind == Kind.Absent;
  }
  get isNull(): bool {
    return this.kind == Kind.Null;
  }
  get isText(): bool {
    return this.kind == Kind.Text;
  }
  /** Whether it is a number that `u64` gives as it is: whole, not negative, and without a fraction or an exponent. */
  get isU64(): bool {
    return this.kind == Kind.Number && fits(this.said, 0, u64.MAX_VALUE);
  }
  /** Whether it is a number that `i64` gives as it is. */
  get isI64(): bool {
    if (this.kind != Kind.Number) return false;
    const isNegative = this.said.charCodeAt(0) == Char.Minus;
    return fits(this.said, i32(isNegative), <u64>i64.MAX_VALUE + u64(isNegative));
  }

  /** The text, or another if this is none. */
  text(otherwise: string = ""): string {
    return this.isText ? this.said : otherwise;
  }
  /** The truth, or another if this is none. */
  bool(otherwise: bool = false): bool {
    return this.kind == Kind.Bool ? this.said == "true" : otherwise;
  }
  /** The whole number, or another if this is none that fits. */
  u64(otherwise: u64 = 0): u64 {
    return this.isU64 ? U64.parseInt(this.said) : otherwise;
  }
  /** The whole number, or another if this is none that fits. */
  i64(otherwise: i64 = 0): i64 {
    return this.isI64 ? I64.parseInt(this.said) : otherwise;
  }
  /** The whole number, or another if this is none that fits. */
  u32(otherwise: u32 = 0): u32 {
    const wide = this.u64(u64.MAX_VALUE);
    return wide > u32.MAX_VALUE ? otherwise : <u32>wide;
  }
  /** The number, or another if this is none. */
  f64(otherwise: f64 = 0): f64 {
    return this.kind == Kind.Number ? parseFloat(this.said) : otherwise;
  }

  toString(): string {
    const writer = new Writer();
    this.write(writer);
    return writer.toString();
  }

  private write(into: Writer): void {
    switch (this.kind) {
      case Kind.Absent:
      case Kind.Null:
        into.put("null");
        break;
      case Kind.Bool:
      case Kind.Number:
        into.put(this.said);
        break;
      case Kind.Text:
        into.quote(this.said);
        break;
      case Kind.Array:
        into.unit(Char.OpenBracket);
        for (let i = 0; i < this.values.length; i++) {
          if (i > 0) into.unit(Char.Comma);
          this.values[i].write(into);
        }
        into.unit(Char.CloseBracket);
        break;
      case Kind.Object:
        into.unit(Char.OpenBrace);
        for (let i = 0; i < this.values.length; i++) {
          if (i > 0) into.unit(Char.Comma);
          into.quote(this.names[i]);
          into.unit(Char.Colon);
          this.values[i].write(into);
        }
        into.unit(Char.CloseBrace);
        break;
    }
  }
}

/** Whether the digits from `from` on are a whole number of at most `most`. */
function fits(digits: string, from: i32, most: u64): bool {
  let sum: u64 = 0;
  for (let i = from; i < digits.length; i++) {
    const digit = <u64>(digits.charCodeAt(i) - Char.Zero);
    if (digit > 9 || sum > (most - digit) / 10) return false;
    sum = sum * 10 + digit;
  }
  return digits.length > from;
}

const enum Char {
  Quote = 0x22,
  Plus = 0x2b,
  Comma = 0x2c,
  Minus = 0x2d,
  Dot = 0x2e,
  Zero = 0x30,
  Nine = 0x39,
  Colon = 0x3a,
  UpperE = 0x45,
  OpenBracket = 0x5b,
  Backslash = 0x5c,
  CloseBracket = 0x5d,
  LowerE = 0x65,
  LowerU = 0x75,
  OpenBrace = 0x7b,
  CloseBrace = 0x7d,
}

/** A text that grows. Adding strings to one another would copy all of it each time. */
class Writer {
  private units: StaticArray<u16> = new StaticArray<u16>(64);
  private length: i32 = 0;

  private reserve(more: i32): void {
    if (this.length + more <= this.units.length) return;
    const grown = new StaticArray<u16>((this.length + more) * 2);
    memory.copy(changetype<usize>(grown), changetype<usize>(this.units), <usize>this.length << 1);
    this.units = grown;
  }

  unit(unit: i32): void {
    this.reserve(1);
    unchecked((this.units[this.length++] = <u16>unit));
  }

  put(text: string): void {
    this.span(text, 0, text.length);
  }

  span(text: string, from: i32, to: i32): void {
    this.reserve(to - from);
    memory.copy(
      changetype<usize>(this.units) + (<usize>this.length << 1),
      changetype<usize>(text) + (<usize>from << 1),
      <usize>(to - from) << 1,
    );
    this.length += to - from;
  }

  quote(text: string): void {
    this.unit(Char.Quote);
    let plain = 0;
    for (let i = 0; i < text.length; i++) {
      const unit = text.charCodeAt(i);
      if (unit >= 0x20 && unit != Char.Quote && unit != Char.Backslash) continue;
      this.span(text, plain, i);
      plain = i + 1;
      this.unit(Char.Backslash);
      if (unit >= 0x20) {
        this.unit(unit);
      } else {
        this.put("u00");
        this.unit(Char.Zero + (unit >> 4));
        this.unit("0123456789abcdef".charCodeAt(unit & 15));
      }
    }
    this.span(text, plain, text.length);
    this.unit(Char.Quote);
  }

  toString(): string {
    return String.UTF16.decodeUnsafe(changetype<usize>(this.units), <usize>this.length << 1);
  }
}

/** Reads JSON. Where it is not well-formed, the reader stops, and is not at its end. */
class Reader {
  private place: i32 = 0;
  private isWrong: bool = false;

  constructor(private readonly text: string) {}

  get isAtEnd(): bool {
    return !this.isWrong && this.place == this.text.length;
  }

  space(): void {
    for (; ; this.place++) {
      const unit = this.peek();
      if (unit != 0x20 && unit != 0x0a && unit != 0x0d && unit != 0x09) return;
    }
  }

  value(): Json {
    this.space();
    const unit = this.peek();
    if (unit == Char.OpenBrace || unit == Char.OpenBracket) return this.list(unit == Char.OpenBrace);
    if (unit == Char.Quote) return Json.of(this.quoted());
    if (unit == Char.Minus || isDigit(unit)) return this.number();
    if (this.skip("null")) return Json.null;
    if (this.skip("true")) return Json.of(true);
    if (this.skip("false")) return Json.of(false);
    return this.wrong();
  }

  private wrong(): Json {
    this.isWrong = true;
    return Json.absent;
  }

  /** The unit at the place, or -1 at the end. */
  private peek(): i32 {
    return this.place < this.text.length ? this.text.charCodeAt(this.place) : -1;
  }

  private skipUnit(unit: i32): bool {
    if (this.peek() != unit) return false;
    this.place++;
    return true;
  }

  private skip(word: string): bool {
    if (!this.text.startsWith(word, this.place)) return false;
    this.place += word.length;
    return true;
  }

  /** An object or an array. */
  private list(isObject: bool): Json {
    const close = isObject ? Char.CloseBrace : Char.CloseBracket;
    const values: Json[] = [];
    const names: string[] = [];
    this.place++;
    this.space();
    let isDone = this.skipUnit(close);
    while (!isDone) {
      if (isObject) {
        this.space();
        names.push(this.quoted());
        this.space();
        if (!this.skipUnit(Char.Colon)) return this.wrong();
      }
      values.push(this.value());
      this.space();
      isDone = this.skipUnit(close);
      if (this.isWrong || (!isDone && !this.skipUnit(Char.Comma))) return this.wrong();
    }
    return Json.raw(isObject ? Kind.Object : Kind.Array, "", values, names);
  }

  private number(): Json {
    const from = this.place;
    this.skipUnit(Char.Minus);
    const isRight =
      (this.skipUnit(Char.Zero) || this.digits()) &&
      (!this.skipUnit(Char.Dot) || this.digits()) &&
      (!(this.skipUnit(Char.LowerE) || this.skipUnit(Char.UpperE)) || this.exponent());
    if (!isRight) return this.wrong();
    return Json.raw(Kind.Number, this.text.substring(from, this.place), [], []);
  }

  private exponent(): bool {
    if (!this.skipUnit(Char.Plus)) this.skipUnit(Char.Minus);
    return this.digits();
  }

  private digits(): bool {
    const from = this.place;
    while (isDigit(this.peek())) this.place++;
    return this.place > from;
  }

  /** A text in quotes. */
  private quoted(): string {
    if (!this.skipUnit(Char.Quote)) {
      this.isWrong = true;
      return "";
    }
    let from = this.place;
    let writer: Writer | null = null;
    for (; ; this.place++) {
      const unit = this.peek();
      if (unit == Char.Quote) break;
      if (unit < 0x20) {
        this.isWrong = true;
        return "";
      }
      if (unit != Char.Backslash) continue;
      if (writer === null) writer = new Writer();
      writer.span(this.text, from, this.place++);
      writer.unit(this.escaped());
      from = this.place + 1;
    }
    const to = this.place++;
    if (writer === null) return this.text.substring(from, to);
    writer.span(this.text, from, to);
    return writer.toString();
  }

  /** What an escape stands for; the place is behind its backslash, and goes to its last unit. */
  private escaped(): i32 {
    const unit = this.peek();
    if (unit == Char.LowerU) return this.hex();
    const index = unit < 0 ? -1 : '"\\/bfnrt'.indexOf(String.fromCharCode(unit));
    if (index < 0) this.isWrong = true;
    return index < 0 ? 0xfffd : '"\\/\b\f\n\r\t'.charCodeAt(index);
  }

  /** One unit of UTF-16, in four digits: two of them may make one character, as they do in a string. */
  private hex(): i32 {
    let unit = 0;
    for (let i = 0; i < 4; i++) {
      this.place++;
      const digit = hexDigit(this.peek());
      if (digit < 0) this.isWrong = true;
      unit = (unit << 4) | digit;
    }
    return unit;
  }
}

function isDigit(unit: i32): bool {
  return unit >= Char.Zero && unit <= Char.Nine;
}

function hexDigit(unit: i32): i32 {
  if (isDigit(unit)) return unit - Char.Zero;
  const lower = unit | 0x20;
  return lower >= 0x61 && lower <= 0x66 ? lower - 0x61 + 10 : -1;
}
