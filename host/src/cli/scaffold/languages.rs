//! New nodes in the other languages: the same node in each, as its SDK has it. Args that the run's input has under the same name
//! are taken from there, the others are null until the author fills them in.

use twice_core::ids::Name;

use super::{File, Grant, Grants};

/// What every template says above the node's function.
const RESTART: &str = "Runs from the beginning each time the step is started; what was requested before is answered from the ledger.";

/// Each of `parts`, one after the other.
fn each<T>(parts: &[T], text: impl Fn(&T) -> String) -> String {
    parts.iter().map(text).collect()
}

/// What is said in a node that is granted nothing, as a comment.
fn nothing_granted(grants: &Grants, comment: &str) -> String {
    match &grants.workflow {
        _ if !grants.slots.is_empty() => String::new(),
        Some(workflow) => format!(
            "{comment}Workflow `{workflow}` grants this node no effects. Once it does, with [[node.effect]], request one by the name of its slot.\n"
        ),
        None => format!("{comment}No workflow names this component yet.\n"),
    }
}

pub(super) fn python(name: &Name, grants: &Grants) -> Vec<File> {
    let call = |grant: &Grant| {
        let args = each(&grant.args, |(name, known)| {
            if *known {
                format!("        {name:?}: state.input[{name:?}],\n")
            } else {
                format!("        {name:?}: None,  # `{}` wants it; fill it in\n", grant.target)
            }
        });
        let item = if grant.per_item { ", item=0" } else { "" };
        format!(
            "    args = {{\n{args}    }}\n    {} = effects.request({:?}, args{item})\n",
            grant.variable(),
            grant.slot
        )
    };
    let output = if grants.slots.is_empty() {
        "        \"seen\": state.input,\n".to_owned()
    } else {
        each(&grants.slots, |grant| {
            format!("        {:?}: {}.body,\n", grant.slot, grant.variable())
        })
    };
    let effects = if grants.slots.is_empty() { "" } else { "effects, " };
    let source = format!(
        "\"\"\"The node `{name}`.\"\"\"\n\nfrom twice_node import State, {effects}node\n\n\n@node\ndef run(state: State) -> dict[str, object]:\n    # {RESTART}\n{}{}    return {{\n{output}    }}\n",
        nothing_granted(grants, "    # "),
        each(&grants.slots, call),
    );
    vec![("main.py", source)]
}

/// JavaScript, or with `typed` TypeScript.
pub(super) fn javascript(name: &Name, grants: &Grants, typed: bool) -> Vec<File> {
    let call = |grant: &Grant| {
        let args = each(&grant.args, |(name, known)| {
            if *known {
                format!("    {name:?}: input[{name:?}],\n")
            } else {
                format!("    {name:?}: null, // `{}` wants it; fill it in\n", grant.target)
            }
        });
        let item = if grant.per_item { ", 0" } else { "" };
        format!(
            "  const {} = effects.request({:?}, {{\n{args}  }}{item});\n",
            grant.variable(),
            grant.slot
        )
    };
    let output = if grants.slots.is_empty() {
        "    \"seen\": input,\n".to_owned()
    } else {
        each(&grants.slots, |grant| format!("    {:?}: {}.body,\n", grant.slot, grant.variable()))
    };
    let names: Vec<&str> = [(typed, "type State"), (!grants.slots.is_empty(), "effects")]
        .into_iter()
        .filter_map(|(used, name)| used.then_some(name))
        .collect();
    let imports = if names.is_empty() {
        String::new()
    } else {
        format!("import {{ {} }} from \"twice-node\";\n\n", names.join(", "))
    };
    let signature = if typed {
        "{ input }: State<Record<string, unknown>>): Record<string, unknown>"
    } else {
        "{ input })"
    };
    let source = format!(
        "{imports}/** The node `{name}`. {RESTART} */\nexport default function run({signature} {{\n{}{}  return {{\n{output}  }};\n}}\n",
        nothing_granted(grants, "  // "),
        each(&grants.slots, call),
    );
    if typed {
        let config = "{ \"extends\": \"./target/twice/tsconfig.json\" }\n".to_owned();
        vec![("main.ts", source), ("tsconfig.json", config)]
    } else {
        vec![("main.js", source)]
    }
}

pub(super) fn go(name: &Name, grants: &Grants) -> Vec<File> {
    let variable = |grant: &Grant| format!("receipt{}", camel(&grant.slot));
    let call = |grant: &Grant| {
        let args = each(&grant.args, |(name, known)| {
            if *known {
                format!("\t\t{name:?}: state.Input[{name:?}],\n")
            } else {
                format!("\t\t{name:?}: nil, // `{}` wants it; fill it in\n", grant.target)
            }
        });
        let (function, item) =
            if grant.per_item { ("RequestItem", "0, ") } else { ("Request", "") };
        format!(
            "\t{}, err := effects.{function}[json.RawMessage]({:?}, {item}map[string]any{{\n{args}\t}})\n\tif err != nil {{\n\t\treturn nil, err\n\t}}\n",
            variable(grant),
            grant.slot
        )
    };
    let output = if grants.slots.is_empty() {
        "\t\t\"seen\": state.Input,\n".to_owned()
    } else {
        each(&grants.slots, |grant| format!("\t\t{:?}: {}.Body,\n", grant.slot, variable(grant)))
    };
    let effects = if grants.slots.is_empty() { "" } else { "\t\"twice.dev/node/effects\"\n" };
    let source = format!(
        "// The node {name}.\npackage main\n\nimport (\n\t\"encoding/json\"\n\n\t\"twice.dev/node\"\n{effects})\n\n// {RESTART}\nfunc run(state node.State[map[string]json.RawMessage]) (map[string]any, error) {{\n{}{}\treturn map[string]any{{\n{output}\t}}, nil\n}}\n\nfunc init() {{ node.Run(run) }}\n\nfunc main() {{}}\n",
        nothing_granted(grants, "\t// "),
        each(&grants.slots, call),
    );
    let module = format!(
        "module twice.dev/nodes/{name}\n\ngo 1.24\n\nrequire twice.dev/node v0.0.0\n\nreplace twice.dev/node => ../../sdk/go\n"
    );
    vec![("go.mod", module), ("main.go", source)]
}

/// `full-refund` as `FullRefund`.
fn camel(name: &str) -> String {
    let mut words = name.split(['-', '_']).map(|word| {
        let mut chars = word.chars();
        chars.next().map(|first| first.to_ascii_uppercase().to_string() + chars.as_str())
    });
    words.by_ref().flatten().collect()
}

pub(super) fn c(name: &Name, grants: &Grants) -> Vec<File> {
    let call = |grant: &Grant| {
        let variable = grant.variable();
        let args = each(&grant.args, |(name, known)| {
            let value = if *known {
                format!("twice_put_json(&{variable}_args, twice_get(state->input, {name:?}));")
            } else {
                format!(
                    "twice_put_null(&{variable}_args); /* `{}` wants it; fill it in */",
                    grant.target
                )
            };
            format!("    twice_key(&{variable}_args, {name:?});\n    {value}\n")
        });
        let (function, item) =
            if grant.per_item { ("twice_request_item", ", 0") } else { ("twice_request", "") };
        format!(
            "    twice_writer {variable}_args = {{0}};\n    twice_object(&{variable}_args);\n{args}    twice_object_end(&{variable}_args);\n    twice_answer {variable} = {function}({:?}{item}, twice_written(&{variable}_args));\n    if ({variable}.outcome != TWICE_CONFIRMED) return twice_refused(&{variable});\n\n",
            grant.slot
        )
    };
    let put = |key: &str, value: &str| {
        format!("    twice_key(&output, {key:?});\n    twice_put_json(&output, {value});\n")
    };
    let output = if grants.slots.is_empty() {
        put("seen", "state->input")
    } else {
        each(&grants.slots, |grant| put(&grant.slot, &format!("{}.body", grant.variable())))
    };
    let granted = nothing_granted(grants, "").trim_end().to_owned();
    let granted = if granted.is_empty() { granted } else { format!("    /* {granted} */\n") };
    let source = format!(
        "/* The node {name}. */\n#include \"twice.h\"\n\n/* {RESTART} */\ntwice_end twice_node(const twice_state *state)\n{{\n{granted}{}    twice_writer output = {{0}};\n    twice_object(&output);\n{output}    twice_object_end(&output);\n    return twice_output(twice_written(&output));\n}}\n",
        each(&grants.slots, call),
    );
    vec![("main.c", source)]
}

pub(super) fn cpp(name: &Name, grants: &Grants) -> Vec<File> {
    let call = |grant: &Grant| {
        let args: Vec<String> = grant
            .args
            .iter()
            .map(|(name, known)| {
                if *known {
                    format!("        {{{name:?}, state.input[{name:?}]}}")
                } else {
                    format!(
                        "        {{{name:?}, nullptr}} /* `{}` wants it; fill it in */",
                        grant.target
                    )
                }
            })
            .collect();
        let (function, item) =
            if grant.per_item { ("request_item", ", 0") } else { ("request", "") };
        format!(
            "    auto {0} = TWICE_TRY(twice::{function}({1:?}{item}, twice::object({{\n{2}\n    }})));\n",
            grant.variable(),
            grant.slot,
            args.join(",\n")
        )
    };
    let output = if grants.slots.is_empty() {
        "{\"seen\", state.input}".to_owned()
    } else {
        let parts = grants
            .slots
            .iter()
            .map(|grant| format!("{{{:?}, {}.body}}", grant.slot, grant.variable()));
        Vec::from_iter(parts).join(", ")
    };
    let source = format!(
        "/* The node {name}. */\n#include \"twice.hpp\"\n\n/* {RESTART} */\ntwice::result twice::node(const twice::state &state)\n{{\n{}{}    return twice::object({{{output}}});\n}}\n",
        nothing_granted(grants, "    // "),
        each(&grants.slots, call),
    );
    vec![("main.cpp", source)]
}

pub(super) fn zig(name: &Name, grants: &Grants) -> Vec<File> {
    let mut known: Vec<&str> = grants
        .slots
        .iter()
        .flat_map(|grant| &grant.args)
        .filter_map(|(name, known)| known.then_some(name.as_str()))
        .collect();
    known.sort_unstable();
    known.dedup();
    let input = if grants.slots.is_empty() {
        "twice.Raw".to_owned()
    } else {
        let fields = known.iter().map(|name| format!("@{name:?}: twice.Raw"));
        format!("struct {{ {} }}", Vec::from_iter(fields).join(", "))
    };
    let call = |grant: &Grant| {
        let args = each(&grant.args, |(name, known)| {
            if *known {
                format!("        .@{name:?} = state.input.@{name:?},\n")
            } else {
                format!("        .@{name:?} = null, // `{}` wants it; fill it in\n", grant.target)
            }
        });
        let (function, item) =
            if grant.per_item { ("requestItem", "0, ") } else { ("request", "") };
        format!(
            "    const {} = try twice.{function}({:?}, {item}.{{\n{args}    }}).receipt();\n",
            grant.variable(),
            grant.slot
        )
    };
    let unused = if known.is_empty() && !grants.slots.is_empty() { "    _ = state;\n" } else { "" };
    let (fields, output) = if grants.slots.is_empty() {
        ("seen: twice.Raw".to_owned(), ".seen = state.input".to_owned())
    } else {
        let fields = grants.slots.iter().map(|grant| format!("@{:?}: twice.Raw", grant.slot));
        let values = grants
            .slots
            .iter()
            .map(|grant| format!(".@{:?} = {}.body", grant.slot, grant.variable()));
        (Vec::from_iter(fields).join(", "), Vec::from_iter(values).join(", "))
    };
    let source = format!(
        "//! The node {name}.\n\nconst twice = @import(\"twice\");\n\nconst Input = {input};\nconst Output = struct {{ {fields} }};\n\n/// {RESTART}\npub fn run(state: twice.State(Input)) !Output {{\n{unused}{}{}    return .{{ {output} }};\n}}\n",
        nothing_granted(grants, "    // "),
        each(&grants.slots, call),
    );
    vec![("main.zig", source)]
}

pub(super) fn assemblyscript(name: &Name, grants: &Grants) -> Vec<File> {
    let call = |grant: &Grant| {
        let variable = grant.variable();
        let args = each(&grant.args, |(name, known)| {
            if *known {
                format!("  {variable}_args.set({name:?}, state.input.get({name:?}));\n")
            } else {
                format!(
                    "  {variable}_args.set({name:?}, Json.null); // `{}` wants it; fill it in\n",
                    grant.target
                )
            }
        });
        let (function, item) =
            if grant.per_item { ("requestItem", "0, ") } else { ("request", "") };
        format!(
            "  const {variable}_args = Json.object();\n{args}  const {variable} = {function}({:?}, {item}{variable}_args);\n  if (!{variable}.isConfirmed) return {variable}.refused();\n",
            grant.slot
        )
    };
    let output = if grants.slots.is_empty() {
        ".set(\"seen\", state.input)".to_owned()
    } else {
        each(&grants.slots, |grant| format!(".set({:?}, {}.body)", grant.slot, grant.variable()))
    };
    let mut names = vec!["End", "Json", "State", "output"];
    for (per_item, function) in [(false, "request"), (true, "requestItem")] {
        if grants.slots.iter().any(|grant| grant.per_item == per_item) {
            names.push(function);
        }
    }
    let source = format!(
        "/** The node {name}. */\n\nimport {{ {} }} from \"twice\";\n\n/** {RESTART} */\nexport function node(state: State): End {{\n{}{}  return output(Json.object(){output});\n}}\n",
        names.join(", "),
        nothing_granted(grants, "  // "),
        each(&grants.slots, call),
    );
    vec![("asconfig.json", "{ \"options\": {} }\n".to_owned()), ("assembly/index.ts", source)]
}
