/** The run's log. Messages longer than 8 KiB are cut, and the log of a call ends at the node's limit. */

import * as wit from "twice:node/log@0.1.0";

/** Writes a message for the author. */
export const debug = (message: unknown): void => write("debug", message);

/** Writes a message for the operator. */
export const info = (message: unknown): void => write("info", message);

/** Writes that something is odd. */
export const warn = (message: unknown): void => write("warn", message);

/** Writes that something is wrong. */
export const error = (message: unknown): void => write("error", message);

function write(level: wit.Level, message: unknown): void {
  // A lone surrogate is no text at the border, and a message about it should not be what ends the node.
  wit.write(level, String(message).toWellFormed());
}
