//! Findings about files in general.

use std::collections::BTreeSet;

use expect_test::expect;
use twice_workflow::diagnostic::Code;

use super::{P, T, W, check};

#[must_use]
pub(super) fn files_in_general() -> Vec<BTreeSet<Code>> {
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
                  fix: remove it; the workflow file knows: `input`, `node`, `saga`, `timeout`, `version`, `workflow`"#]],
        ),
        check(
            &[(T, "", "[database]\nurl = \"postgres://twice:canary@db/twice\"\n")],
            expect![[r#"
                twice.toml:8:7: error[TW2201]: the database URL has a password in it
                  why: a secret in a file ends up in version control and in backups
                  fix: write `url = "env:NAME"`; if this was a real password, change it"#]],
        ),
        check(
            &[(T, "", "[database]\nurl = \"postgres://db/twice?user=twice&password=canary\"\n")],
            expect![[r#"
                twice.toml:8:7: error[TW2201]: the database URL has a password in it
                  why: a secret in a file ends up in version control and in backups
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
