//! Every finding, as its reader sees it: one table of slips in the example project.

use std::collections::BTreeSet;

use expect_test::{Expect, expect};
use twice_workflow::Project;
use twice_workflow::diagnostic::Code;

use crate::support::{edit, example};

const T: &str = "twice.toml";
const W: &str = "workflows/damaged-item-refund.toml";
const P: &str = "tools/payments.toml";
const M: &str = "tools/mail.toml";

/// The refund without its lookup.
const KEY_ONLY: (&str, &str, &str) = (
    P,
    "[operation.refund.lookup]\nby = \"reference\"\nconsistency = \"strong\"\nmethod = \"GET\"\npath = \"/v1/refunds\"\nquery = { reference = \"{/effect_id}\" }\nheaders = { Authorization = \"Bearer {secret:api-key}\" }\n# The route of a list answers with an empty list, so no status means that there is nothing.\nabsent = []\nitems = \"/data\"\nmatches = { \"/reference\" = \"/effect_id\" }\npending = { \"/status\" = [\"pending\"] }\nfailed = { \"/status\" = [\"failed\"] }\nexternal_id = \"/id\"\n\n",
    "",
);

/// Makes the edits (file, text, replacement) in the example project and compares all that is found then.
#[track_caller]
fn check(edits: &[(&str, &str, &str)], expect: Expect) -> BTreeSet<Code> {
    let mut files = example();
    for (path, from, to) in edits {
        edit(&mut files, path, from, to);
    }
    let found = match Project::load(&files) {
        Ok(project) => project.warnings,
        Err(found) => found,
    };
    let text: Vec<String> = found.iter().map(ToString::to_string).collect();
    expect.assert_eq(&text.join("\n"));
    found.iter().map(|finding| finding.code).collect()
}

#[test]
fn every_code_occurs() {
    let tables = [
        files_in_general(),
        what_is_not_supported_yet(),
        the_graph_and_its_names(),
        sources_of_identity(),
        expressions(),
        tools_and_operations(),
        request_templates(),
        keys_lookups_and_times(),
        what_answers_mean(),
    ];
    let met: BTreeSet<Code> = tables.into_iter().flatten().flatten().collect();
    let all: BTreeSet<Code> = Code::ALL.iter().copied().collect();
    assert_eq!(met, all);
}

#[must_use]
fn files_in_general() -> Vec<BTreeSet<Code>> {
    vec![
        check(
            &[(T, "project = ", "project : ")],
            expect![[r#"
                twice.toml:3:9: error[TW2001]: this is not TOML: key with no value, expected `=`
                  why: nothing in a file can be trusted while a part of it cannot be read
                  fix: correct it as the TOML specification says"#]],
        ),
        check(
            &[(T, "", "\n[\n")],
            expect![[r#"
                twice.toml:8:2: error[TW2001]: this is not TOML: unquoted keys cannot be empty, expected letters, numbers, `-`, `_`
                  why: nothing in a file can be trusted while a part of it cannot be read
                  fix: correct it as the TOML specification says"#]],
        ),
        check(
            &[(T, "project = \"damaged-items\"\n", "")],
            expect![[r#"
            twice.toml:1:1: error[TW2003]: the project file does not state `project`
              why: there is no default that would be right for everyone
              fix: add it, for example `project = "refunds"`"#]],
        ),
        check(
            &[(T, r#"project = "damaged-items""#, r#"project = "Damaged Items""#)],
            expect![[r#"
                twice.toml:3:11: error[TW2005]: `Damaged Items` cannot be the name of a project
                  why: names become part of keys, pointers and file names, so they are kept plain
                  fix: use 1 to 63 lower-case letters, digits, `-` or `_`, starting with a letter"#]],
        ),
        check(
            &[(T, "[worker]", "[wroker]")],
            expect![[r#"
            twice.toml:5:2: error[TW2002]: the project file has no key `wroker`
              why: a key that nothing reads would look like a promise and be none
              fix: did you mean `worker`?"#]],
        ),
        check(
            &[(T, r#"lease = "10s""#, "lease = 10")],
            expect![[r#"
            twice.toml:6:9: error[TW2004]: `lease` is an integer, not a string
              why: a value is never converted silently: what was meant could be something else
              fix: write a string"#]],
        ),
        check(
            &[(T, r#"lease = "10s""#, r#"lease = "10""#)],
            expect![[r#"
            twice.toml:6:9: error[TW2005]: `lease` is `10`, which is not a duration
              why: every limit and choice is explicit, so that a slip cannot pass for a decision
              fix: write a whole number and a unit: `500ms`, `10s`, `5m`, `24h`, `30d`"#]],
        ),
        check(
            &[(T, r#"lease = "10s""#, r#"lease = "2d""#)],
            expect![[r#"
            twice.toml:6:9: error[TW2005]: `lease` is 2d: out of range
              why: every limit and choice is explicit, so that a slip cannot pass for a decision
              fix: write 1s to 1h"#]],
        ),
        check(
            &[(T, r#"lease = "10s""#, "lease = \"10s\"\nlease = \"20s\"")],
            expect![[r#"
                twice.toml:7:1: error[TW2001]: this is not TOML: duplicate key
                  why: nothing in a file can be trusted while a part of it cannot be read
                  fix: correct it as the TOML specification says"#]],
        ),
        check(
            &[(W, "[[node]]\nname = \"refund\"", "node = 5\n[[nodes]]\nname = \"refund\"")],
            expect![[r#"
                workflows/damaged-item-refund.toml:13:3: error[TW2001]: this is not TOML: cannot extend value of type integer with a dotted key
                  why: nothing in a file can be trusted while a part of it cannot be read
                  fix: correct it as the TOML specification says
                workflows/damaged-item-refund.toml:20:3: error[TW2001]: this is not TOML: duplicate key
                  why: nothing in a file can be trusted while a part of it cannot be read
                  fix: correct it as the TOML specification says
                workflows/damaged-item-refund.toml:26:3: error[TW2001]: this is not TOML: cannot extend value of type integer with a dotted key
                  why: nothing in a file can be trusted while a part of it cannot be read
                  fix: correct it as the TOML specification says"#]],
        ),
        check(
            &[(W, r#"workflow = "damaged"#, "colour = \"red\"\nworkflow = \"damaged")],
            expect![[r#"
                workflows/damaged-item-refund.toml:1:1: error[TW2002]: the workflow file has no key `colour`
                  why: a key that nothing reads would look like a promise and be none
                  fix: remove it; the workflow file knows: `input`, `node`, `version`, `workflow`"#]],
        ),
        check(
            &[(T, "", "[database]\nurl = \"postgres://twice:canary@db/twice\"\n")],
            expect![[r#"
                twice.toml:8:7: error[TW2201]: the database URL has a password in it
                  why: a secret in a file ends up in version control and in backups (I10)
                  fix: write `url = "env:NAME"`; if this was a real password, change it"#]],
        ),
        check(
            &[(T, "", "[database]\nurl = \"postgres://db/twice?user=twice&password=canary\"\n")],
            expect![[r#"
                twice.toml:8:7: error[TW2201]: the database URL has a password in it
                  why: a secret in a file ends up in version control and in backups (I10)
                  fix: write `url = "env:NAME"`; if this was a real password, change it"#]],
        ),
        check(
            &[(W, "version = 1", r#"version = "1""#)],
            expect![[r#"
            workflows/damaged-item-refund.toml:2:11: error[TW2004]: `version` is a string, not an integer
              why: a value is never converted silently: what was meant could be something else
              fix: write an integer"#]],
        ),
        check(
            &[(W, "version = 1", "version = 0")],
            expect![[r#"
            workflows/damaged-item-refund.toml:2:11: error[TW2005]: `version` is out of range
              why: every limit and choice is explicit, so that a slip cannot pass for a decision
              fix: write a number from 1 to 4294967295"#]],
        ),
        check(
            &[(W, "version = 1\n", "")],
            expect![[r#"
            workflows/damaged-item-refund.toml:1:1: error[TW2003]: the workflow file does not state `version`
              why: runs are pinned to the version they started under, and people need to tell versions apart
              fix: add it, for example `version = 1`"#]],
        ),
        check(
            &[(W, "component = \"refund\"\n", "")],
            expect![[r#"
            workflows/damaged-item-refund.toml:5:1: error[TW2003]: a node (`[[node]]`) does not state `component`
              why: there is no default that would be right for everyone
              fix: add it, for example `component = "refund"`"#]],
        ),
        check(
            &[(W, r#"component = "refund""#, r#"compnent = "refund""#)],
            expect![[r#"
            workflows/damaged-item-refund.toml:5:1: error[TW2003]: a node (`[[node]]`) does not state `component`
              why: there is no default that would be right for everyone
              fix: add it, for example `component = "refund"`
            workflows/damaged-item-refund.toml:7:1: error[TW2002]: a node (`[[node]]`) has no key `compnent`
              why: a key that nothing reads would look like a promise and be none
              fix: did you mean `component`?"#]],
        ),
        check(
            &[(W, r#"memory = "64MiB""#, r#"memory = "64MB""#)],
            expect![[r#"
            workflows/damaged-item-refund.toml:8:21: error[TW2005]: `memory` is `64MB`, which is not a size
              why: every limit and choice is explicit, so that a slip cannot pass for a decision
              fix: write a whole number and a unit: `512B`, `64KiB`, `64MiB`, `1GiB`"#]],
        ),
        check(
            &[(W, r#"memory = "64MiB""#, r#"memory = "64GiB""#)],
            expect![[r#"
            workflows/damaged-item-refund.toml:8:21: error[TW2005]: `memory` is 64GiB: out of range
              why: every limit and choice is explicit, so that a slip cannot pass for a decision
              fix: write 64KiB to 4GiB"#]],
        ),
        check(
            &[(W, "effects = 10", "effects = -1")],
            expect![[r#"
            workflows/damaged-item-refund.toml:8:54: error[TW2005]: `effects` is out of range
              why: every limit and choice is explicit, so that a slip cannot pass for a decision
              fix: write a number from 0 to 10000"#]],
        ),
        check(
            &[(W, r#"after = ["refund"]"#, r#"after = "refund""#)],
            expect![[r#"
            workflows/damaged-item-refund.toml:22:9: error[TW2004]: `after` is a string, not an array
              why: a value is never converted silently: what was meant could be something else
              fix: write an array"#]],
        ),
        check(
            &[(W, "schemas/refund-request.json", "schemas/refund-requests.json")],
            expect![[r#"
            workflows/damaged-item-refund.toml:3:20: error[TW2007]: there is no file `schemas/refund-requests.json`
              why: without its schema nothing can be said about the values
              fix: create the file, or correct the path"#]],
        ),
        check(
            &[(W, "schemas/refund-request.json", "../refund-request.json")],
            expect![[r#"
            workflows/damaged-item-refund.toml:3:20: error[TW2005]: `../refund-request.json` is not a path within the project
              why: a project must mean the same wherever it is copied to
              fix: write a path relative to the project's folder, with `/` and without `..`"#]],
        ),
        check(
            &[(W, r#"{ schema = "schemas/refund-request.json" }"#, "{ }")],
            expect![[r#"
            workflows/damaged-item-refund.toml:3:9: error[TW2003]: `input` does not state `schema`
              why: there is no default that would be right for everyone
              fix: add it, for example `schema = "schemas/x.json"`"#]],
        ),
        check(
            &[(
                W,
                r#"{ schema = "schemas/refund-request.json" }"#,
                r#"{ schema = "schemas/refund-request.json", inline = { } }"#,
            )],
            expect![[r#"
                workflows/damaged-item-refund.toml:3:60: error[TW2209]: both `schema` and `inline` are given
                  why: two schemas for one value could disagree
                  fix: keep one of them"#]],
        ),
        check(
            &[(
                W,
                r#"{ schema = "schemas/refund-request.json" }"#,
                r#"{ inline = { type = "objekt" } }"#,
            )],
            expect![[r#"
                workflows/damaged-item-refund.toml:3:20: error[TW2009]: not a usable JSON Schema at `/type`: "objekt" is not valid under any of the schemas listed in the 'anyOf' keyword
                  why: values are checked against it; other documents are never fetched
                  fix: write a JSON Schema (draft 2020-12) that refers to itself alone (`#/…`)"#]],
        ),
        check(
            &[(
                W,
                r#"{ schema = "schemas/refund-request.json" }"#,
                "{ inline = { minimum = nan } }",
            )],
            expect![[r#"
                workflows/damaged-item-refund.toml:3:32: error[TW2005]: this float cannot be written as JSON
                  why: requests and schemas are JSON, and what is hashed must mean the same everywhere
                  fix: write it as a string, or as a number of at most 2^53-1"#]],
        ),
        check(
            &[("schemas/mail.json", "\"title\"", "\"$schema\"")],
            expect![[r#"
                schemas/mail.json:3:3: error[TW2009]: this is not strict JSON
                  why: duplicate member `$schema`
                  fix: correct it; a schema file holds one JSON value"#]],
        ),
        check(
            &[("schemas/mail.json", "{\n  \"$schema\"", "{\n  $schema")],
            expect![[r#"
                schemas/mail.json:2:3: error[TW2009]: this is not strict JSON
                  why: not JSON: expected a member's name in quotes, found `$`
                  fix: correct it; a schema file holds one JSON value"#]],
        ),
        check(
            &[(
                "schemas/mail.json",
                r#"{ "type": "string", "minLength": 1 }"#,
                r#"{ "$ref": "https://example.com/id.json" }"#,
            )],
            expect![[r#"
                schemas/mail.json:1:1: error[TW2009]: not a usable JSON Schema: Resource 'https://example.com/id.json' is not present in a registry and retrieving it failed: Retrieval is disabled, cannot fetch https://example.com/id.json
                  why: values are checked against it; other documents are never fetched
                  fix: write a JSON Schema (draft 2020-12) that refers to itself alone (`#/…`)"#]],
        ),
        check(
            &[("tools/mail-2.toml", "", r#"tool = "mail""#)],
            expect![[r#"
            tools/mail-2.toml:1:1: error[TW2003]: the tool file does not state `base_url`
              why: there is no default that would be right for everyone
              fix: add it, for example `base_url = "env:PAYMENTS_URL"`
            tools/mail-2.toml:1:1: error[TW2003]: the tool file does not state `kind`
              why: there is no default that would be right for everyone
              fix: add it, for example `kind = "http"`
            tools/mail-2.toml:1:1: error[TW2003]: the tool file does not state `operation`
              why: there is no default that would be right for everyone
              fix: add it, for example `operation = { … }`, as a table `[operation.NAME]`
            tools/mail-2.toml:1:1: error[TW2003]: the tool file does not state `version`
              why: there is no default that would be right for everyone
              fix: add it, for example `version = "1"`
            tools/mail.toml:3:8: error[TW2008]: there is another tool `mail` in `tools/`
              why: which of them is meant would depend on the names of the files
              fix: rename one of them"#]],
        ),
        check(
            &[(P, "tool = \"payments\"", "tool = payments"), (W, "mail.send", "mail.sned")],
            expect![[r#"
                tools/payments.toml:1:8: error[TW2001]: this is not TOML: string values must be quoted, expected literal string
                  why: nothing in a file can be trusted while a part of it cannot be read
                  fix: correct it as the TOML specification says
                workflows/damaged-item-refund.toml:27:8: error[TW2101]: the tool `mail` has no operation `sned`
                  why: a slot grants an operation of a tool in `tools/`
                  fix: did you mean `send`?"#]],
        ),
        check(
            &[(P, "settle = \"2s\"", "settle = 2"), (W, "payments.refund", "payments.refnud")],
            expect![[r#"
                tools/payments.toml:17:10: error[TW2004]: `settle` is an integer, not a string
                  why: a value is never converted silently: what was meant could be something else
                  fix: write a string"#]],
        ),
        check(
            &[("workflows/empty.toml", "", "workflow = \"empty\"\nversion = 1\nnode = []\n")],
            expect![[r#"
                workflows/empty.toml:1:1: error[TW2005]: the workflow has no node
                  why: a run of it would have nothing to do
                  fix: add a `[[node]]`"#]],
        ),
        check(
            &[(
                "workflows/huge.toml",
                "",
                &format!("workflow = \"huge\"\nversion = 1\n{}", "[[node]]\n".repeat(1_001)),
            )],
            expect![[r#"
                workflows/huge.toml:1:1: error[TW2005]: the workflow has 1001 nodes
                  why: a run's checkpoint holds the output of every node; at most 1000 are allowed
                  fix: split it"#]],
        ),
        check(
            &[("workflows/none.toml", "", "workflow = \"none\"\nversion = 1\nnode = 5\n")],
            expect![[r#"
                workflows/none.toml:3:8: error[TW2004]: `node` is an integer, not an array
                  why: a value is never converted silently: what was meant could be something else
                  fix: write an array"#]],
        ),
        check(
            &[("workflows/broken.toml", "", "workflow = ")],
            expect![[r#"
                workflows/broken.toml:1:12: error[TW2001]: this is not TOML: string values must be quoted, expected literal string
                  why: nothing in a file can be trusted while a part of it cannot be read
                  fix: correct it as the TOML specification says"#]],
        ),
    ]
}

#[must_use]
fn what_is_not_supported_yet() -> Vec<BTreeSet<Code>> {
    vec![
        check(
            &[(
                W,
                r#"after = ["refund"]"#,
                "after = [\"refund\"]\nwhen = \"state.input.amount_cents > 5\"",
            )],
            expect![[r#"
                workflows/damaged-item-refund.toml:23:1: error[TW2006]: `when` (a branch) is not supported yet
                  why: leaving it unread would run the workflow without what it asks for
                  fix: branch inside the node, which sees the input and earlier outputs"#]],
        ),
        check(
            &[(W, r#"after = ["refund"]"#, "after = [\"refund\"]\nfor_each = \"/input/orders\"")],
            expect![[r#"
                workflows/damaged-item-refund.toml:23:1: error[TW2006]: `for_each` (a fan-out of nodes) is not supported yet
                  why: leaving it unread would run the workflow without what it asks for
                  fix: use `for_each` on the node's effect: one step then requests one effect per element"#]],
        ),
        check(
            &[(W, r#"after = ["refund"]"#, "after = [\"refund\"]\nmax_visits = 3")],
            expect![[r#"
                workflows/damaged-item-refund.toml:23:1: error[TW2006]: `max_visits` (a bounded cycle) is not supported yet
                  why: leaving it unread would run the workflow without what it asks for
                  fix: loop inside the node, with `repeat` on its effect"#]],
        ),
        check(
            &[(
                W,
                r#"intent = "refund-notice""#,
                "intent = \"refund-notice\"\napprove = { by = \"finance\" }",
            )],
            expect![[r#"
                workflows/damaged-item-refund.toml:30:1: error[TW2006]: `approve` (a person's approval) is not supported yet
                  why: leaving it unread would run the workflow without what it asks for
                  fix: until then, deny with `allow` what would need one"#]],
        ),
        check(
            &[(
                W,
                r#"intent = "refund-notice""#,
                "intent = \"refund-notice\"\ncompensate = { tool = \"mail.recall\" }",
            )],
            expect![[r#"
                workflows/damaged-item-refund.toml:30:1: error[TW2006]: `compensate` (undoing the effect) is not supported yet
                  why: leaving it unread would run the workflow without what it asks for
                  fix: until then, let a later node or an operator undo it"#]],
        ),
        check(
            &[(W, r#"intent = "refund-notice""#, "intent = \"refund-notice\"\nwhen = \"true\"")],
            expect![[r#"
                workflows/damaged-item-refund.toml:30:1: error[TW2006]: `when` (a branch) is not supported yet
                  why: leaving it unread would run the workflow without what it asks for
                  fix: branch inside the node"#]],
        ),
        check(
            &[(M, r#"kind = "http""#, r#"kind = "approval""#)],
            expect![[r#"
            tools/mail.toml:5:8: error[TW2006]: tools of kind `approval` are not supported yet
              why: nothing here could perform their operations
              fix: use `kind = "http"`"#]],
        ),
        check(
            &[(M, r#"kind = "http""#, r#"kind = "htpp""#)],
            expect![[r#"
            tools/mail.toml:5:8: error[TW2005]: `kind` is `htpp`, which means nothing
              why: every limit and choice is explicit, so that a slip cannot pass for a decision
              fix: write one of: `http`"#]],
        ),
    ]
}

#[must_use]
fn the_graph_and_its_names() -> Vec<BTreeSet<Code>> {
    vec![
        check(
            &[(W, r#"after = ["refund"]"#, r#"after = ["refunds"]"#)],
            expect![[r#"
            workflows/damaged-item-refund.toml:22:10: error[TW2101]: there is no node `refunds`
              why: the node would wait for ever
              fix: did you mean `refund`?"#]],
        ),
        check(
            &[(W, r#"after = ["refund"]"#, r#"after = ["refund", "refund"]"#)],
            expect![[r#"
            workflows/damaged-item-refund.toml:22:20: error[TW2008]: `refund` is named twice in `after`
              why: one of them may have been meant to be another node
              fix: remove one"#]],
        ),
        check(
            &[(W, r#"after = ["refund"]"#, r#"after = ["notify"]"#)],
            expect![[r#"
            workflows/damaged-item-refund.toml:20:8: error[TW2102]: nodes wait for each other: `notify` after `notify`
              why: none of them could ever start; cycles bounded by `max_visits` are not supported yet
              fix: remove one of these `after`, or loop inside a node"#]],
        ),
        check(
            &[
                (W, r#"component = "refund""#, "component = \"refund\"\nafter = [\"notify\"]"),
                (
                    W,
                    "",
                    "\n[[node]]\nname = \"last\"\ncomponent = \"last\"\nafter = [\"notify\"]\n",
                ),
            ],
            expect![[r#"
                workflows/damaged-item-refund.toml:6:8: error[TW2102]: nodes wait for each other: `refund` after `notify` after `refund`
                  why: none of them could ever start; cycles bounded by `max_visits` are not supported yet
                  fix: remove one of these `after`, or loop inside a node
                workflows/damaged-item-refund.toml:34:8: error[TW2103]: the node `last` can never start
                  why: it waits for a node that waits for itself
                  fix: resolve the cycle"#]],
        ),
        check(
            &[(W, r#"name = "notify""#, r#"name = "refund""#)],
            expect![[r#"
                workflows/damaged-item-refund.toml:20:8: error[TW2008]: there is another node `refund`
                  why: outputs and receipts are found by the node's name
                  fix: rename one of them"#]],
        ),
        check(
            &[(
                W,
                r#"allow = "args.to == state.input.customer_email""#,
                "[[node.effect]]\nslot = \"notify\"\ntool = \"mail.send\"\nobject = \"/input/order_id\"\nintent = \"again\"",
            )],
            expect![[r#"
                workflows/damaged-item-refund.toml:25:1: warning[TW2113]: the slot `notify` has no `allow`
                  why: whatever args its node sends are performed, as long as they fit the operation's schema: an amount, a recipient
                  fix: state what is permitted, for example `allow = "args.amount_cents <= state.input.paid_cents"`; if it is everything, say so: `allow = "true"`
                workflows/damaged-item-refund.toml:30:1: warning[TW2113]: the slot `notify` has no `allow`
                  why: whatever args its node sends are performed, as long as they fit the operation's schema: an amount, a recipient
                  fix: state what is permitted, for example `allow = "args.amount_cents <= state.input.paid_cents"`; if it is everything, say so: `allow = "true"`
                workflows/damaged-item-refund.toml:31:8: error[TW2008]: there is another slot `notify`
                  why: the slot is a part of the identity of its effects
                  fix: rename one of them"#]],
        ),
        check(
            &[(W, r#"tool = "mail.send""#, r#"tool = "mial.send""#)],
            expect![[r#"
            workflows/damaged-item-refund.toml:27:8: error[TW2101]: there is no tool `mial`
              why: a slot grants an operation of a tool in `tools/`
              fix: did you mean `mail`?"#]],
        ),
        check(
            &[(W, r#"tool = "mail.send""#, r#"tool = "mail.sent""#)],
            expect![[r#"
            workflows/damaged-item-refund.toml:27:8: error[TW2101]: the tool `mail` has no operation `sent`
              why: a slot grants an operation of a tool in `tools/`
              fix: did you mean `send`?"#]],
        ),
        check(
            &[(W, r#"tool = "mail.send""#, r#"tool = "mail""#)],
            expect![[r#"
            workflows/damaged-item-refund.toml:27:8: error[TW2005]: `tool` is `mail`, which names no operation
              why: every limit and choice is explicit, so that a slip cannot pass for a decision
              fix: write the tool and its operation: `payments.refund`"#]],
        ),
        check(
            &[(W, r#"time = "60s", effects = 10"#, r#"time = "5s""#)],
            expect![[r#"
            workflows/damaged-item-refund.toml:12:1: warning[TW2111]: the node has 5s in all, and one attempt of this operation may take 10s
              why: when the node's time is up amid a request, the outcome is unknown and must be reconciled
              fix: raise the node's `limits.time`, or shorten the operation's `timeout`"#]],
        ),
        check(
            &[
                (
                    W,
                    "object = \"/input/order_id\"\nintent = \"full-damaged-item\"",
                    "scope = \"object\"\nobject = \"/input/order_id\"\nintent = \"x\"",
                ),
                (
                    W,
                    "tool = \"mail.send\"\nobject = \"/input/order_id\"\nintent = \"refund-notice\"\nallow = \"args.to == state.input.customer_email\"",
                    "scope = \"object\"\ntool = \"payments.refund\"\nobject = \"/input/order_id\"\nintent = \"x\"",
                ),
            ],
            expect![[r#"
                workflows/damaged-item-refund.toml:26:1: warning[TW2113]: the slot `notify` has no `allow`
                  why: whatever args its node sends are performed, as long as they fit the operation's schema: an amount, a recipient
                  fix: state what is permitted, for example `allow = "args.amount_cents <= state.input.paid_cents"`; if it is everything, say so: `allow = "true"`
                workflows/damaged-item-refund.toml:27:8: warning[TW2110]: this is the same effect as slot `refund` of node `refund`
                  why: with `scope = "object"`, tool, operation, object and intent are the whole identity: the second request adopts the receipt of the first
                  fix: give them different intents if both are meant to happen"#]],
        ),
        check(
            &[(
                W,
                "tool = \"mail.send\"\nobject = \"/input/order_id\"\nintent = \"refund-notice\"\nallow = \"args.to == state.input.customer_email\"",
                "tool = \"payments.refund\"\nobject = \"/input/order_id\"\nintent = \"full-damaged-item\"",
            )],
            expect![[r#"
                workflows/damaged-item-refund.toml:25:1: warning[TW2113]: the slot `notify` has no `allow`
                  why: whatever args its node sends are performed, as long as they fit the operation's schema: an amount, a recipient
                  fix: state what is permitted, for example `allow = "args.amount_cents <= state.input.paid_cents"`; if it is everything, say so: `allow = "true"`
                workflows/damaged-item-refund.toml:26:8: warning[TW2112]: slot `refund` of node `refund` asks for the same on the same object with the same intent
                  why: they are two effects nevertheless, and both happen: node and slot are a part of the identity
                  fix: give them different intents if both are meant to happen, or `scope = "object"` if only one is"#]],
        ),
    ]
}

#[must_use]
fn sources_of_identity() -> Vec<BTreeSet<Code>> {
    vec![
        check(
            &[(
                W,
                "object = \"/input/order_id\"\nintent = \"full",
                "object = \"/nodes/refund/order_id\"\nintent = \"full",
            )],
            expect![[r#"
                workflows/damaged-item-refund.toml:15:10: error[TW2104]: `/nodes/refund/order_id` is a node's output, which is no trusted source
                  why: a node's output is guest output: a guest that returns another value after a restart would make a second effect (I2)
                  fix: use `/input/…`, or `/receipts/<node>/<slot>/…` of an earlier node whose tool is not a model"#]],
        ),
        check(
            &[(
                W,
                "object = \"/input/order_id\"\nintent = \"full",
                "object = \"/args/order_id\"\nintent = \"full",
            )],
            expect![[r#"
                workflows/damaged-item-refund.toml:15:10: error[TW2104]: `/args/order_id` is what the guest sends, which is no trusted source
                  why: an identity that followed the args would change with them, and the effect would happen again (I2)
                  fix: use `/input/…`, or `/receipts/<node>/<slot>/…` of an earlier node whose tool is not a model"#]],
        ),
        check(
            &[(
                W,
                "object = \"/input/order_id\"\nintent = \"full",
                "object = \"/run\"\nintent = \"full",
            )],
            expect![[r#"
                workflows/damaged-item-refund.toml:15:10: error[TW2104]: `/run` is no trusted source
                  why: an identity derives from trusted durable state alone (I2)
                  fix: use `/input/…`, or `/receipts/<node>/<slot>/…` of an earlier node whose tool is not a model"#]],
        ),
        check(
            &[(
                W,
                "object = \"/input/order_id\"\nintent = \"full",
                "object = \"input.order_id\"\nintent = \"full",
            )],
            expect![[r#"
                workflows/damaged-item-refund.toml:15:10: error[TW2010]: `input.order_id` is not a JSON Pointer
                  why: places in JSON are named by JSON Pointers (RFC 6901)
                  fix: start with `/` and separate names by `/`; write `~1` for `/` and `~0` for `~` within a name"#]],
        ),
        check(
            &[(
                W,
                "object = \"/input/order_id\"\nintent = \"full",
                "object = \"/input/order-id\"\nintent = \"full",
            )],
            expect![[r#"
                workflows/damaged-item-refund.toml:15:10: error[TW2106]: the input schema has no `order-id`
                  why: the schema is closed (`additionalProperties` is false), so it can never be there
                  fix: did you mean `order_id`?"#]],
        ),
        check(
            &[(
                W,
                "object = \"/input/order_id\"\nintent = \"full",
                "object = \"/input/reason\"\nintent = \"full",
            )],
            expect![[r#"
                workflows/damaged-item-refund.toml:15:10: warning[TW2108]: the input schema does not require `/input/reason`
                  why: a run without it starts, and fails at this effect
                  fix: add it to `required` in the schema"#]],
        ),
        check(
            &[(
                W,
                "object = \"/input/order_id\"\nintent = \"full",
                "object = \"/input\"\nintent = \"full",
            )],
            expect![[r#"
                workflows/damaged-item-refund.toml:15:10: error[TW2107]: `/input` may be `object` by the input schema
                  why: an identity is text: fractions have several forms, and other values none
                  fix: use a string or an integer, or narrow the schema"#]],
        ),
        check(
            &[(W, "object = \"/input/order_id\"\nintent = \"full", r#"intent = "full"#)],
            expect![[r#"
                workflows/damaged-item-refund.toml:12:1: error[TW2105]: the slot `refund` has no `object`
                  why: only the object tells this effect from the same one on something else (I2); reads alone need none
                  fix: add it, for example `object = "/input/order_id"`"#]],
        ),
        check(
            &[(
                W,
                "object = \"/input/order_id\"\nintent = \"full",
                "scope = \"object\"\nintent = \"full",
            )],
            expect![[r#"
                workflows/damaged-item-refund.toml:12:1: error[TW2105]: the slot `refund` has no `object`
                  why: with `scope = "object"` the object is what runs share
                  fix: add it, for example `object = "/input/order_id"`"#]],
        ),
        check(
            &[(
                W,
                "object = \"/input/order_id\"\nintent = \"full",
                "scope = \"global\"\nobject = \"/input/order_id\"\nintent = \"full",
            )],
            expect![[r#"
                workflows/damaged-item-refund.toml:15:9: error[TW2005]: `scope` is `global`, which means nothing
                  why: every limit and choice is explicit, so that a slip cannot pass for a decision
                  fix: write one of: `run`, `object`"#]],
        ),
        check(
            &[(W, "intent = \"full-damaged-item\"\n", "")],
            expect![[r#"
            workflows/damaged-item-refund.toml:12:1: error[TW2003]: the slot `refund` does not state `intent`
              why: two effects on one object are told apart by what they are for; it is a part of the identity
              fix: add it, for example `intent = "full-damaged-item"`"#]],
        ),
        check(
            &[(W, r#"intent = "full-damaged-item""#, r#"intent = "{/args/reason}""#)],
            expect![[r#"
                workflows/damaged-item-refund.toml:16:10: error[TW2005]: `intent` is not plain text
                  why: every limit and choice is explicit, so that a slip cannot pass for a decision
                  fix: write 1 to 128 characters of plain text; an intent is literal, so `{…}` in it would not be filled in"#]],
        ),
        check(
            &[(
                W,
                "object = \"/input/order_id\"\nintent = \"refund-notice\"",
                "object = \"/receipts/refund/refund\"\nintent = \"x\"",
            )],
            expect![[r#"
                workflows/damaged-item-refund.toml:28:10: error[TW2106]: `/receipts/refund/refund` is a whole receipt
                  why: as a source, a receipt is seen as `{ external_id, result }`
                  fix: go on with `/external_id` or `/result/…`"#]],
        ),
        check(
            &[(
                W,
                "object = \"/input/order_id\"\nintent = \"refund-notice\"",
                "object = \"/receipts/refund\"\nintent = \"x\"",
            )],
            expect![[r#"
                workflows/damaged-item-refund.toml:28:10: error[TW2104]: `/receipts/refund` does not name a receipt
                  why: a receipt is found by the node and the slot that got it
                  fix: write `/receipts/<node>/<slot>/external_id` or `/receipts/<node>/<slot>/result/…`"#]],
        ),
        check(
            &[(
                W,
                "object = \"/input/order_id\"\nintent = \"refund-notice\"",
                "object = \"/receipts/refunds/refund/external_id\"\nintent = \"x\"",
            )],
            expect![[r#"
                workflows/damaged-item-refund.toml:28:10: error[TW2101]: there is no node `refunds`
                  why: a receipt exists only once the node that gets it is done
                  fix: did you mean `refund`?"#]],
        ),
        check(
            &[(
                W,
                "object = \"/input/order_id\"\nintent = \"refund-notice\"",
                "object = \"/receipts/refund/refunds/external_id\"\nintent = \"x\"",
            )],
            expect![[r#"
                workflows/damaged-item-refund.toml:28:10: error[TW2101]: the node `refund` has no slot `refunds`
                  why: a receipt exists only once the node that gets it is done
                  fix: did you mean `refund`?"#]],
        ),
        check(
            &[(
                W,
                "object = \"/input/order_id\"\nintent = \"refund-notice\"",
                "object = \"/receipts/notify/notify/external_id\"\nintent = \"x\"",
            )],
            expect![[r#"
                workflows/damaged-item-refund.toml:28:10: error[TW2101]: `notify` is not done before `notify` starts
                  why: a receipt exists only once the node that gets it is done
                  fix: add `notify` to `after`"#]],
        ),
        check(
            &[(
                W,
                "object = \"/input/order_id\"\nintent = \"refund-notice\"",
                "object = \"/receipts/refund/refund/result/reason\"\nintent = \"x\"",
            )],
            expect![[r#"
                workflows/damaged-item-refund.toml:28:10: error[TW2107]: `/receipts/refund/refund/result/reason` may be `null` by the response schema
                  why: an identity is text: fractions have several forms, and other values none
                  fix: use a string or an integer, or narrow the schema"#]],
        ),
        check(
            &[
                (P, r#"kind = "http""#, "kind = \"http\"\nmodel = true"),
                (
                    W,
                    "object = \"/input/order_id\"\nintent = \"refund-notice\"",
                    "object = \"/receipts/refund/refund/external_id\"\nintent = \"x\"",
                ),
            ],
            expect![[r#"
                workflows/damaged-item-refund.toml:28:10: error[TW2104]: the tool `payments` is a model, whose answers are no trusted source
                  why: a model may answer otherwise the next time, and what it read may have told it what to say (I2)
                  fix: let a trusted tool confirm the value first, and use that tool's receipt"#]],
        ),
        check(
            &[
                (W, r#"intent = "full-damaged-item""#, "intent = \"x\"\nrepeat = 3"),
                (
                    W,
                    "object = \"/input/order_id\"\nintent = \"refund-notice\"",
                    "object = \"/receipts/refund/refund/external_id\"\nintent = \"x\"",
                ),
            ],
            expect![[r#"
                workflows/damaged-item-refund.toml:29:10: error[TW2104]: slot `refund` of `refund` may have many receipts
                  why: which of them is meant would depend on what the guest asked for first (I2)
                  fix: take the object from a slot that is used once, or from the input"#]],
        ),
        check(
            &[(W, r#"intent = "full-damaged-item""#, "intent = \"x\"\nrepeat = 0")],
            expect![[r#"
                workflows/damaged-item-refund.toml:17:10: error[TW2005]: `repeat` is out of range
                  why: every limit and choice is explicit, so that a slip cannot pass for a decision
                  fix: write a number from 1 to 10000"#]],
        ),
        check(
            &[(
                W,
                r#"intent = "full-damaged-item""#,
                "intent = \"x\"\nfor_each = \"/input/order_id\"",
            )],
            expect![[r#"
                workflows/damaged-item-refund.toml:15:10: error[TW2104]: `/input/order_id` is not relative to the element
                  why: with `for_each`, each element of the trusted array has its own business object
                  fix: write the pointer within the element, for example `/order_id`; `""` is the element itself
                workflows/damaged-item-refund.toml:17:12: error[TW2107]: `/input/order_id` may be `string` by the input schema
                  why: `for_each` binds the slot to the elements of an array
                  fix: use an array, or narrow the schema"#]],
        ),
        check(
            &[(
                W,
                r#"intent = "full-damaged-item""#,
                "intent = \"x\"\nfor_each = \"/nodes/refund/orders\"",
            )],
            expect![[r#"
                workflows/damaged-item-refund.toml:15:10: error[TW2104]: `/input/order_id` is not relative to the element
                  why: with `for_each`, each element of the trusted array has its own business object
                  fix: write the pointer within the element, for example `/order_id`; `""` is the element itself
                workflows/damaged-item-refund.toml:17:12: error[TW2104]: `/nodes/refund/orders` is a node's output, which is no trusted source
                  why: a node's output is guest output: a guest that returns another value after a restart would make a second effect (I2)
                  fix: use `/input/…`, or `/receipts/<node>/<slot>/…` of an earlier node whose tool is not a model"#]],
        ),
        check(
            &[
                (
                    W,
                    "object = \"/input/order_id\"\nintent = \"full-damaged-item\"",
                    "object = \"/ordr_id\"\nintent = \"x\"\nfor_each = \"/input/orders\"\nrepeat = 2",
                ),
                (
                    "schemas/refund-request.json",
                    r#""properties": {"#,
                    r#""properties": { "orders": { "type": "array", "items": { "additionalProperties": false, "properties": { "order_id": { "type": "number" } } } },"#,
                ),
            ],
            expect![[r#"
                workflows/damaged-item-refund.toml:15:10: error[TW2106]: the element schema has no `ordr_id`
                  why: the schema is closed (`additionalProperties` is false), so it can never be there
                  fix: did you mean `order_id`?
                workflows/damaged-item-refund.toml:17:12: warning[TW2108]: the input schema does not require `/input/orders`
                  why: a run without it starts, and fails at this effect
                  fix: add it to `required` in the schema
                workflows/damaged-item-refund.toml:18:10: error[TW2209]: both `for_each` and `repeat` are given
                  why: a request is told from its siblings either by an element or by a count
                  fix: keep one of them"#]],
        ),
        check(
            &[
                (
                    W,
                    "object = \"/input/order_id\"\nintent = \"full-damaged-item\"",
                    "object = \"/order_id\"\nintent = \"x\"\nfor_each = \"/input/orders\"",
                ),
                (
                    "schemas/refund-request.json",
                    r#""properties": {"#,
                    r#""properties": { "orders": { "type": "array", "items": { "additionalProperties": false, "properties": { "order_id": { "type": "number" } } } },"#,
                ),
            ],
            expect![[r#"
                workflows/damaged-item-refund.toml:15:10: error[TW2107]: `/order_id` may be `number` by the element schema
                  why: an identity is text: fractions have several forms, and other values none
                  fix: use a string or an integer, or narrow the schema
                workflows/damaged-item-refund.toml:17:12: warning[TW2108]: the input schema does not require `/input/orders`
                  why: a run without it starts, and fails at this effect
                  fix: add it to `required` in the schema"#]],
        ),
    ]
}

#[must_use]
fn expressions() -> Vec<BTreeSet<Code>> {
    vec![
        check(
            &[(W, "args.to == state.input", "args.to = state.input")],
            expect![[r#"
            workflows/damaged-item-refund.toml:30:9: error[TW2109]: `allow`: the expression is not CEL: 1:9: Syntax error: token recognition error at: '= '
              why: an expression that cannot be evaluated would deny every request
              fix: write a CEL expression over `args` and `state`, for example `args.amount_cents <= state.input.paid_cents`"#]],
        ),
        check(
            &[(W, "args.to == state.input", "arg.to == state.input")],
            expect![[r#"
            workflows/damaged-item-refund.toml:30:9: error[TW2109]: `allow`: the expression names `arg`, which does not exist; there are `args` and `state`
              why: an expression that cannot be evaluated would deny every request
              fix: write a CEL expression over `args` and `state`, for example `args.amount_cents <= state.input.paid_cents`"#]],
        ),
        check(
            &[(W, "args.to == state.input.customer_email", "size(args.to) > now()")],
            expect![[r#"
                workflows/damaged-item-refund.toml:30:9: error[TW2109]: `allow`: the expression calls `now`, which does not exist
                  why: an expression that cannot be evaluated would deny every request
                  fix: write a CEL expression over `args` and `state`, for example `args.amount_cents <= state.input.paid_cents`"#]],
        ),
        check(
            &[(W, "\nallow = \"args.to == state.input.customer_email\"", "")],
            expect![[r#"
            workflows/damaged-item-refund.toml:25:1: warning[TW2113]: the slot `notify` has no `allow`
              why: whatever args its node sends are performed, as long as they fit the operation's schema: an amount, a recipient
              fix: state what is permitted, for example `allow = "args.amount_cents <= state.input.paid_cents"`; if it is everything, say so: `allow = "true"`"#]],
        ),
        check(
            &[(W, "args.to == state.input.customer_email", "1 < 2")],
            expect![[r#"
            workflows/damaged-item-refund.toml:30:9: warning[TW2114]: `allow` permits every request, whatever its args are
              why: it looks like a condition and is none
              fix: name what it depends on, or write `allow = "true"` if that is meant"#]],
        ),
        check(
            &[(W, "args.to == state.input.customer_email", "args.to == 'x' && false")],
            expect![[r#"
                workflows/damaged-item-refund.toml:30:9: warning[TW2114]: `allow` denies every request, whatever its args are
                  why: it looks like a condition and is none
                  fix: name what it depends on, or write `allow = "false"` if that is meant"#]],
        ),
        check(
            &[(W, "args.to == state.input.customer_email", "args.to == state.input.custmer_email")],
            expect![[r#"
                workflows/damaged-item-refund.toml:30:9: error[TW2106]: `allow` names `state.input.custmer_email`, and the input schema has no `custmer_email`
                  why: the schema is closed (`additionalProperties` is false), so it can never be there: the expression cannot be decided, which denies the request
                  fix: did you mean `customer_email`?"#]],
        ),
        check(
            &[(W, "args.to == state.input.customer_email", "has(args.too) || args['to'] == ''")],
            expect![[r#"
                workflows/damaged-item-refund.toml:30:9: error[TW2106]: `allow` names `args.too`, and the args schema has no `too`
                  why: the schema is closed (`additionalProperties` is false), so it can never be there: the expression cannot be decided, which denies the request
                  fix: did you mean `to`?"#]],
        ),
        check(
            &[(
                W,
                "args.to == state.input.customer_email",
                "args.to == state.inputs.customer_email",
            )],
            expect![[r#"
                workflows/damaged-item-refund.toml:30:9: error[TW2106]: `allow` names `state.inputs.customer_email`, and `state` has no `inputs`
                  why: the expression could never be decided, which denies every request
                  fix: did you mean `input`?"#]],
        ),
        check(
            &[
                (
                    W,
                    "args.to == state.input.customer_email",
                    "args.to == state.input.custmer_email",
                ),
                ("schemas/refund-request.json", "\n  \"additionalProperties\": false,", ""),
            ],
            expect![[r#"
                workflows/damaged-item-refund.toml:30:9: warning[TW2115]: `allow` names `state.input.custmer_email`, and the input schema does not mention `custmer_email`
                  why: the schema is open, so it may be there; where it is not, the expression cannot be decided, which denies the request
                  fix: add `custmer_email` to `properties` if it is meant; else: did you mean `customer_email`?"#]],
        ),
        check(
            &[(
                W,
                "args.to == state.input.customer_email",
                "state.nodes.refnud.ok && state.nodes.notify.ok",
            )],
            expect![[r#"
                workflows/damaged-item-refund.toml:30:9: error[TW2101]: `allow`: `notify` is not done before `notify` starts
                  why: a node's output is there once it is done; until then the expression cannot be decided, which denies the request
                  fix: name a node that is done before, or the input
                workflows/damaged-item-refund.toml:30:9: error[TW2101]: `allow`: there is no node `refnud`
                  why: a node's output is there once it is done; until then the expression cannot be decided, which denies the request
                  fix: did you mean `refund`?"#]],
        ),
    ]
}

#[must_use]
fn tools_and_operations() -> Vec<BTreeSet<Code>> {
    vec![
        check(
            &[(P, "env:PAYMENTS_API_KEY", "sk_live_canary")],
            expect![[r#"
            tools/payments.toml:7:11: error[TW2201]: the secret `api-key` is not a reference
              why: a secret in a file ends up in version control, in pinned definitions and in exports (I10)
              fix: write `env:NAME` or `file:PATH`; if this was a real secret, replace it at the provider"#]],
        ),
        check(
            &[(P, "env:PAYMENTS_URL", "payments.example.com")],
            expect![[r#"
            tools/payments.toml:4:12: error[TW2005]: `base_url` is neither a plain URL nor a reference to one
              why: every limit and choice is explicit, so that a slip cannot pass for a decision
              fix: write `env:NAME`, or `http://` or `https://` with a host and perhaps a path; no user, query or fragment"#]],
        ),
        check(
            &[(P, "env:PAYMENTS_URL", "https://user:canary@payments.example.com")],
            expect![[r#"
                tools/payments.toml:4:12: error[TW2005]: `base_url` is neither a plain URL nor a reference to one
                  why: every limit and choice is explicit, so that a slip cannot pass for a decision
                  fix: write `env:NAME`, or `http://` or `https://` with a host and perhaps a path; no user, query or fragment"#]],
        ),
        check(
            &[(P, r#"kind = "http""#, "kind = \"http\"\nrate = { per_second = 0 }")],
            expect![[r#"
                tools/payments.toml:4:23: error[TW2005]: `per_second` is out of range
                  why: every limit and choice is explicit, so that a slip cannot pass for a decision
                  fix: write a number from 1 to 100000"#]],
        ),
        check(
            &[(P, r#"kind = "http""#, "kind = \"http\"\nconcurrency = 0")],
            expect![[r#"
                tools/payments.toml:4:15: error[TW2005]: `concurrency` is out of range
                  why: every limit and choice is explicit, so that a slip cannot pass for a decision
                  fix: write a number from 1 to 10000"#]],
        ),
        check(
            &[(P, r#"kind = "http""#, "kind = \"http\"\nconcurency = 4")],
            expect![[r#"
            tools/payments.toml:4:1: error[TW2002]: the tool file has no key `concurency`
              why: a key that nothing reads would look like a promise and be none
              fix: did you mean `concurrency`?"#]],
        ),
        check(
            &[(P, "settle = \"2s\"\n", "")],
            expect![[r#"
            tools/payments.toml:9:1: error[TW2003]: operation `refund` does not state `settle`
              why: until then a request may still be processed, and a lookup that finds nothing proves nothing
              fix: add it, for example `settle = "60s"`"#]],
        ),
        check(
            &[(P, "horizon = \"24h\"\n", "")],
            expect![[r#"
            tools/payments.toml:9:1: error[TW2003]: operation `refund` does not state `horizon`
              why: after this time an unknown outcome waits for a person
              fix: add it, for example `horizon = "24h"`"#]],
        ),
        check(
            &[(M, "timeout = \"10s\"\n", "")],
            expect![[r#"
            tools/mail.toml:12:1: error[TW2003]: operation `send` does not state `timeout`
              why: after this time the outcome of a request is not known; how long is right depends on the provider
              fix: add it, for example `timeout = "10s"`"#]],
        ),
        check(
            &[(M, "retry = { attempts = 3, initial = \"500ms\", max = \"30s\" }\n", "")],
            expect![[r#"
                tools/mail.toml:12:1: error[TW2003]: operation `send` does not state `retry`
                  why: how often a request that was not processed may be made again is the provider's business
                  fix: add it, for example `retry = { attempts = 5, initial = "500ms", max = "30s" }`"#]],
        ),
        check(
            &[(M, "attempts = 3, ", "")],
            expect![[r#"
            tools/mail.toml:17:9: error[TW2003]: `retry` does not state `attempts`
              why: there is no default that would be right for everyone
              fix: add it, for example `attempts = 5`"#]],
        ),
        check(
            &[(M, r#"max = "30s""#, r#"max = "100ms""#)],
            expect![[r#"
            tools/mail.toml:17:50: error[TW2005]: `max` is shorter than `initial`
              why: every limit and choice is explicit, so that a slip cannot pass for a decision
              fix: write at least as much as `initial`"#]],
        ),
        check(
            &[(M, "key = \"none\"\n", "")],
            expect![[r#"
            tools/mail.toml:12:1: error[TW2003]: operation `send` does not state `key`
              why: whether the provider honours a key decides whether a request may ever be sent twice; this is never guessed
              fix: add it, for example `key = "none"` or a table `[operation.NAME.key]`"#]],
        ),
        check(
            &[(M, "lookup = \"none\"\n", "")],
            expect![[r#"
            tools/mail.toml:12:1: error[TW2003]: operation `send` does not state `lookup`
              why: whether an unknown outcome can be looked up decides whether it needs a person; this is never guessed
              fix: add it, for example `lookup = "none"` or a table `[operation.NAME.lookup]`"#]],
        ),
        check(
            &[(M, r#"lookup = "none""#, r#"lookup = "nothing""#)],
            expect![[r#"
                tools/mail.toml:19:10: error[TW2004]: `lookup`, if it is not "none", is a string, not a table
                  why: a value is never converted silently: what was meant could be something else
                  fix: write a table"#]],
        ),
        check(
            &[(M, r#"key = "none""#, "key = \"none\"\nread = true")],
            expect![[r#"
            tools/mail.toml:15:10: error[TW2206]: a read states `settle`
              why: a read is repeated freely and never unknown, so nothing would ever use it
              fix: remove `settle`, or remove `read = true` if the operation changes anything
            tools/mail.toml:16:11: error[TW2206]: a read states `horizon`
              why: a read is repeated freely and never unknown, so nothing would ever use it
              fix: remove `horizon`, or remove `read = true` if the operation changes anything
            tools/mail.toml:18:7: error[TW2206]: a read states `key`
              why: a read is repeated freely and never unknown, so nothing would ever use it
              fix: remove `key`, or remove `read = true` if the operation changes anything
            tools/mail.toml:20:10: error[TW2206]: a read states `lookup`
              why: a read is repeated freely and never unknown, so nothing would ever use it
              fix: remove `lookup`, or remove `read = true` if the operation changes anything"#]],
        ),
        check(
            &[(M, "args = { schema = \"schemas/mail-args.json\" }\n", "")],
            expect![[r#"
            tools/mail.toml:12:1: error[TW2003]: operation `send` does not state `args`
              why: there is no default that would be right for everyone
              fix: add it, for example `args = { schema = "schemas/args.json" }`"#]],
        ),
        check(
            &[(P, r#"incidental = ["/reason"]"#, r#"incidental = ["/reasons"]"#)],
            expect![[r#"
            tools/payments.toml:12:15: error[TW2106]: the args schema has no `reasons`
              why: the schema is closed (`additionalProperties` is false), so it can never be there
              fix: did you mean `reason`?"#]],
        ),
        check(
            &[(P, r#"incidental = ["/reason"]"#, r#"incidental = ["reason"]"#)],
            expect![[r#"
            tools/payments.toml:12:15: error[TW2010]: `reason` is not a JSON Pointer
              why: places in JSON are named by JSON Pointers (RFC 6901)
              fix: start with `/` and separate names by `/`; write `~1` for `/` and `~0` for `~` within a name"#]],
        ),
        check(
            &[(
                P,
                "[operation.refund.request]\nmethod = \"POST\"",
                "max_response = \"2MiB\"\n[operation.refund.request]\nmethod = \"post\"",
            )],
            expect![[r#"
                tools/payments.toml:21:16: error[TW2005]: `max_response` is 2MiB: out of range
                  why: every limit and choice is explicit, so that a slip cannot pass for a decision
                  fix: write 1B to 1MiB
                tools/payments.toml:23:10: error[TW2005]: `method` is `post`, which means nothing
                  why: every limit and choice is explicit, so that a slip cannot pass for a decision
                  fix: write one of: `GET`, `POST`, `PUT`, `PATCH`, `DELETE`"#]],
        ),
        check(
            &[(P, "env:PAYMENTS_URL", "http://payments.example.com/v1")],
            expect![[r#"
            tools/payments.toml:4:12: warning[TW2212]: `base_url` is `http://`, and the tool has secrets
              why: whoever is on the way to that host can read them, and change what is asked and answered
              fix: use `https://`; with a certificate of your own, state `ca_file`"#]],
        ),
    ]
}

#[must_use]
fn request_templates() -> Vec<BTreeSet<Code>> {
    vec![
        check(
            &[(P, "orders/{/args/order_id}", "orders/{/args/orderid}")],
            expect![[r#"
            tools/payments.toml:23:8: error[TW2106]: the args schema has no `orderid`
              why: the schema is closed (`additionalProperties` is false), so it can never be there
              fix: did you mean `order_id`?"#]],
        ),
        check(
            &[(P, "orders/{/args/order_id}", "orders/{/input/order_id}")],
            expect![[r#"
            tools/payments.toml:23:8: error[TW2202]: `/input/order_id` leads nowhere
              why: a request is made from its args and its identity alone, so that every attempt is the same
              fix: use `/args/…`, `/key`, `/effect_id`, `/run`"#]],
        ),
        check(
            &[(P, "orders/{/args/order_id}", "orders/{/args/order_id?}")],
            expect![[r#"
            tools/payments.toml:23:8: error[TW2202]: `{/args/order_id?}` is optional within text
              why: a text with a hole in it would be a different request; only a whole member of a body can be left out
              fix: drop the `?`, or make the value required in the args schema"#]],
        ),
        check(
            &[(P, "orders/{/args/order_id}", "orders/{/args/reason}")],
            expect![[r#"
            tools/payments.toml:23:8: warning[TW2210]: the args schema does not require `/reason`
              why: a request of a node that leaves it out will be refused before anything is sent
              fix: write `{/args/reason?}` as a whole member of the body, or add it to `required`"#]],
        ),
        check(
            &[(P, "orders/{/args/order_id}", "orders/{/args}")],
            expect![[r#"
            tools/payments.toml:23:8: error[TW2202]: `/args` may be `object` and stands within text
              why: only a string, an integer or a truth value has exactly one text
              fix: put it into the body as a whole member, or narrow its type in the args schema"#]],
        ),
        check(
            &[(P, "orders/{/args/order_id}", "orders/{order_id}")],
            expect![[r#"
            tools/payments.toml:23:8: error[TW2202]: this text has `{order_id}`, which is neither `{/pointer}` nor `{secret:name}`
              why: braces mark what is filled in when the request is made
              fix: write `{/args/name}`, `{/args/name?}` or `{secret:name}`; double a brace that is meant as such"#]],
        ),
        check(
            &[(P, "orders/{/args/order_id}", "orders/{/args/order_id")],
            expect![[r#"
            tools/payments.toml:23:8: error[TW2202]: this text has a `{` that is never closed; write `{{` for the character
              why: braces mark what is filled in when the request is made
              fix: write `{/args/name}`, `{/args/name?}` or `{secret:name}`; double a brace that is meant as such"#]],
        ),
        check(
            &[(P, "orders/{/args/order_id}", "orders/order_id}")],
            expect![[r#"
            tools/payments.toml:23:8: error[TW2202]: this text has a `}` that closes nothing; write `}}` for the character
              why: braces mark what is filled in when the request is made
              fix: write `{/args/name}`, `{/args/name?}` or `{secret:name}`; double a brace that is meant as such"#]],
        ),
        check(
            &[(P, r#""/v1/orders"#, r#""v1/orders"#)],
            expect![[r#"
            tools/payments.toml:23:8: error[TW2202]: the path does not start with `/`
              why: segments are percent-encoded one by one, so that no value can change where a request goes
              fix: start it with `/`"#]],
        ),
        check(
            &[(P, r#""/v1/orders"#, r#""{/args/order_id}/orders"#)],
            expect![[r#"
            tools/payments.toml:23:8: error[TW2202]: the path does not start with `/`
              why: segments are percent-encoded one by one, so that no value can change where a request goes
              fix: start it with `/`"#]],
        ),
        check(
            &[(P, "/v1/orders/", "/v1//orders/")],
            expect![[r#"
            tools/payments.toml:23:8: error[TW2202]: the path has an empty segment, or one that is `.` or `..`
              why: segments are percent-encoded one by one, so that no value can change where a request goes
              fix: name each segment; leave out a `/` at the end"#]],
        ),
        check(
            &[(P, "/v1/orders/", "/v1/../orders/")],
            expect![[r#"
            tools/payments.toml:23:8: error[TW2202]: the path has an empty segment, or one that is `.` or `..`
              why: segments are percent-encoded one by one, so that no value can change where a request goes
              fix: name each segment; leave out a `/` at the end"#]],
        ),
        check(
            &[(P, "/refunds\"\nheaders", "/refunds?a=b\"\nheaders")],
            expect![[r#"
            tools/payments.toml:23:8: error[TW2202]: the path has a `?`, `#`, `%`, `\` or control character in it
              why: segments are percent-encoded one by one, so that no value can change where a request goes
              fix: write plain text, which is encoded for you, and put parameters into `query`"#]],
        ),
        check(
            &[(
                P,
                r#"body = { order_id = "{/args/order_id}""#,
                r#"body = { "order_id" = "{secret:apikey}""#,
            )],
            expect![[r#"
                tools/payments.toml:25:23: error[TW2101]: there is no secret `apikey`
                  why: secrets are named under `[secrets]`, each with where its value is read from
                  fix: did you mean `api-key`?"#]],
        ),
        check(
            &[(P, r#"reason = "{/args/reason?}""#, r#"reason = "{/args/reason}""#)],
            expect![[r#"
                tools/payments.toml:25:117: warning[TW2210]: the args schema does not require `/reason`
                  why: a request of a node that leaves it out will be refused before anything is sent
                  fix: write `{/args/reason?}` as a whole member of the body, or add it to `required`"#]],
        ),
        check(
            &[(P, r#"reason = "{/args/reason?}""#, "reason = 1979-05-27")],
            expect![[r#"
            tools/payments.toml:25:117: error[TW2005]: a date cannot be written as JSON
              why: requests and schemas are JSON, and what is hashed must mean the same everywhere
              fix: write it as a string, or as a number of at most 2^53-1"#]],
        ),
        check(
            &[(
                M,
                r#"headers = { Authorization = "Bearer {secret:api-key}" }"#,
                r#"headers = { Host = "example.com", "a b" = "c" }"#,
            )],
            expect![[r#"
                tools/mail.toml:24:13: error[TW2005]: the header `Host` is set by the host
                  why: a request must mean the same to every server on its way
                  fix: remove it
                tools/mail.toml:24:35: error[TW2005]: `a b` cannot be the name of a header
                  why: a request must mean the same to every server on its way
                  fix: use letters, digits and `-`"#]],
        ),
        check(
            &[(M, "Bearer {secret:api-key}", "Bearer\\r\\nX: 1")],
            expect![[r#"
            tools/mail.toml:21:1: error[TW2005]: `Authorization` is a text with a line break or another control character in it
              why: every limit and choice is explicit, so that a slip cannot pass for a decision
              fix: write plain text"#]],
        ),
        check(
            &[(P, "Idempotency-Key", "Content-Length")],
            expect![[r#"
            tools/payments.toml:28:10: error[TW2005]: the header `Content-Length` is set by the host
              why: a request must mean the same to every server on its way
              fix: remove it
            tools/payments.toml:29:1: error[TW2002]: `key` has no key `format`
              why: a key that nothing reads would look like a promise and be none
              fix: remove it; `key` knows: `header`
            tools/payments.toml:30:1: error[TW2002]: `key` has no key `retention`
              why: a key that nothing reads would look like a promise and be none
              fix: remove it; `key` knows: `header`
            tools/payments.toml:31:1: error[TW2002]: `key` has no key `basis`
              why: a key that nothing reads would look like a promise and be none
              fix: remove it; `key` knows: `header`
            tools/payments.toml:32:1: error[TW2002]: `key` has no key `replay`
              why: a key that nothing reads would look like a promise and be none
              fix: remove it; `key` knows: `header`
            tools/payments.toml:33:1: error[TW2002]: `key` has no key `mismatch`
              why: a key that nothing reads would look like a promise and be none
              fix: remove it; `key` knows: `header`
            tools/payments.toml:34:1: error[TW2002]: `key` has no key `in_flight`
              why: a key that nothing reads would look like a promise and be none
              fix: remove it; `key` knows: `header`
            tools/payments.toml:35:1: error[TW2002]: `key` has no key `replayed`
              why: a key that nothing reads would look like a promise and be none
              fix: remove it; `key` knows: `header`"#]],
        ),
        check(
            &[(M, r#"method = "POST""#, r#"method = "GET""#)],
            expect![[r#"
            tools/mail.toml:22:10: error[TW2209]: a GET with a body
              why: servers and proxies on the way may drop the body of a GET
              fix: put the values into `query`, or use POST"#]],
        ),
        check(
            &[(M, r#"reference = "{/effect_id}""#, r#"reference = "{/key}""#)],
            expect![[r#"
                tools/mail.toml:25:93: error[TW2203]: `{/key}` is used, and the operation declares no key
                  why: without a declared key there is no key format, and nothing may rely on the provider honouring it
                  fix: use `{/effect_id}` for a reference of ours, or declare the key"#]],
        ),
    ]
}

#[must_use]
fn keys_lookups_and_times() -> Vec<BTreeSet<Code>> {
    vec![
        check(
            &[(P, "header = \"Idempotency-Key\"\n", "")],
            expect![[r#"
            tools/payments.toml:27:1: error[TW2203]: the key has no `header`, and the request does not place `{/key}`
              why: a key that the provider never sees protects nothing
              fix: state `header = "Idempotency-Key"`, or put `{/key}` where the provider wants it"#]],
        ),
        check(
            &[(P, r#"header = "Idempotency-Key""#, r#"header = "authorization""#)],
            expect![[r#"
                tools/payments.toml:28:10: error[TW2209]: the header `authorization` is set by the key and by the request
                  why: the provider would see one key or the other
                  fix: remove it from the request's `headers`"#]],
        ),
        check(
            &[(P, r#"format = "uuid""#, r#"format = "guid""#)],
            expect![[r#"
            tools/payments.toml:29:10: error[TW2005]: `format` is `guid`, which means nothing
              why: every limit and choice is explicit, so that a slip cannot pass for a decision
              fix: write one of: `uuid`, `uuid_v4`, `readable`, `hash`"#]],
        ),
        check(
            &[(P, "format = \"uuid\"\n", "")],
            expect![[r#"
                tools/payments.toml:27:1: error[TW2003]: `key` does not state `format`
                  why: providers differ in what they accept as a key
                  fix: add it, for example `format = "uuid"`"#]],
        ),
        check(
            &[(
                P,
                "mismatch = [{ status = 422, pointer = \"/error/code\", equals = \"idempotency_key_reused\" }]\n",
                "",
            )],
            expect![[r#"
                tools/payments.toml:27:1: error[TW2003]: `key` does not state `mismatch`
                  why: an answer that is not recognised would be taken for a refusal, or for nothing at all
                  fix: add it, for example `mismatch = [{ status = 422 }]`, or `mismatch = []`"#]],
        ),
        check(
            &[(P, r#"retention = "24h""#, r#"retention = "15s""#)],
            expect![[r#"
                tools/payments.toml:30:13: error[TW2204]: the retention of 15s leaves nothing for sending again after a timeout of 10s
                  why: of 15s only 7s500ms are trusted: one hour, a tenth or a half is kept as a margin
                  fix: shorten `timeout`; if the provider really forgets so soon, state `key = "none"` and a lookup"#]],
        ),
        check(
            &[(P, r#"retention = "24h""#, r#"retention = "20s""#)],
            expect![[r#"
            tools/payments.toml:30:13: error[TW2204]: the retention of 20s leaves nothing for sending again after a timeout of 10s
              why: of 20s only 10s are trusted: one hour, a tenth or a half is kept as a margin
              fix: shorten `timeout`; if the provider really forgets so soon, state `key = "none"` and a lookup"#]],
        ),
        check(
            &[
                KEY_ONLY,
                (P, "incidental =", "lookup = \"none\"\nincidental ="),
                (P, "retention = \"24h\"", "retention = \"25h\""),
            ],
            expect![[r#"
                tools/payments.toml:19:11: warning[TW2205]: the horizon of 24h outlives the key
                  why: the class is "key only": from 22h30m after the first send an unknown outcome can neither be sent again nor looked up, and waits for a person
                  fix: state a horizon of at most 22h30m, or a lookup"#]],
        ),
        check(
            &[
                KEY_ONLY,
                (P, "incidental =", "lookup = \"none\"\nincidental ="),
                (P, "attempts = 5", "attempts = 1000"),
                (P, "horizon = \"24h\"", "horizon = \"1h\""),
                (P, "retention = \"24h\"", "retention = \"3h\""),
            ],
            expect![[r#"
                tools/payments.toml:20:9: warning[TW2205]: the attempts may take 11h3m41s500ms and outlive the key
                  why: the class is "key only": from 2h after the first send an unknown outcome can neither be sent again nor looked up, and waits for a person
                  fix: make them fit into 2h, or state a lookup"#]],
        ),
        check(
            &[(P, r#"replay = "first_answer""#, r#"replay = "conflict_with_id""#)],
            expect![[r#"
                tools/payments.toml:32:10: error[TW2207]: a repeated key gets a conflict, and nothing says how to recognise it or where its id is
                  why: the conflict would be taken for a refusal, although the effect happened
                  fix: state `duplicate` and `duplicate_id` in the operation's `response`"#]],
        ),
        check(
            &[
                (P, r#"replay = "first_answer""#, r#"replay = "conflict_with_id""#),
                (
                    P,
                    "refused = [{ status = 402 }]",
                    "refused = [{ status = 402 }]\nduplicate = [{ status = 409 }]\nduplicate_id = \"/id\"",
                ),
            ],
            expect![[""]],
        ),
        check(
            &[(P, "consistency = \"strong\"\n", "")],
            expect![[r#"
                tools/payments.toml:37:1: error[TW2003]: `lookup` does not state `consistency`
                  why: a lookup that lags can find what was sent, but never prove that nothing was
                  fix: add it, for example `consistency = "strong"` or `consistency = { lag = "30s" }`"#]],
        ),
        check(
            &[(P, r#"consistency = "strong""#, r#"consistency = "eventual""#)],
            expect![[r#"
            tools/payments.toml:39:15: error[TW2005]: `consistency` is `eventual`, which means nothing
              why: every limit and choice is explicit, so that a slip cannot pass for a decision
              fix: write one of: `strong`"#]],
        ),
        check(
            &[(P, r#"consistency = "strong""#, r#"consistency = { lag = "soon" }"#)],
            expect![[r#"
                tools/payments.toml:39:23: error[TW2005]: `lag` is `soon`, which is not a duration
                  why: every limit and choice is explicit, so that a slip cannot pass for a decision
                  fix: write a whole number and a unit: `500ms`, `10s`, `5m`, `24h`, `30d`"#]],
        ),
        check(
            &[(P, r#"by = "reference""#, r#"by = "key""#)],
            expect![[r#"
            tools/payments.toml:37:1: error[TW2208]: the lookup is by key, and neither its request nor `matches` has `/key`
              why: a lookup that finds nothing, or something else, would be taken for the truth
              fix: put `{/key}` into the lookup's request, or state `by = "reference"`"#]],
        ),
        check(
            &[
                (P, r#"query = { reference = "{/effect_id}" }"#, ""),
                (P, "matches = { \"/reference\" = \"/effect_id\" }\n", ""),
            ],
            expect![[r#"
                tools/payments.toml:37:1: error[TW2208]: the lookup is by reference, and neither its request nor `matches` has `/effect_id`
                  why: a lookup that finds nothing, or something else, would be taken for the truth
                  fix: put `{/effect_id}` into the lookup's request, or compare with it in `matches`"#]],
        ),
        check(
            &[(P, r#"reference = "{/effect_id}", reason"#, "reason")],
            expect![[r#"
            tools/payments.toml:37:1: error[TW2208]: the lookup is by reference, and the request leaves no reference with the provider
              why: a lookup that finds nothing, or something else, would be taken for the truth
              fix: put `{/effect_id}` into the request, in a field that the provider keeps"#]],
        ),
        check(
            &[(P, "absent = []", "absent = [200]")],
            expect![[r#"
            tools/payments.toml:45:11: error[TW2005]: `absent` is not such a status
              why: every limit and choice is explicit, so that a slip cannot pass for a decision
              fix: write statuses from 400 to 499: others say nothing about absence"#]],
        ),
        check(
            &[(
                P,
                r#"pending = { "/status" = ["pending"] }"#,
                r#"pending = { "/status" = ["pending"], "/state" = [] }"#,
            )],
            expect![[r#"
                tools/payments.toml:48:11: error[TW2005]: `pending` is not a single pair
                  why: every limit and choice is explicit, so that a slip cannot pass for a decision
                  fix: write one pointer and what is expected there"#]],
        ),
        check(
            &[(
                P,
                r#"matches = { "/reference" = "/effect_id" }"#,
                r#"matches = { "reference" = "/effect" }"#,
            )],
            expect![[r#"
                tools/payments.toml:47:13: error[TW2010]: `reference` is not a JSON Pointer
                  why: places in JSON are named by JSON Pointers (RFC 6901)
                  fix: start with `/` and separate names by `/`; write `~1` for `/` and `~0` for `~` within a name"#]],
        ),
        check(
            &[(P, "horizon = \"24h\"", "horizon = \"1s\"")],
            expect![[r#"
            tools/payments.toml:18:11: error[TW2211]: the horizon of 1s is shorter than the settle window of 2s
              why: a request may still be processed when nobody asks any more, so that no lookup could ever prove that it was lost
              fix: state a horizon that is longer than `settle`, by far: it is how long an unknown outcome is looked after before a person has to"#]],
        ),
    ]
}

#[must_use]
fn what_answers_mean() -> Vec<BTreeSet<Code>> {
    vec![
        check(
            &[(P, r#""/amount_cents" = "/amount_cents" }"#, r#""/amount_cents" = "/amount" }"#)],
            expect![[r#"
                tools/payments.toml:56:55: error[TW2106]: the args schema has no `amount`
                  why: the schema is closed (`additionalProperties` is false), so it can never be there
                  fix: use one of: `amount_cents`, `order_id`, `reason`"#]],
        ),
        check(
            &[
                (
                    P,
                    r#"expose = ["/id", "/status", "/amount_cents"]"#,
                    r#"expose = ["/id", "/state", "/amount_cents"]"#,
                ),
                (
                    "schemas/refund.json",
                    r#""type": "object","#,
                    r#""type": "object", "additionalProperties": false,"#,
                ),
            ],
            expect![[r#"
                tools/payments.toml:57:18: error[TW2106]: the response schema has no `state`
                  why: the schema is closed (`additionalProperties` is false), so it can never be there
                  fix: use one of: `amount_cents`, `id`, `order_id`, `reason`, `reference`, `status`"#]],
        ),
        check(
            &[(P, "schema = \"schemas/refund.json\"", "schema = { inline = 5 }")],
            expect![[r#"
            tools/payments.toml:53:21: error[TW2004]: `inline` is an integer, not a table
              why: a value is never converted silently: what was meant could be something else
              fix: write a table"#]],
        ),
        check(
            &[(P, "schema = \"schemas/refund.json\"", "schema = 5")],
            expect![[r#"
            tools/payments.toml:53:10: error[TW2004]: `schema` is an integer, not a path, or `{ inline = … }`
              why: a value is never converted silently: what was meant could be something else
              fix: write a path, or `{ inline = … }`"#]],
        ),
        check(
            &[(P, "refused = [{ status = 402 }]", "refused = [{ }]")],
            expect![[r#"
            tools/payments.toml:58:12: error[TW2005]: the pattern matches every answer
              why: a pattern decides what an answer means, so it must leave no doubt about itself
              fix: state at least one of `status`, `header`, `pointer`"#]],
        ),
        check(
            &[(
                P,
                "refused = [{ status = 402 }]",
                "refused = [{ status = 4020 }, { status = 402, code = 5 }, 402]",
            )],
            expect![[r#"
                tools/payments.toml:58:23: error[TW2005]: `status` is out of range
                  why: every limit and choice is explicit, so that a slip cannot pass for a decision
                  fix: write a number from 100 to 599
                tools/payments.toml:58:47: error[TW2002]: a pattern in `refused` has no key `code`
                  why: a key that nothing reads would look like a promise and be none
                  fix: remove it; a pattern in `refused` knows: `equals`, `header`, `pointer`, `status`
                tools/payments.toml:58:59: error[TW2004]: a pattern in `refused` is an integer, not a table
                  why: a value is never converted silently: what was meant could be something else
                  fix: write a table"#]],
        ),
        check(
            &[(
                P,
                "refused = [{ status = 402 }]",
                r#"refused = [{ status = 402, equals = 1 }, { header = "X-Code", equals = 1 }, { header = "a", pointer = "/b", equals = "c" }]"#,
            )],
            expect![[r#"
                tools/payments.toml:58:37: error[TW2005]: `equals` stands beside neither `header` nor `pointer`
                  why: a pattern decides what an answer means, so it must leave no doubt about itself
                  fix: state what must be equal
                tools/payments.toml:58:53: error[TW2005]: the header's name is not in lower case
                  why: a pattern decides what an answer means, so it must leave no doubt about itself
                  fix: write it in lower case
                tools/payments.toml:58:72: error[TW2005]: a header is compared with something else than a string
                  why: a pattern decides what an answer means, so it must leave no doubt about itself
                  fix: write a string
                tools/payments.toml:58:118: error[TW2005]: `equals` stands beside both `header` and `pointer`
                  why: a pattern decides what an answer means, so it must leave no doubt about itself
                  fix: use one of them; which of the two must be equal is not said"#]],
        ),
        check(
            &[(M, r#"external_id = "/id""#, "external_id = \"/id\"\nno_body = true")],
            expect![[r#"
                tools/mail.toml:27:1: error[TW2209]: `no_body` is set, and the section says what is in the body
                  why: a success without a body would then break the operation's own declarations
                  fix: remove `no_body`, or everything that reads the body"#]],
        ),
    ]
}

#[test]
fn accepts_what_is_sound() {
    let each = [
        (
            W,
            "object = \"/input/order_id\"\nintent = \"full",
            "object = \"/id\"\nfor_each = \"/input/orders\"\nintent = \"full",
        ),
        ("schemas/refund-request.json", "\"required\": [", "\"required\": [\"orders\", "),
        (
            "schemas/refund-request.json",
            "\"properties\": {",
            "\"$defs\": { \"order\": { \"required\": [\"id\"], \"properties\": { \"id\": { \"enum\": [1, \"a\"] } } } },\n  \"properties\": { \"orders\": { \"type\": \"array\", \"items\": { \"$ref\": \"#/$defs/order\" } },",
        ),
    ];
    let receipt = "object = \"/receipts/refund/refund/result/id\"\nintent = \"refund-notice\"";
    let read = "[operation.status]\nargs = { inline = { type = \"object\" } }\nread = true\ntimeout = \"5s\"\nretry = { attempts = 3, initial = \"1s\", max = \"1s\" }\n[operation.status.request]\nmethod = \"GET\"\npath = \"/v1/refunds/{/args/id}\"\n";
    let rows: [&[(&str, &str, &str)]; 20] = [
        &each,
        &[(P, "schema = \"schemas/refund.json\"", "schema = { inline = { type = \"object\" } }")],
        &[(P, "pending = { \"/status\" = [\"pending\"] }", "pending = {}")],
        &[(W, "object = \"/input/order_id\"\nintent = \"refund-notice\"", receipt)],
        &[
            (P, "[operation.refund]", &format!("{read}\n[operation.refund]")),
            (
                W,
                "",
                "\n[[node.effect]]\nslot = \"status\"\ntool = \"payments.status\"\nrepeat = 20\nallow = \"true\"\n",
            ),
        ],
        &[(P, "env:PAYMENTS_URL", "https://payments.example.com:8443/api")],
        &[(P, "env:PAYMENTS_URL", "http://localhost:4010/v1")],
        &[(P, "env:PAYMENTS_URL", "http://127.0.0.1:4010")],
        &[(P, "env:PAYMENTS_URL", "http://[::1]")],
        &[(P, "env:PAYMENTS_API_KEY", "file:secrets/api-key")],
        &[(W, "args.to == state.input.customer_email", " false ")],
        &[(W, "args.to == state.input.customer_email", "state.nodes.refund.any == args.to")],
        &[
            (
                "schemas/refund-request.json",
                "\"additionalProperties\": false",
                "\"additionalProperties\": true",
            ),
            (W, "args.to == state.input.customer_email", "state.input.other == 1"),
        ],
        &[
            (P, "header = \"Idempotency-Key\"\n", ""),
            (
                P,
                "reference = \"{/effect_id}\", ",
                "reference = \"{/effect_id}\", key = \"{/key}\", ",
            ),
        ],
        &[(P, "consistency = \"strong\"", "consistency = { lag = \"30s\" }")],
        &[(
            P,
            "reason = \"{/args/reason?}\"",
            "reason = \"{{literal}} for run {/run}\", tags = [1, true, 1.5, \"{/args/reason?}\"]",
        )],
        &[(W, "input = { schema = \"schemas/refund-request.json\" }\n", "")],
        &[
            (W, "version = 1", "version = 7"),
            (W, "after = [\"refund\"]", "retry = { attempts = 2, initial = \"2m\" }"),
        ],
        &[(
            W,
            "limits = { time = \"60s\" }",
            "limits = { time = \"24h\", memory = \"1GiB\", effects = 0, log = \"0B\" }",
        )],
        &[(T, "", "\n[database]\nurl = \"env:TWICE_DATABASE_URL\"\n")],
    ];
    for row in rows {
        check(row, expect![[""]]);
    }
}
