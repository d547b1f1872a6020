//! The program: that it says when it is ready, and that its memory outlives it.

use std::path::Path;
use std::process::Stdio;

use serde_json::json;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::Client;

struct Program {
    child: Child,
    client: Client,
}

async fn start(directory: &Path, more: &[&str]) -> Program {
    let ready = directory.join("ready");
    let mut child = Command::new(env!("CARGO_BIN_EXE_twice-provider-sim"))
        .arg("--db")
        .arg(directory.join("provider.db"))
        .arg("--ready-file")
        .arg(&ready)
        .args(more)
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let line = lines.next_line().await.unwrap().expect("it says where it listens");
    let url = std::fs::read_to_string(ready).unwrap();
    assert_eq!(line, format!("listening on {url}"));
    Program { child, client: Client::new(&url) }
}

#[tokio::test]
async fn what_was_answered_outlives_a_kill() {
    let directory = TempDir::new().unwrap();
    let switches =
        ["--switch", "commit_then_drop=on,times=1", "--switch", "lookup_error=on,times=2"];
    let mut first = start(directory.path(), &switches).await;
    assert!(first.client.refund("key-1").await.is_err());
    assert_eq!(first.client.get("/v1/refunds").await.unwrap().status, 503);
    let clock =
        first.client.request("POST", "/_sim/clock").header("content-type", "application/json");
    crate::see(clock.body(r#"{"advance_ms":1000}"#)).await.unwrap();
    let before = first.client.get("/_sim/counters").await.unwrap().json();
    first.child.kill().await.unwrap();

    let second = start(directory.path(), &[]).await;
    assert_eq!(second.client.get("/_sim/counters").await.unwrap().json(), before);
    assert_eq!(second.client.get("/_sim/clock").await.unwrap().json()["offset_ms"], json!(1000));
    // The drop is spent; of the two failing lookups one is left.
    let replay = second.client.refund("key-1").await.unwrap();
    assert_eq!((replay.status, replay.replayed), (201, true));
    assert_eq!(second.client.get("/v1/refunds").await.unwrap().status, 503);
    assert_eq!(second.client.get("/v1/refunds").await.unwrap().found(), 1);
}

#[tokio::test]
async fn it_forgets_its_switches_when_told() {
    let directory = TempDir::new().unwrap();
    let mut first = start(directory.path(), &["--switch", "commit_then_drop"]).await;
    assert!(first.client.refund("key-1").await.is_err());
    first.child.kill().await.unwrap();
    let mut second = start(directory.path(), &["--clear-switches"]).await;
    assert!(second.client.refund("key-1").await.unwrap().replayed);
    second.child.kill().await.unwrap();
    // For good.
    let third = start(directory.path(), &[]).await;
    assert_eq!(third.client.refund("key-2").await.unwrap().status, 201);
}

#[tokio::test]
async fn a_paused_reply_dies_with_the_program_but_its_effect_does_not() {
    let directory = TempDir::new().unwrap();
    let mut first =
        start(directory.path(), &["--switch", "pause_before_reply_until=on,times=1"]).await;
    let client = first.client.clone();
    let asking = tokio::spawn(async move { client.refund("key-1").await });
    let waited = first.client.get("/_sim/wait?for=committed&count=1").await.unwrap();
    assert_eq!(waited.status, 200);
    first.child.kill().await.unwrap();
    assert!(asking.await.unwrap().is_err());
    let second = start(directory.path(), &[]).await;
    assert!(second.client.refund("key-1").await.unwrap().replayed);
}

#[tokio::test]
async fn it_stops_in_order_when_told() {
    let directory = TempDir::new().unwrap();
    let mut program = start(directory.path(), &[]).await;
    program.client.refund("key-1").await.unwrap();
    let id = program.child.id().unwrap().to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().await.unwrap().success());
    assert!(program.child.wait().await.unwrap().success());
}

#[tokio::test]
async fn it_refuses_what_it_cannot_do() {
    for (arguments, problem) in [
        (vec!["--listen", "0.0.0.0:0"], "not an address of this machine alone"),
        (vec!["--switch", "no_such=on"], "there is no switch `no_such`"),
        (vec!["--ready-file", "/nonexistent/ready"], "cannot write the ready file"),
    ] {
        let directory = TempDir::new().unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_twice-provider-sim"))
            .arg("--db")
            .arg(directory.path().join("provider.db"))
            .args(&arguments)
            .output()
            .await
            .unwrap();
        assert!(!output.status.success(), "{arguments:?}");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(text.contains(problem), "{arguments:?}: {text}");
    }
}
