/** Ends the node without an output. Throw one of its kinds: {@link Retryable} or {@link Fatal}. */
export abstract class NodeError extends Error {}

/** Asks for a restart of the step later, as often as the workflow allows. What was confirmed meanwhile stays so. */
export class Retryable extends NodeError {
  override name = "Retryable";
}

/** Ends the run, once each of its effects is known to have happened or not. */
export class Fatal extends NodeError {
  override name = "Fatal";
}

/**
 * Why there is no receipt. It is final: a restarted node gets the same, so that a node that does not catch it ends as
 * {@link Fatal}. An outcome that is not known is no error; the request then does not return.
 */
export abstract class EffectError extends Error {
  constructor(
    /** The slot that was requested. */
    readonly slot: string,
    message: string,
  ) {
    super(message);
  }
}

/** It did not happen. */
export class Failed extends EffectError {
  override name = "Failed";

  constructor(
    slot: string,
    /** A stable word, such as the provider's error code, `http_402` or `exhausted`. */
    readonly code: string,
    /** For people. */
    readonly reason: string,
  ) {
    super(slot, `\`${slot}\` failed with ${code}: ${reason}`);
  }
}

/** It is not allowed, and was not sent. */
export class Denied extends EffectError {
  override name = "Denied";

  constructor(
    slot: string,
    /** The policy that refused. */
    readonly policy: string,
    /** For people. */
    readonly reason: string,
  ) {
    super(slot, `\`${slot}\` is denied by ${policy}: ${reason}`);
  }
}

/** The arguments cannot be written as JSON. Nothing was requested. */
export class NotJson extends EffectError {
  override name = "NotJson";
}
