//! All kinds of tools behind one object.

use async_trait::async_trait;
use serde_json::Value;
use twice_core::event::ProbeResult;
use twice_core::outcome::{Exchange, Fault, FaultKind, Sent};
use twice_workflow::model::{Tool, ToolKind};

use super::http::{HttpDriver, HttpReady};
use super::{Call, Driver, Gate, PrepareError, Prepared};

/// A request of any kind of tool.
#[derive(Debug)]
pub enum AnyRequest {
    /// Of an `http` tool.
    Http(Box<HttpReady>),
    /// Of a driver that performs in this process, in that driver's own form. [`Drivers`] makes none and sends none.
    InProcess(Value),
}

/// The drivers of all kinds; a call goes to the one that its tool's kind names.
pub struct Drivers {
    http: HttpDriver,
}

impl Drivers {
    /// One driver for each kind.
    #[must_use]
    pub fn new(http: HttpDriver) -> Self {
        Self { http }
    }
}

#[async_trait]
impl Driver for Drivers {
    type Request = AnyRequest;

    fn prepare(&self, call: &Call<'_>) -> Result<Prepared<AnyRequest>, PrepareError> {
        match &call.tool.kind {
            ToolKind::Http(_) => {
                let Prepared { stored, body_hash, request } = self.http.prepare(call)?;
                Ok(Prepared { stored, body_hash, request: AnyRequest::Http(Box::new(request)) })
            }
        }
    }

    async fn send(&self, request: AnyRequest, gate: Gate) -> Exchange {
        match request {
            AnyRequest::Http(request) => self.http.send(*request, gate).await,
            AnyRequest::InProcess(_) => {
                let message = "no kind of tool performs in this process".to_owned();
                let fault = Fault { kind: FaultKind::Build, status: None, message };
                Exchange { sent: Sent::Nothing, result: Err(fault) }
            }
        }
    }

    fn learn_secrets(&self, tool: &Tool) {
        match &tool.kind {
            ToolKind::Http(_) => self.http.learn_secrets(tool),
        }
    }

    fn missing_settings(&self, tool: &Tool) -> Vec<PrepareError> {
        match &tool.kind {
            ToolKind::Http(_) => self.http.missing_settings(tool),
        }
    }

    fn holds_secret(&self, value: &Value) -> bool {
        self.http.holds_secret(value)
    }

    fn redact(&self, value: &mut Value) {
        self.http.redact(value);
    }

    async fn lookup(&self, call: &Call<'_>) -> (Value, ProbeResult) {
        match &call.tool.kind {
            ToolKind::Http(_) => self.http.lookup(call).await,
        }
    }
}
