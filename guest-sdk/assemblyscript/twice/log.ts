/** The run's log. Messages longer than 8 KiB are cut, and the log of a call ends at the node's limit. */

import * as abi from "./abi";

export enum Level {
  Debug,
  Info,
  Warn,
  Error,
}

/** Writes one message. */
export function write(level: Level, message: string): void {
  abi.write(level, changetype<usize>(message), message.length);
}

/** Writes a message for the author. */
export function debug(message: string): void {
  write(Level.Debug, message);
}

/** Writes a message for the operator. */
export function info(message: string): void {
  write(Level.Info, message);
}

/** Writes that something is odd. */
export function warn(message: string): void {
  write(Level.Warn, message);
}

/** Writes that something is wrong. */
export function error(message: string): void {
  write(Level.Error, message);
}
