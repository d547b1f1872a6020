/** Does whatever a test asks of a node: the run's input lists steps, the output lists what came of each. */

import {
  Answer,
  Call,
  End,
  Json,
  Outcome,
  State,
  context,
  fatal,
  log,
  output,
  request,
  requestAll,
  requestItem,
  retryable,
} from "twice";

export function node(state: State): End {
  const named = state.input.get("nodes").get(context.node());
  const steps = named.isAbsent ? state.input.get("steps") : named;
  const notes = Json.array();
  for (let i = 0; i < steps.length; i++) {
    const step = steps.at(i);
    if (isLeftOut(step)) continue;
    const end = take(step, state, notes);
    if (end !== null) return end;
  }
  return output(Json.object().set("notes", notes));
}

function isLeftOut(step: Json): bool {
  return (
    context.attempt() >= step.get("until_attempt").u32(u32.MAX_VALUE) ||
    context.visit() >= step.get("until_visit").u32(u32.MAX_VALUE) ||
    context.visit() < step.get("from_visit").u32()
  );
}

/** Adds a note, or says how the node ends. */
function take(step: Json, state: State, notes: Json): End | null {
  const what = step.get("do").text();
  const slot = step.get("slot").text();
  const message = step.get("message").text();
  if (what == "request") {
    const answer = requested(step);
    if (step.get("must").bool() && !answer.isConfirmed) return answer.refused();
    notes.push(note(answer));
  } else if (what == "request_all") {
    notes.push(answers(step.get("requests")));
  } else if (what == "request_big") {
    notes.push(note(request(slot, Json.of("x".repeat(<i32>step.get("bytes").u32())))));
  } else if (what == "request_deep") {
    notes.push(note(request(slot, nested(step.get("depth").u32()))));
  } else if (what == "request_volatile") {
    notes.push(note(request(slot, Json.object().set("now", context.now()).set("random", random(8)))));
  } else if (what == "retryable") {
    return retryable(message);
  } else if (what == "fatal") {
    return fatal(message);
  } else if (what == "panic") {
    throw new Error(message);
  } else if (what == "trap") {
    unreachable();
  } else if (what == "log") {
    log.write(level(step.get("level").text()), message);
    notes.push(Json.null);
  } else if (what == "print") {
    console.log(message);
    notes.push(Json.null);
  } else if (what == "now") {
    notes.push(context.now());
  } else if (what == "random") {
    notes.push(random(step.get("count").u32()));
  } else if (what == "context") {
    notes.push(
      Json.object()
        .set("run", context.runId())
        .set("node", context.node())
        .set("visit", context.visit())
        .set("attempt", context.attempt()),
    );
  } else if (what == "nodes") {
    notes.push(state.nodes);
  } else if (what == "native") {
    notes.push(Json.object().set("random", Math.random()));
  } else if (what == "return") {
    return output(step.get("output"));
  } else {
    return fatal(`there is no step \`${what}\``);
  }
  return null;
}

function requested(step: Json): Answer {
  const slot = step.get("slot").text();
  const item = step.get("item");
  return item.isU64 ? requestItem(slot, item.u32(), step.get("args")) : request(slot, step.get("args"));
}

function answers(requests: Json): Json {
  const calls: Call[] = [];
  for (let i = 0; i < requests.length; i++) {
    const one = requests.at(i);
    const slot = one.get("slot").text();
    const item = one.get("item");
    calls.push(item.isU64 ? Call.forItem(slot, item.u32(), one.get("args")) : new Call(slot, one.get("args")));
  }
  const notes = Json.array();
  const all = requestAll(calls);
  for (let i = 0; i < all.length; i++) notes.push(note(all[i]));
  return notes;
}

function note(answer: Answer): Json {
  if (answer.outcome == Outcome.Failed)
    return Json.object().set("failed", answer.code).set("message", answer.message);
  if (answer.outcome == Outcome.Denied)
    return Json.object().set("denied", answer.policy).set("message", answer.message);
  return Json.object().set("effect_id", answer.effectId).set("body", answer.body);
}

function nested(depth: u32): Json {
  let all = Json.null;
  for (let i: u32 = 0; i < depth; i++) all = Json.array().push(all);
  return all;
}

function random(count: u32): Json {
  const numbers = Json.array();
  const bytes = context.random(count);
  for (let i = 0; i < bytes.length; i++) numbers.push(bytes[i]);
  return numbers;
}

function level(name: string): log.Level {
  if (name == "debug") return log.Level.Debug;
  if (name == "warn") return log.Level.Warn;
  if (name == "error") return log.Level.Error;
  return log.Level.Info;
}
