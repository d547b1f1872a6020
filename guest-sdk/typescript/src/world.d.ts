/** The imports of the world, as the engine has them. */

declare module "twice:node/effects@0.1.0" {
  export interface EffectRequest {
    slot: string;
    item: number | null;
    args: string;
  }
  export interface Receipt {
    effectId: string;
    body: string;
  }
  export type EffectError =
    | { tag: "failed"; val: { code: string; message: string } }
    | { tag: "denied"; val: { policy: string; message: string } };
  export function request(request: EffectRequest): Receipt;
  export function requestAll(
    requests: EffectRequest[],
  ): ({ tag: "ok"; val: Receipt } | { tag: "err"; val: EffectError })[];
}

declare module "twice:node/context@0.1.0" {
  export function runId(): string;
  export function node(): string;
  export function visit(): number;
  export function attempt(): number;
  export function now(): number;
  export function random(count: number): Uint8Array;
}

declare module "twice:node/log@0.1.0" {
  export type Level = "debug" | "info" | "warn" | "error";
  export function write(level: Level, message: string): void;
}

interface Console {
  debug(...values: unknown[]): void;
  log(...values: unknown[]): void;
  info(...values: unknown[]): void;
  warn(...values: unknown[]): void;
  error(...values: unknown[]): void;
}

declare var console: Console;
