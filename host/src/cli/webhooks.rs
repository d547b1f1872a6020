//! `twice webhooks`

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};

use anyhow::{Context as _, anyhow, bail};
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use twice_core::ids::{EffectId, Name};
use twice_core::limits::WEBHOOK_BYTES_MAX;
use twice_core::webhook::Delivery;
use twice_workflow::model::{Tool, Webhook};

use super::exit::Exit;
use super::given;
use super::open::Place;
use super::out::Out;
use super::progress::Watch;
use crate::engine::webhook::{Made, Taken};
use crate::tool::secret::{SecretSource as _, SystemSecrets};

/// Largest file of headers. Bytes.
const HEADERS_BYTES_MAX: usize = 64 << 10;

/// Take in what providers post by themselves.
#[derive(Debug, Subcommand)]
pub(super) enum Webhooks {
    /// Verify an event of a tool's provider, and settle the effect that it names if its outcome is not known
    Accept(Accept),
}

/// Verify an event of a tool's provider, and settle the effect that it names if its outcome is not known.
#[derive(Debug, Args)]
#[command(
    after_help = "Answer the provider by the exit code: 0 with 200 (taken in, or known already) · 4 with 503 (not now, to be sent again) · \
                  1 with 400 (refused, standard error says why)."
)]
pub(super) struct Accept {
    /// The tool whose provider posted it
    #[arg(value_parser = given::name)]
    tool: Name,
    /// A header of the request (may be repeated)
    #[arg(long, value_name = "NAME: VALUE", value_parser = header)]
    header: Vec<(String, String)>,
    /// A file with the headers of the request, a line each
    #[arg(long, value_name = "FILE")]
    headers: Option<PathBuf>,
    /// A file with the body of the request, byte for byte; `-`: standard input
    #[arg(long, value_name = "FILE")]
    body: PathBuf,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

fn header(line: &str) -> Result<(String, String), String> {
    let (name, value) =
        line.split_once(':').ok_or_else(|| "write NAME: VALUE, as it was sent".to_owned())?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

impl Webhooks {
    pub(super) const fn prints_json(&self) -> bool {
        match self {
            Self::Accept(command) => command.json,
        }
    }

    pub(super) async fn run(&self, out: &Out, place: &Place) -> anyhow::Result<Exit> {
        match self {
            Self::Accept(accept) => accept.run(out, place).await,
        }
    }
}

impl Accept {
    async fn run(&self, out: &Out, place: &Place) -> anyhow::Result<Exit> {
        let project = place.project(out)?;
        let tool = self.tool(&project.tools)?;
        let keys = match &tool.webhook {
            Some(webhook) => keys(webhook, place)?,
            None => bail!(
                "the tool `{}` has no `[webhook]`, so that nothing can be verified\nfix: add it with `scheme` and `secrets`, and say in `[operation.NAME.webhook]` what its events mean (docs/tools.md)",
                tool.name
            ),
        };
        let mut headers = self.header.clone();
        if let Some(path) = &self.headers {
            let text = String::from_utf8(read(path, HEADERS_BYTES_MAX)?)
                .map_err(|_| anyhow!("{} is not UTF-8 text", path.display()))?;
            for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
                headers.push(header(line).map_err(|fix| {
                    anyhow!("`{line}` in {} is no header\nfix: {fix}", path.display())
                })?);
            }
        }
        let body = read(&self.body, WEBHOOK_BYTES_MAX)?;
        let delivery = Delivery { headers: &headers, body: &body };
        let engine = place.engine(place.ledger().await?, Arc::new(Watch::new(out, true))).await?;
        let taken = engine.take_event(tool, &keys, delivery).await;
        engine.ledger().close().await;
        Ok(self.tell(out, &taken.context("the event is refused; nothing was recorded")?))
    }

    fn tool<'a>(
        &self,
        tools: &'a std::collections::BTreeMap<Name, Tool>,
    ) -> anyhow::Result<&'a Tool> {
        tools.get(&self.tool).ok_or_else(|| {
            let known: Vec<&str> = tools.keys().map(Name::as_str).collect();
            anyhow!("there is no tool `{}`\nfix: the project has: {}", self.tool, known.join(", "))
        })
    }

    fn tell(&self, out: &Out, taken: &Taken) -> Exit {
        let (effect, made) = match taken {
            Taken::Elsewhere(named) => {
                self.tell_elsewhere(out, named.as_ref());
                return Exit::Done;
            }
            Taken::Here { effect, made } => (effect, made),
        };
        let (id, run) = (&effect.id, &effect.run);
        let (word, after) = match made {
            Made::Settled => (
                "settled",
                format!(
                    ", by the provider's event; its run {run} may go on: `twice runs resume {run}`"
                ),
            ),
            Made::Known => ("known", " already; nothing was recorded".to_owned()),
            Made::Nothing => (
                "nothing",
                "; the event says nothing about its outcome, and nothing was recorded".to_owned(),
            ),
            Made::Contradiction => (
                "contradiction",
                format!(
                    ", and the event says otherwise; it is kept as evidence and changes nothing: `twice effects show {id}`"
                ),
            ),
            Made::NotYet(why) => (
                "not_yet",
                format!(", and {why}; nothing was recorded: the event is to be handed over again"),
            ),
        };
        let state = effect.state.as_str();
        if self.json {
            out.json(&json!({ "event": word, "effect_id": id, "run_id": run, "state": state }));
        } else {
            out.status_line(&format!("effect {id} is "), state, &after);
        }
        match made {
            Made::NotYet(_) => Exit::RunWaits,
            Made::Settled | Made::Known | Made::Nothing | Made::Contradiction => Exit::Done,
        }
    }

    fn tell_elsewhere(&self, out: &Out, named: Option<&EffectId>) {
        if self.json {
            let nothing = Value::Null;
            out.json(&json!({
                "event": "elsewhere", "effect_id": named, "run_id": nothing, "state": nothing,
            }));
            return;
        }
        out.line(&match named {
            Some(id) => {
                format!("the event is about effect {id}, which this ledger does not have; nothing was recorded")
            }
            None => "the event names no effect; nothing was recorded".to_owned(),
        });
    }
}

/// The keys of a tool, which are kept out of every text from now on.
fn keys(webhook: &Webhook, place: &Place) -> anyhow::Result<Vec<String>> {
    let source = SystemSecrets { root: place.root()? };
    let read = |reference: &String| {
        let key = source.read(reference)?;
        place.secrets.write().unwrap_or_else(PoisonError::into_inner).add(&key)?;
        anyhow::Ok(key)
    };
    let failed = |reference: &String| format!("the secret `{reference}` of `[webhook]`");
    webhook.secrets.iter().map(|secret| read(secret).with_context(|| failed(secret))).collect()
}

/// What is in a file, or comes in, if it is no more than `most` bytes.
fn read(path: &Path, most: usize) -> anyhow::Result<Vec<u8>> {
    let failed = || format!("cannot read {}", path.display());
    let source: Box<dyn Read> = if path == Path::new("-") {
        Box::new(io::stdin().lock())
    } else {
        Box::new(File::open(path).with_context(failed)?)
    };
    let mut bytes = Vec::new();
    source.take(most as u64 + 1).read_to_end(&mut bytes).with_context(failed)?;
    if bytes.len() > most {
        bail!("{} has more than {most} bytes; nothing was recorded", path.display());
    }
    Ok(bytes)
}
