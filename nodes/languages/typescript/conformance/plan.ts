/** What a test asks of a node. */

export interface Plan {
  /** For nodes that are not named below. */
  steps?: Step[];
  nodes?: Record<string, Step[]>;
}

export interface Call {
  slot: string;
  item?: number;
  args?: unknown;
}

interface When {
  /** The step is left out from this attempt on. */
  until_attempt?: number;
  /** The step is left out from this visit on. */
  until_visit?: number;
  /** The step is left out before this visit. */
  from_visit?: number;
}

export type Step = When &
  (
    | ({ do: "request"; must?: boolean } & Call)
    | { do: "request_all"; requests: Call[] }
    | { do: "request_big"; slot: string; bytes: number }
    | { do: "request_deep"; slot: string; depth: number }
    | { do: "request_volatile"; slot: string }
    | { do: "retryable" | "fatal" | "panic" | "print"; message: string }
    | { do: "log"; level: "debug" | "info" | "warn" | "error"; message: string }
    | { do: "random"; count: number }
    | { do: "trap" | "now" | "context" | "nodes" | "native" }
    | { do: "return"; output: unknown }
  );

export function isLeftOut({ until_attempt, until_visit, from_visit }: When, attempt: number, visit: number): boolean {
  return (
    attempt >= (until_attempt ?? Infinity) || visit >= (until_visit ?? Infinity) || visit < (from_visit ?? 0)
  );
}
