/** Does whatever a test asks of a node: the run's input lists steps, the output lists what came of each. */

import { Denied, EffectError, Failed, Fatal, Retryable, context, effects, log } from "twice-node";

export default function conformance({ input, nodes }) {
  const notes = [];
  for (const step of input.nodes?.[context.node()] ?? input.steps ?? []) {
    if (isLeftOut(step)) continue;
    if (step.do === "return") return step.output;
    notes.push(steps[step.do](step, nodes));
  }
  return { notes };
}

function isLeftOut({ until_attempt, until_visit, from_visit }) {
  return (
    context.attempt() >= (until_attempt ?? Infinity) ||
    context.visit() >= (until_visit ?? Infinity) ||
    context.visit() < (from_visit ?? 0)
  );
}

const steps = {
  request: ({ slot, args, item, must }) =>
    must ? note(effects.request(slot, args, item)) : request(slot, args, item),
  request_all: ({ requests }) => effects.requestAll(requests).map(note),
  request_big: ({ slot, bytes }) => request(slot, "x".repeat(bytes)),
  request_deep: ({ slot, depth }) => request(slot, nested(depth)),
  request_volatile: ({ slot }) => request(slot, { now: context.now(), random: random(8) }),
  retryable: ({ message }) => {
    throw new Retryable(message);
  },
  fatal: ({ message }) => {
    throw new Fatal(message);
  },
  panic: ({ message }) => {
    throw new Error(message);
  },
  trap: exhaust,
  log: ({ level, message }) => {
    log[level](message);
    return null;
  },
  print: ({ message }) => {
    console.log(message);
    return null;
  },
  now: () => context.now(),
  random: ({ count }) => random(count),
  context: () => ({
    run: context.runId(),
    node: context.node(),
    visit: context.visit(),
    attempt: context.attempt(),
  }),
  nodes: (_step, nodes) => nodes,
  native: () => ({ date: Date.now(), random: Math.random() }),
};

function request(slot, args, item) {
  try {
    return note(effects.request(slot, args, item));
  } catch (error) {
    if (error instanceof EffectError) return note(error);
    throw error;
  }
}

function note(answer) {
  if (answer instanceof Failed) return { failed: answer.code, message: answer.reason };
  if (answer instanceof Denied) return { denied: answer.policy, message: answer.reason };
  if (answer instanceof EffectError) return { misfit: answer.message };
  return { effect_id: answer.effectId, body: answer.body };
}

const random = (count) => Array.from(context.random(count));

const nested = (depth) => {
  let value = null;
  for (let i = 0; i < depth; i++) value = [value];
  return value;
};

/** The stack's end is the only trap of which this engine says nothing. */
function exhaust() {
  return exhaust() + 1;
}
