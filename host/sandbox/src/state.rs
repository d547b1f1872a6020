//! What belongs to one call: its host, its limits, and how much of them is used up.

use std::collections::VecDeque;
use std::time::Instant;

use wasmtime::{ResourceLimiter, Result};

use crate::api::{CallLimits, EffectAnswer, EffectRequest, Host, LogLevel};
use crate::bindings::twice::node::{context, effects, log};
use crate::engine::{CORE_INSTANCES_MAX, MEMORIES_MAX, TABLE_ELEMENTS_MAX, TABLES_MAX};
use crate::wasi::Wasi;

/// Longest log message. Bytes; the rest is cut off.
pub(crate) const MESSAGE_BYTES_MAX: usize = 8 << 10;
/// What a message costs beside its text, so that a flood of empty ones ends too. Bytes.
const MESSAGE_COST_BYTES: usize = 32;
/// Most random bytes of one call, as the WIT says.
pub(crate) const RANDOM_BYTES_MAX: u64 = 65_536;

/// Why the host ends a call from within.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum Stop {
    /// An answer is not known yet.
    #[error("suspended")]
    Suspended,
    /// A limit is reached.
    #[error("{message}")]
    Limit { limit: &'static str, message: String },
    /// The guest broke the contract.
    #[error("{0}")]
    Misuse(String),
}

/// The data of a call's store.
pub(crate) struct State {
    pub(crate) host: Box<dyn Host>,
    pub(crate) limits: CallLimits,
    pub(crate) deadline: Instant,
    pub(crate) space: Space,
    /// The last message at level error, which says why a trap follows it (a panic hook, say).
    pub(crate) last_error: Option<String>,
    /// The last lines of what was printed at level warn or above (a language's report of an uncaught error, say).
    pub(crate) last_lines: VecDeque<String>,
    /// The beginnings of lines that [`log::Host::print`] has not seen the end of, by level.
    printed: [Vec<u8>; LEVELS],
    /// There once the node used any of it.
    pub(crate) wasi: Option<Box<Wasi>>,
    requested: u32,
    logged: Logged,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Logged {
    Bytes(usize),
    Full,
}

impl State {
    pub(crate) fn new(host: Box<dyn Host>, limits: CallLimits, deadline: Instant) -> Self {
        let space = Space { limit: limits.memory_bytes, ..Space::default() };
        Self {
            host,
            limits,
            deadline,
            space,
            last_error: None,
            last_lines: VecDeque::new(),
            printed: Default::default(),
            wasi: None,
            requested: 0,
            logged: Logged::Bytes(0),
        }
    }

    /// Counts and measures requests, and has the host answer them.
    async fn answer(&mut self, requests: Vec<effects::EffectRequest>) -> Result<Vec<EffectAnswer>> {
        self.admit(&requests)?;
        let asked = requests.len();
        let requests = requests.into_iter().map(EffectRequest::from).collect();
        let answers = self.host.request(requests).await.map_err(|_| Stop::Suspended)?;
        // A host that answers one request with another's receipt would be worse than one that stops.
        if answers.len() != asked {
            return Err(Stop::Misuse(format!(
                "the host gave {} answers to {asked} requests",
                answers.len()
            ))
            .into());
        }
        for answer in &answers {
            let (what, bytes) = match answer {
                EffectAnswer::Receipt { body, .. } => ("the receipt of an effect", body.len()),
                EffectAnswer::Failed { message, .. } | EffectAnswer::Denied { message, .. } => {
                    ("the answer to a request", message.len())
                }
            };
            self.fits(what, bytes)?;
        }
        Ok(answers)
    }

    /// As [`Self::answer`], for one request.
    pub(crate) async fn answer_one(
        &mut self,
        request: effects::EffectRequest,
    ) -> Result<EffectAnswer> {
        let answer = self.answer(vec![request]).await?.pop();
        answer.ok_or_else(|| Stop::Misuse("the host gave no answer to a request".to_owned()).into())
    }

    /// The answer to a request that cannot even be written down as one. It counts like any other.
    pub(crate) fn refuse(
        &mut self,
        slot: &str,
        policy: &'static str,
        message: &str,
    ) -> Result<EffectAnswer, Stop> {
        self.count(1)?;
        self.host.refused(slot, policy, message);
        Ok(EffectAnswer::Denied { policy: policy.to_owned(), message: message.to_owned() })
    }

    fn admit(&mut self, requests: &[effects::EffectRequest]) -> Result<(), Stop> {
        self.count(requests.len())?;
        for request in requests {
            self.fits("a request for an effect", request.slot.len() + request.args.len())?;
        }
        Ok(())
    }

    fn count(&mut self, requests: usize) -> Result<(), Stop> {
        let count = u32::try_from(requests).unwrap_or(u32::MAX);
        self.requested = self.requested.saturating_add(count);
        if self.requested > self.limits.effects {
            return Err(Stop::Limit {
                limit: "effects",
                message: format!(
                    "the node requested {} effects in one call; the limit is {} (`limits.effects` of the node in the workflow)",
                    self.requested, self.limits.effects
                ),
            });
        }
        Ok(())
    }

    /// Checks the length of a JSON text that crosses the border.
    pub(crate) fn fits(&self, what: &str, bytes: usize) -> Result<(), Stop> {
        let limit = self.limits.payload_bytes;
        if bytes <= limit {
            return Ok(());
        }
        Err(Stop::Limit {
            limit: "payload",
            message: format!(
                "{what} has {bytes} bytes; the limit is {limit}. Pass a reference to large data instead of the data"
            ),
        })
    }

    /// The step's next durable bytes.
    pub(crate) fn random_bytes(&mut self, count: u64) -> Result<Vec<u8>> {
        if count > RANDOM_BYTES_MAX {
            return Err(Stop::Misuse(format!(
                "the node asked for {count} random bytes at once; the most is {RANDOM_BYTES_MAX}"
            ))
            .into());
        }
        Ok(self.host.random(usize::try_from(count).unwrap_or(usize::MAX)))
    }

    /// Eight of the step's durable bytes as a little-endian number.
    pub(crate) fn random_number(&mut self) -> Result<u64> {
        let bytes = self.host.random(size_of::<u64>());
        let bytes = bytes.try_into().map_err(|bytes: Vec<u8>| {
            Stop::Misuse(format!(
                "the host gave {} random bytes where 8 were asked for",
                bytes.len()
            ))
        })?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// Logs each line that ends in `text`, and keeps the rest for when its end comes.
    pub(crate) fn print(&mut self, level: LogLevel, text: &[u8]) {
        let mut rest = text;
        while !rest.is_empty() {
            // A full log keeps only what may say why a trap follows; a flood of lines is not worth the host's time.
            if self.logged == Logged::Full {
                rest = &rest[rest.len().saturating_sub(LAST_BYTES_MAX)..];
            }
            let end = rest.iter().position(|byte| *byte == b'\n').map_or(rest.len(), |at| at + 1);
            let (piece, after) = rest.split_at(end);
            rest = after;
            let line = &mut self.printed[level as usize];
            // A line without end is cut up, so that no more than a message is kept.
            let room = MESSAGE_BYTES_MAX.saturating_sub(line.len());
            line.extend_from_slice(&piece[..piece.len().min(room)]);
            if piece.ends_with(b"\n") || line.len() >= MESSAGE_BYTES_MAX {
                self.end_line(level);
            }
        }
    }

    /// Logs what went to the standard streams of WASI meanwhile, so that it stands before what comes next.
    fn take_printed(&mut self) {
        let Some(printed) = self.wasi.as_ref().map(|wasi| wasi.printed()) else { return };
        for (level, text) in printed.pieces {
            self.print(level, &text);
        }
        if printed.lost {
            self.fill_log();
        }
    }

    /// Logs what was printed without the end of its line.
    pub(crate) fn end_lines(&mut self) {
        self.take_printed();
        for level in [LogLevel::Debug, LogLevel::Info, LogLevel::Warn, LogLevel::Error] {
            if !self.printed[level as usize].is_empty() {
                self.end_line(level);
            }
        }
    }

    fn end_line(&mut self, level: LogLevel) {
        let line = std::mem::take(&mut self.printed[level as usize]);
        let text = String::from_utf8_lossy(&line);
        let text = text.trim_end_matches(['\n', '\r']);
        if matches!(level, LogLevel::Warn | LogLevel::Error) {
            if self.last_lines.len() == LAST_LINES_MAX {
                self.last_lines.pop_front();
            }
            self.last_lines.push_back(text.to_owned());
        }
        self.log(level, text);
    }

    /// Says, once, that nothing more is kept.
    fn fill_log(&mut self) {
        if self.logged == Logged::Full {
            return;
        }
        self.logged = Logged::Full;
        let notice = format!(
            "the log of this call reached its limit of {} bytes; nothing more is kept (`limits.log` of the node in the \
             workflow)",
            self.limits.log_bytes
        );
        self.host.log(LogLevel::Warn, &notice);
    }

    fn log(&mut self, level: LogLevel, message: &str) {
        let Logged::Bytes(before) = self.logged else { return };
        let message = shorten(message, MESSAGE_BYTES_MAX);
        let after = before + message.len() + MESSAGE_COST_BYTES;
        if after > self.limits.log_bytes {
            self.fill_log();
        } else {
            self.logged = Logged::Bytes(after);
            self.host.log(level, &message);
        }
        if level == LogLevel::Error {
            self.last_error = Some(message);
        }
    }
}

/// How much of what is printed at once is looked at when the log is full. Bytes.
const LAST_BYTES_MAX: usize = 64 << 10;
/// How many printed lines are kept for the case that a trap follows.
const LAST_LINES_MAX: usize = 24;
/// Of [`LogLevel`].
const LEVELS: usize = 4;

/// Cuts `text` to at most `bytes`, at a character, and says how much is gone.
pub(crate) fn shorten(text: &str, bytes: usize) -> String {
    if text.len() <= bytes {
        return text.to_owned();
    }
    // Room for the remark itself, whose number has at most twenty digits.
    let kept = &text[..text.floor_char_boundary(bytes.saturating_sub(40))];
    format!("{kept} […{} bytes cut]", text.len() - kept.len())
}

impl effects::Host for State {
    async fn request(
        &mut self,
        request: effects::EffectRequest,
    ) -> Result<Result<effects::Receipt, effects::EffectError>> {
        Ok(self.answer_one(request).await?.into())
    }

    async fn request_all(
        &mut self,
        requests: Vec<effects::EffectRequest>,
    ) -> Result<Vec<Result<effects::Receipt, effects::EffectError>>> {
        if requests.is_empty() {
            return Ok(Vec::new());
        }
        Ok(self.answer(requests).await?.into_iter().map(Into::into).collect())
    }
}

impl context::Host for State {
    async fn run_id(&mut self) -> Result<String> {
        Ok(self.host.position().run)
    }

    async fn node(&mut self) -> Result<String> {
        Ok(self.host.position().node)
    }

    async fn visit(&mut self) -> Result<u32> {
        Ok(self.host.position().visit)
    }

    async fn attempt(&mut self) -> Result<u32> {
        Ok(self.host.position().attempt)
    }

    async fn now(&mut self) -> Result<u64> {
        Ok(self.host.now_ms())
    }

    async fn random(&mut self, count: u32) -> Result<Vec<u8>> {
        self.random_bytes(u64::from(count))
    }

    async fn random_u64(&mut self) -> Result<u64> {
        self.random_number()
    }
}

impl log::Host for State {
    async fn write(&mut self, level: log::Level, message: String) -> Result<()> {
        self.take_printed();
        self.log(level.into(), &message);
        Ok(())
    }

    async fn print(&mut self, level: log::Level, text: Vec<u8>) -> Result<()> {
        self.print(level.into(), &text);
        Ok(())
    }
}

impl From<log::Level> for LogLevel {
    fn from(level: log::Level) -> Self {
        match level {
            log::Level::Debug => Self::Debug,
            log::Level::Info => Self::Info,
            log::Level::Warn => Self::Warn,
            log::Level::Error => Self::Error,
        }
    }
}

impl From<effects::EffectRequest> for EffectRequest {
    fn from(request: effects::EffectRequest) -> Self {
        Self { slot: request.slot, item: request.item, args: request.args }
    }
}

impl From<EffectAnswer> for Result<effects::Receipt, effects::EffectError> {
    fn from(answer: EffectAnswer) -> Self {
        match answer {
            EffectAnswer::Receipt { effect_id, body } => Ok(effects::Receipt { effect_id, body }),
            EffectAnswer::Failed { code, message } => {
                Err(effects::EffectError::Failed(effects::Failure { code, message }))
            }
            EffectAnswer::Denied { policy, message } => {
                Err(effects::EffectError::Denied(effects::Denial { policy, message }))
            }
        }
    }
}

/// The memory and tables of a call.
#[derive(Debug, Default)]
pub(crate) struct Space {
    /// Bytes of all memories together.
    limit: usize,
    used: usize,
    /// What the last permitted growth added, for when it then fails.
    pending: usize,
    /// The size that was refused last, in bytes of all memories together.
    pub(crate) refused_memory: Option<usize>,
    /// The size of a table that was refused last, in elements.
    pub(crate) refused_table: Option<usize>,
}

impl ResourceLimiter for Space {
    // A refused growth is not an error: the guest sees −1 and may do with less. If it traps, the refusal is named as the cause.
    fn memory_growing(&mut self, current: usize, desired: usize, _: Option<usize>) -> Result<bool> {
        let added = desired.saturating_sub(current);
        let total = self.used.saturating_add(added);
        if total > self.limit {
            self.refused_memory = Some(total);
            return Ok(false);
        }
        self.used = total;
        self.pending = added;
        Ok(true)
    }

    fn memory_grow_failed(&mut self, _: wasmtime::Error) -> Result<()> {
        self.used = self.used.saturating_sub(std::mem::take(&mut self.pending));
        Ok(())
    }

    fn table_growing(&mut self, _: usize, desired: usize, _: Option<usize>) -> Result<bool> {
        if desired > TABLE_ELEMENTS_MAX {
            self.refused_table = Some(desired);
            return Ok(false);
        }
        Ok(true)
    }

    fn instances(&self) -> usize {
        CORE_INSTANCES_MAX as usize
    }

    fn memories(&self) -> usize {
        MEMORIES_MAX as usize
    }

    fn tables(&self) -> usize {
        TABLES_MAX as usize
    }
}
