/** Greets. Requests nothing. */

import { End, Json, State, output } from "twice";

export function node(state: State): End {
  const name = state.input.get("name").text("world");
  return output(Json.object().set("greeting", `Hello, ${name}!`));
}
