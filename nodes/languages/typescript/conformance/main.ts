/** Does whatever a test asks of a node: the run's input lists steps, the output lists what came of each. */

import { Denied, EffectError, Failed, Fatal, Retryable, type State, context, effects, log } from "twice-node";

import { type Call, type Plan, type Step, isLeftOut } from "./plan";

export default function conformance({ input, nodes }: State<Plan>): unknown {
  const notes: unknown[] = [];
  for (const step of input.nodes?.[context.node()] ?? input.steps ?? []) {
    if (isLeftOut(step, context.attempt(), context.visit())) continue;
    if (step.do === "return") return step.output;
    notes.push(act(step, nodes));
  }
  return { notes };
}

function act(step: Exclude<Step, { do: "return" }>, nodes: unknown): unknown {
  switch (step.do) {
    case "request":
      return step.must ? note(effects.request(step.slot, step.args, step.item)) : request(step);
    case "request_all":
      return effects.requestAll(step.requests).map(note);
    case "request_big":
      return request({ slot: step.slot, args: "x".repeat(step.bytes) });
    case "request_deep":
      return request({ slot: step.slot, args: nested(step.depth) });
    case "request_volatile":
      return request({ slot: step.slot, args: { now: context.now(), random: random(8) } });
    case "retryable":
      throw new Retryable(step.message);
    case "fatal":
      throw new Fatal(step.message);
    case "panic":
      throw new Error(step.message);
    case "trap":
      return exhaust();
    case "log":
      log[step.level](step.message);
      return null;
    case "print":
      console.log(step.message);
      return null;
    case "now":
      return context.now();
    case "random":
      return random(step.count);
    case "context":
      return {
        run: context.runId(),
        node: context.node(),
        visit: context.visit(),
        attempt: context.attempt(),
      };
    case "nodes":
      return nodes;
    case "native":
      return { date: Date.now(), random: Math.random() };
  }
}

function request({ slot, args, item }: Call): unknown {
  try {
    return note(effects.request(slot, args, item));
  } catch (error) {
    if (error instanceof EffectError) return note(error);
    throw error;
  }
}

function note(answer: effects.Receipt | EffectError): unknown {
  if (answer instanceof Failed) return { failed: answer.code, message: answer.reason };
  if (answer instanceof Denied) return { denied: answer.policy, message: answer.reason };
  if (answer instanceof EffectError) return { misfit: answer.message };
  return { effect_id: answer.effectId, body: answer.body };
}

const random = (count: number): number[] => Array.from(context.random(count));

function nested(depth: number): unknown {
  let value: unknown = null;
  for (let i = 0; i < depth; i++) value = [value];
  return value;
}

/** The stack's end is the only trap of which this engine says nothing. */
function exhaust(): number {
  return exhaust() + 1;
}
