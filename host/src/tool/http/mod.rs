//! The `http` tool: JSON over HTTP/1.1, one request per attempt, nothing retried, followed or guessed.
//!
//! Architecture invariant: what this module says about bytes sent is either proven by the witness of the request or
//! [`Sent::Maybe`]. Secrets are read while a request is prepared, registered with the
//! redactor, and appear in no form that is kept.

mod answer;
mod client;
mod fault;
mod lookup;
mod pace;
mod request;
mod template;
mod url;
mod witness;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use serde_json::Value;
use twice_core::event::ProbeResult;
use twice_core::ids::Name;
use twice_core::outcome::{Exchange, Fault, Sent};
use twice_core::redact::Redactor;
use twice_workflow::model::{HttpRequest, HttpTool, Tool, ToolKind};

use self::answer::Reading;
pub use self::client::plain_client;
use self::client::{ClientKind, Clients};
use self::pace::Paces;
pub use self::request::HttpReady;
use self::request::Terms;
use self::witness::{Witness, WitnessedBody};
use super::gate::{Gate, Shut};
use super::secret::{SecretError, SecretSource};
use super::{Call, Driver, PrepareError, Prepared};

/// What the driver of `http` tools needs from its host.
pub struct HttpConfig {
    /// Where secrets and `env:` base URLs are read from.
    pub secrets: Arc<dyn SecretSource>,
    /// Learns every secret before it is used, and takes them out of what comes back.
    pub redactor: Arc<RwLock<Redactor>>,
    /// Where a relative `ca_file` is looked for.
    pub root: PathBuf,
}

/// Performs the operations of `http` tools.
pub struct HttpDriver {
    secrets: Arc<dyn SecretSource>,
    redactor: Arc<RwLock<Redactor>>,
    /// The length in bytes of the longest secret read so far.
    secret_bytes_max: AtomicUsize,
    clients: Clients,
    paces: Paces,
}

impl HttpDriver {
    /// A driver. Nothing is read or connected before it is used.
    #[must_use]
    pub fn new(config: HttpConfig) -> Self {
        Self {
            secrets: config.secrets,
            redactor: config.redactor,
            secret_bytes_max: AtomicUsize::new(0),
            clients: Clients::new(config.root),
            paces: Paces::default(),
        }
    }

    fn ready(
        &self,
        call: &Call<'_>,
        template: &HttpRequest,
        purpose: Purpose,
    ) -> Result<Prepared<HttpReady>, PrepareError> {
        let ToolKind::Http(tool) = &call.tool.kind;
        let secrets = self.read_secrets(call.tool, tool, template)?;
        let base = self.base_url(call.tool, tool)?;
        let key_carrier = match purpose {
            Purpose::Effect => call.operation.key_carrier.as_ref(),
            Purpose::Lookup => None,
        };
        let mut message = request::build(call, template, &base, key_carrier, &secrets)?;
        // A value that a guest was given by mistake, or guessed, is not kept either.
        self.redactor().value(&mut message.shown);
        let terms = self.terms(call, tool, purpose, base.scheme() == "https");
        let kind = ClientKind { tls: terms.tls, ca_file: tool.ca_file.clone(), reuse: terms.reuse };
        let client = self.clients.get(&kind).map_err(|problem| PrepareError::Connection {
            tool: call.tool.name.to_string(),
            problem,
        })?;
        Ok(HttpReady::prepared(message, client, terms))
    }

    fn terms(&self, call: &Call<'_>, tool: &HttpTool, purpose: Purpose, tls: bool) -> Terms {
        let operation = call.operation;
        let (reuse, response_schema) = match purpose {
            Purpose::Effect => (
                operation.contract.read || operation.contract.key.is_some(),
                operation.response_schema.clone(),
            ),
            Purpose::Lookup => (true, None),
        };
        Terms {
            reuse,
            tls,
            connect_timeout: Duration::from_millis(operation.connect_timeout_ms),
            timeout: Duration::from_millis(operation.contract.timeout_ms),
            response_bytes_max: operation.response_bytes_max,
            response_schema,
            watched: answer::watched_headers(&operation.declarations),
            pace: self.paces.get(&call.tool.name, tool),
        }
    }

    fn read_secrets(
        &self,
        tool: &Tool,
        http: &HttpTool,
        template: &HttpRequest,
    ) -> Result<BTreeMap<Name, String>, PrepareError> {
        template::secrets_of(template)
            .into_iter()
            .map(|name| Ok((name.clone(), self.read_secret(tool, http, name)?)))
            .collect()
    }

    fn read_secret(
        &self,
        tool: &Tool,
        http: &HttpTool,
        name: &Name,
    ) -> Result<String, PrepareError> {
        let failed = |reference: &str, problem: String| PrepareError::Secret {
            tool: tool.name.to_string(),
            name: name.to_string(),
            reference: reference.to_owned(),
            problem,
        };
        let reference = http.secrets.get(name).ok_or_else(|| {
            failed("no reference", "the tool does not declare it; add it to `secrets`".to_owned())
        })?;
        let value = self.secrets.read(reference).map_err(|error| {
            // What is not a reference may be the value itself.
            let shown = match &error {
                SecretError::BadReference => "no reference",
                SecretError::NotSet { .. }
                | SecretError::Unreadable { .. }
                | SecretError::NotText => reference,
            };
            failed(shown, error.to_string())
        })?;
        let registered = self.redactor.write().unwrap_or_else(PoisonError::into_inner).add(&value);
        registered.map_err(|error| failed(reference, error.to_string()))?;
        self.secret_bytes_max.fetch_max(value.len(), Ordering::Relaxed);
        Ok(value)
    }

    fn base_url(&self, tool: &Tool, http: &HttpTool) -> Result<::url::Url, PrepareError> {
        let failed =
            |problem: String| PrepareError::BaseUrl { tool: tool.name.to_string(), problem };
        if http.base_url.starts_with("env:") {
            let read = self.secrets.read(&http.base_url).map_err(|e| failed(e.to_string()))?;
            url::base(&read).map_err(failed)
        } else {
            url::base(&http.base_url).map_err(failed)
        }
    }

    fn redactor(&self) -> RwLockReadGuard<'_, Redactor> {
        self.redactor.read().unwrap_or_else(PoisonError::into_inner)
    }

    async fn exchange(&self, request: HttpReady, gate: Gate) -> Exchange {
        let HttpReady { message, client, terms } = request;
        let nothing = |shut: Shut, why: &str| Exchange {
            sent: Sent::Nothing,
            result: Err(fault::not_begun(shut, why)),
        };
        let _leave = match &terms.pace {
            Some(pace) => match pace::leave(pace, &gate).await {
                Ok(leave) => Some(leave),
                Err(shut) => {
                    let why = "the tool's limits left no turn before the lease gets too short";
                    return nothing(shut, why);
                }
            },
            None => None,
        };
        if let Some(shut) = gate.shut() {
            return nothing(shut, "the lease left no time to send");
        }
        let witness =
            Witness::new(gate, terms.connect_timeout, !terms.reuse, message.body.is_some());
        let mut http = reqwest::Request::new(message.method, message.url);
        *http.headers_mut() = message.headers;
        *http.timeout_mut() = Some(terms.timeout);
        *http.body_mut() = message
            .body
            .map(|body| reqwest::Body::wrap(WitnessedBody::new(body, Arc::clone(&witness))));
        match witness.watch(client.execute(http)).await {
            Ok(response) => {
                let reading = Reading {
                    watched: &terms.watched,
                    bytes_max: terms.response_bytes_max,
                    schema: terms.response_schema.as_ref(),
                };
                let result = answer::read(response, &reading).await;
                Exchange { sent: Sent::Maybe, result }
            }
            Err(error) => fault::before_head(&error, &witness, terms.tls),
        }
    }
}

/// What a request is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// The effect itself.
    Effect,
    /// Asking what became of it.
    Lookup,
}

#[async_trait]
impl Driver for HttpDriver {
    type Request = HttpReady;

    fn prepare(&self, call: &Call<'_>) -> Result<Prepared<HttpReady>, PrepareError> {
        self.ready(call, &call.operation.request, Purpose::Effect)
    }

    async fn send(&self, request: HttpReady, gate: Gate) -> Exchange {
        let mut exchange = self.exchange(request, gate).await;
        let redactor = self.redactor();
        match &mut exchange.result {
            Ok(answer) => {
                answer::redact(&redactor, answer, self.secret_bytes_max.load(Ordering::Relaxed))
            }
            Err(Fault { message, .. }) => *message = redactor.text(message),
        }
        exchange
    }

    fn learn_secrets(&self, tool: &Tool) {
        let ToolKind::Http(http) = &tool.kind;
        for reference in http.secrets.values() {
            // What cannot be read or kept out of texts is never sent either: preparing a request says why.
            if let Ok(value) = self.secrets.read(reference) {
                let _ = self.redactor.write().unwrap_or_else(PoisonError::into_inner).add(&value);
            }
        }
    }

    fn missing_settings(&self, tool: &Tool) -> Vec<PrepareError> {
        let ToolKind::Http(http) = &tool.kind;
        let secrets =
            http.secrets.keys().filter_map(|name| self.read_secret(tool, http, name).err());
        secrets.chain(self.base_url(tool, http).err()).collect()
    }

    fn holds_secret(&self, value: &Value) -> bool {
        self.redactor().finds_in(value)
    }

    fn redact(&self, value: &mut Value) {
        self.redactor().value(value);
    }

    async fn lookup(&self, call: &Call<'_>) -> (Value, ProbeResult) {
        let error = |message: String| ProbeResult::Error { message };
        let Some(lookup) = &call.operation.lookup else {
            return (Value::Null, error("the operation declares no lookup".to_owned()));
        };
        let prepared = match self.ready(call, &lookup.request, Purpose::Lookup) {
            Ok(prepared) => prepared,
            Err(problem) => return (Value::Null, error(problem.to_string())),
        };
        // A lookup changes nothing, so no lease limits it; its own patience with the rate limit does.
        let patience = Duration::from_millis(call.operation.contract.timeout_ms);
        let exchange = self.send(prepared.request, Gate::until(Instant::now() + patience)).await;
        (prepared.stored, lookup::judge(call, lookup, exchange))
    }
}
