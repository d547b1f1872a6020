/** What is built: the author's main file behind the export of the world. */

import { start } from "./globals.js";
import { exported } from "./node.js";

import node from "twice-node/main";

const call = exported(node);

export function run(input: string): string {
  start();
  return call(input);
}
