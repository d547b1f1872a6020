import type { State } from "twice-node";

/** The smallest node: it greets whom the run's input names. */
export default function hello({ input }: State<{ name: string }>): { greeting: string } {
  return { greeting: `Hello, ${input.name}!` };
}
