//! `twice webhooks`

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};

use anyhow::{Context as _, anyhow};
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use twice_core::effect::Hold;
use twice_core::ids::{EffectId, Name};
use twice_core::limits::WEBHOOK_BYTES_MAX;
use twice_core::webhook::{Delivery, Forgery};
use twice_workflow::model::Webhook;

use super::exit::Exit;
use super::given;
use super::open::Place;
use super::out::Out;
use super::progress::Watch;
use crate::engine::webhook::{Made, Taken, WebhookError};
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
    after_help = "Answer the provider by the exit code: 0 with 200 (taken in, or known already) · 1 with 400 (the event is refused) · \
                  4 and any other with 503 (not now: to be sent again)."
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
        match self.take(out, place).await {
            Ok(taken) => Ok(self.tell(out, &taken)),
            Err(error) => {
                let refused =
                    error.downcast_ref::<WebhookError>().is_some_and(WebhookError::is_refusal);
                if refused {
                    return Err(error.context("the event is refused; nothing was recorded"));
                }
                // What is wrong here is not the provider's fault, and may be mended before it sends the event again.
                let words = "the event was not looked at, as something is wrong here; nothing was recorded, and it is to be handed over again";
                out.error_with(Exit::RunWaits, &error.context(words));
                Ok(Exit::RunWaits)
            }
        }
    }

    async fn take(&self, out: &Out, place: &Place) -> anyhow::Result<Taken> {
        let project = place.project(out)?;
        let tool = project.tools.get(&self.tool).ok_or_else(|| {
            let known: Vec<&str> = project.tools.keys().map(Name::as_str).collect();
            anyhow!("there is no tool `{}`; the project has: {}", self.tool, known.join(", "))
        })?;
        let Some(webhook) = &tool.webhook else {
            return Err(WebhookError::NotTaken(tool.name.clone()).into());
        };
        let keys = Keys::read(webhook, place)?;
        let mut headers = self.header.clone();
        if let Some(path) = &self.headers {
            headers.extend(header_lines(&read(path, HEADERS_BYTES_MAX)?));
        }
        let body = read(&self.body, WEBHOOK_BYTES_MAX)?;
        let delivery = Delivery { headers: &headers, body: &body };
        let engine = place.engine(place.ledger().await?, Arc::new(Watch::new(out, true))).await?;
        let taken = engine.take_event(tool, &keys.values, delivery).await;
        engine.ledger().close().await;
        taken.map_err(|error| keys.explained(error))
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
        let (word, after) = match (made, &effect.hold) {
            (Made::Settled, Some(Hold::Discrepancy(difference))) => (
                "settled",
                format!(
                    ", by the provider's event, but not as asked ({difference}): a person decides, `twice effects conflict {id}`"
                ),
            ),
            (Made::Settled, Some(Hold::Conflict(_)) | None) => (
                "settled",
                format!(
                    ", by the provider's event; its run {run} may go on: `twice runs resume {run}`"
                ),
            ),
            (Made::Known, _) => {
                ("known", ", as the event says; nothing was recorded anew".to_owned())
            }
            (Made::Nothing, _) => (
                "nothing",
                "; the event says nothing about its outcome, and nothing was recorded".to_owned(),
            ),
            (Made::Evidence, _) => (
                "evidence",
                format!(
                    "; what the event says is not applied, and is on record as evidence: `twice effects show {id}`"
                ),
            ),
            (Made::NotYet(why), _) => (
                "not_yet",
                format!(", and {why}; nothing was recorded: the event is to be handed over again"),
            ),
        };
        let state = effect.state.as_str();
        if self.json {
            let held = effect.hold.is_some();
            out.json(&json!({
                "event": word, "effect_id": id, "run_id": run, "state": state, "held": held,
            }));
        } else {
            out.status_line(&format!("effect {id} is "), state, &after);
        }
        match made {
            Made::NotYet(_) => Exit::RunWaits,
            Made::Settled | Made::Known | Made::Nothing | Made::Evidence => Exit::Done,
        }
    }

    fn tell_elsewhere(&self, out: &Out, named: Option<&EffectId>) {
        if self.json {
            let nothing = Value::Null;
            out.json(&json!({
                "event": "elsewhere", "effect_id": named, "run_id": nothing, "state": nothing,
                "held": nothing,
            }));
            return;
        }
        out.line(&match named {
            Some(id) => {
                format!("the event names effect {id}, and is about none of this ledger; nothing was recorded")
            }
            None => "the event names no effect; nothing was recorded".to_owned(),
        });
    }
}

/// The keys of a tool, which are kept out of every text from now on.
struct Keys {
    values: Vec<String>,
    /// Where each is from.
    references: Vec<String>,
    /// Why others could not be read.
    missing: Vec<String>,
}

impl Keys {
    /// While a key is exchanged, one of two may be missing.
    fn read(webhook: &Webhook, place: &Place) -> anyhow::Result<Self> {
        let source = SystemSecrets { root: place.root()? };
        let mut keys = Self { values: Vec::new(), references: Vec::new(), missing: Vec::new() };
        for reference in &webhook.secrets {
            let read = source.read(reference).map_err(|error| error.to_string());
            let learnt = read.and_then(|key| {
                let mut secrets = place.secrets.write().unwrap_or_else(PoisonError::into_inner);
                secrets.add(&key).map_err(|error| error.to_string())?;
                Ok(key)
            });
            match learnt {
                Ok(key) => {
                    keys.values.push(key);
                    keys.references.push(reference.clone());
                }
                Err(problem) => keys.missing.push(format!("the secret `{reference}`: {problem}")),
            }
        }
        Ok(keys)
    }

    /// An error with what is wrong with the keys. What none of them fits may have been signed with one that is missing.
    fn explained(&self, error: WebhookError) -> anyhow::Error {
        match &error {
            WebhookError::Forgery(Forgery::BadKey { number }) => {
                let reference = self.references.get(number - 1).map_or("", String::as_str);
                anyhow!(
                    "the secret `{reference}` is not Base64, perhaps after `whsec_`, and no other fits"
                )
            }
            WebhookError::Forgery(Forgery::Forged | Forgery::NoKey) if !self.missing.is_empty() => {
                anyhow!("{}", self.missing.join("; "))
            }
            _ => error.into(),
        }
    }
}

/// The headers in a file, as they were sent. Other lines than headers (that of the request, say) and bytes that are no text are none
/// that anybody signs.
fn header_lines(bytes: &[u8]) -> Vec<(String, String)> {
    let text = String::from_utf8_lossy(bytes);
    let line = |line: &str| {
        let (name, value) = line.split_once(':')?;
        let named = !name.is_empty() && !name.contains(char::is_whitespace);
        named.then(|| (name.to_owned(), value.trim().to_owned()))
    };
    text.lines().filter_map(line).collect()
}

/// What is in a file, or comes in: no more than one byte above `most`, so that it can be told to be too much.
fn read(path: &Path, most: usize) -> anyhow::Result<Vec<u8>> {
    let failed = || format!("cannot read {}", path.display());
    let source: Box<dyn Read> = if path == Path::new("-") {
        Box::new(io::stdin().lock())
    } else {
        Box::new(File::open(path).with_context(failed)?)
    };
    let mut bytes = Vec::new();
    source.take(most as u64 + 1).read_to_end(&mut bytes).with_context(failed)?;
    Ok(bytes)
}
