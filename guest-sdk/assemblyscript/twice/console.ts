/** The `console` of a node: the run's log. */

import * as node from "./log";

export namespace console {
  export function assert<T>(condition: T, message: string = ""): void {
    if (!condition) node.error(`assertion failed: ${message}`);
  }
  export function log(message: string = ""): void {
    node.info(message);
  }
  export function debug(message: string = ""): void {
    node.debug(message);
  }
  export function info(message: string = ""): void {
    node.info(message);
  }
  export function warn(message: string = ""): void {
    node.warn(message);
  }
  export function error(message: string = ""): void {
    node.error(message);
  }
}
