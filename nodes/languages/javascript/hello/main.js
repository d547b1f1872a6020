/** The smallest node: it greets whom the run's input names. */
export default function hello({ input }) {
  return { greeting: `Hello, ${input.name}!` };
}
