//! What may be relied on: the key, the times, and whether they fit together. Nothing here has a default: a guess would
//! decide about sending a second request.

use twice_core::contract::{Contract, KeyContract, Replay, RetentionBasis, Retry};
use twice_core::identity::KeyFormat;
use twice_core::outcome::Matcher;

use super::SOME_TIME;
use super::answers::{Answers, matchers};
use crate::diagnostic::Code;
use crate::model::{HttpRequest, KeyCarrier};
use crate::read::{At, Kind, Place, Sink, Table};
use crate::template::{check_header, refers_to};
use crate::units::{DURATION_MAX_MS, duration_text};

const FORMATS: [(&str, KeyFormat); 4] = [
    ("uuid", KeyFormat::Uuid),
    ("uuid_v4", KeyFormat::UuidV4),
    ("readable", KeyFormat::Readable),
    ("hash", KeyFormat::Hash),
];
const BASES: [(&str, RetentionBasis); 2] =
    [("first_send", RetentionBasis::FirstSend), ("completion", RetentionBasis::Completion)];
const REPLAYS: [(&str, Replay); 5] = [
    ("first_answer", Replay::FirstAnswer),
    ("success_only", Replay::SuccessOnly),
    ("current_state", Replay::CurrentState),
    ("conflict_with_id", Replay::ConflictWithId),
    ("redrives_failed", Replay::RedrivesFailed),
];
/// Most attempts of one effect that a file may ask for.
const ATTEMPTS_MAX: u32 = 1_000;

/// The times of an operation.
pub(super) struct Times {
    pub(super) timeout: At<u64>,
    pub(super) settle_ms: u64,
    /// Absent for reads.
    pub(super) horizon: Option<At<u64>>,
    pub(super) retry: Retry,
    retry_place: Place,
}

/// Reads `timeout`, `settle`, `horizon` and `retry`.
pub(super) fn times(table: &Table<'_>, is_read: bool) -> Option<Times> {
    table.required_because(
        "timeout",
        "\"10s\"",
        "after this time the outcome of a request is not known; how long is right depends on the provider",
    );
    let timeout = table.duration("timeout", SOME_TIME);
    let (settle, horizon) = if is_read {
        read_promise(table, "settle");
        read_promise(table, "horizon");
        (None, None)
    } else {
        table.required_because(
            "settle",
            "\"60s\"",
            "until then a request may still be processed, and a lookup that finds nothing proves nothing",
        );
        table.required_because(
            "horizon",
            "\"24h\"",
            "after this time an unknown outcome waits for a person",
        );
        let settle = table.duration("settle", 0..=DURATION_MAX_MS);
        (settle, table.duration("horizon", SOME_TIME))
    };
    if let (Some(settle), Some(horizon)) = (&settle, &horizon)
        && horizon.value < settle.value
    {
        table.sink.report(
            horizon.place,
            Code::ShortHorizon,
            format!(
                "the horizon of {} is shorter than the settle window of {}",
                duration_text(horizon.value),
                duration_text(settle.value)
            ),
            "a request may still be processed when nobody asks any more, so that no lookup could ever prove that it was lost",
            "state a horizon that is longer than `settle`, by far: it is how long an unknown outcome is looked after before a person has to",
        );
    }
    let item = table.required_because(
        "retry",
        "{ attempts = 5, initial = \"500ms\", max = \"30s\" }",
        "how often a request that was not processed may be made again is the provider's business",
    )?;
    let inner = item.as_table(table.sink, "`retry`")?;
    let retry = retry(&inner);
    inner.close();
    if !is_read && (settle.is_none() || horizon.is_none()) {
        return None;
    }
    Some(Times {
        timeout: timeout?,
        settle_ms: settle.map_or(0, |at| at.value),
        horizon,
        retry: retry?,
        retry_place: item.place,
    })
}

fn retry(table: &Table<'_>) -> Option<Retry> {
    table.required("attempts", "5");
    table.required("initial", "\"500ms\"");
    table.required("max", "\"30s\"");
    let attempts = table.integer("attempts", 1..=ATTEMPTS_MAX);
    let initial = table.duration("initial", SOME_TIME);
    let max = table.duration("max", SOME_TIME);
    let (attempts, initial, max) = (attempts?, initial?, max?);
    if max.value < initial.value {
        table.bad_value(
            "max",
            max.place,
            "shorter than `initial`",
            "at least as much as `initial`",
        );
        return None;
    }
    Some(Retry { attempts, initial_ms: initial.value, max_ms: max.value })
}

/// Refuses a key that only an effect can have.
pub(super) fn read_promise(table: &Table<'_>, key: &'static str) {
    if let Some(item) = table.item(key) {
        table.sink.report(
            item.place,
            Code::ReadPromise,
            format!("a read states `{key}`"),
            "a read is repeated freely and never unknown, so nothing would ever use it",
            format!("remove `{key}`, or remove `read = true` if the operation changes anything"),
        );
    }
}

/// What is declared about answers in the section of the key.
#[derive(Default)]
pub(super) struct Signals {
    pub(super) mismatch: Vec<Matcher>,
    pub(super) in_flight: Vec<Matcher>,
    pub(super) replayed: Vec<Matcher>,
    /// Where the retention is stated.
    pub(super) retention: Option<Place>,
}

/// A key as stated.
pub(super) struct Read {
    carrier: KeyCarrier,
    contract: KeyContract,
    signals: Signals,
    place: Place,
    header: Option<Place>,
    replay: Place,
}

/// What an operation states about its key.
pub(super) enum Stated {
    /// There is one.
    Key(Box<Read>),
    /// There is none, explicitly or because the operation is a read.
    None,
    /// What is stated is wrong, which is reported.
    Broken,
}

/// What an operation's key comes to.
pub(super) enum Valued {
    Key { carrier: KeyCarrier, contract: KeyContract, signals: Signals },
    None,
    Broken,
}

/// Reads `key`.
pub(super) fn key(table: &Table<'_>, is_read: bool) -> Stated {
    if is_read {
        read_promise(table, "key");
        return Stated::None;
    }
    let why = "whether the provider honours a key decides whether a request may ever be sent twice; this is never guessed";
    let example = "\"none\"` or a table `[operation.NAME.key]";
    let Some(item) = table.required_because("key", example, why) else { return Stated::Broken };
    if matches!(&item.kind, Kind::Text(text) if text == "none") {
        return Stated::None;
    }
    let Some(inner) = item.as_table(table.sink, "`key`, if it is not \"none\",") else {
        return Stated::Broken;
    };
    let inner = inner.called("`key`");
    let stated = section(&inner, item.place);
    inner.close();
    stated.map_or(Stated::Broken, |read| Stated::Key(Box::new(read)))
}

fn section(table: &Table<'_>, place: Place) -> Option<Read> {
    let header = table.text("header").filter(|at| check_header(table.sink, (&at.value, at.place)));
    if header.is_none() && table.members.contains_key("header") {
        return None;
    }
    let quoted = table.flag("quoted");
    let format = table
        .required_because("format", "\"uuid\"", "providers differ in what they accept as a key")
        .and_then(|item| table.word_of("format", item, &FORMATS));
    table.required_because(
        "retention",
        "\"24h\"",
        "past it the same key makes a second effect; take the shortest time that the provider states",
    );
    let retention = table.duration("retention", SOME_TIME);
    let basis = table
        .required("basis", "\"first_send\"")
        .and_then(|item| table.word_of("basis", item, &BASES));
    let replay = table
        .required_because(
            "replay",
            "\"first_answer\"",
            "whether a repeated key repeats an error decides whether sending again can settle anything",
        )
        .and_then(|item| Some((table.word_of("replay", item, &REPLAYS)?, item.place)));
    let why =
        "an answer that is not recognised would be taken for a refusal, or for nothing at all";
    table.required_because("mismatch", "[{ status = 422 }]`, or `mismatch = []", why);
    table.required_because("in_flight", "[{ status = 409 }]`, or `in_flight = []", why);
    let signals = Signals {
        mismatch: matchers(table, "mismatch"),
        in_flight: matchers(table, "in_flight"),
        replayed: matchers(table, "replayed"),
        retention: retention.as_ref().map(|at| at.place),
    };
    let (replay, replay_place) = replay?;
    Some(Read {
        header: header.as_ref().map(|at| at.place),
        carrier: KeyCarrier { header: header.map(|at| at.value), quoted, format: format? },
        contract: KeyContract { retention_ms: retention?.value, basis: basis?, replay },
        signals,
        place,
        replay: replay_place,
    })
}

impl Stated {
    /// Whether templates may place `/key`; also when its section is wrong, so that one slip is reported once.
    pub(super) const fn may_be_placed(&self) -> bool {
        match self {
            Self::Key(_) | Self::Broken => true,
            Self::None => false,
        }
    }

    /// The key, once the answers that it depends on are known.
    pub(super) fn value(self, sink: Sink<'_>, answers: Option<&Answers>) -> Valued {
        let read = match self {
            Self::Key(read) => *read,
            Self::None => return Valued::None,
            Self::Broken => return Valued::Broken,
        };
        let Read { carrier, contract, signals, replay, .. } = read;
        let nameless = answers.is_some_and(|answers| {
            answers.declarations.duplicate.is_empty() || answers.declarations.duplicate_id.is_none()
        });
        if contract.replay == Replay::ConflictWithId && nameless {
            sink.report(
                replay,
                Code::ReplayWithoutId,
                "a repeated key gets a conflict, and nothing says how to recognise it or where its id is",
                "the conflict would be taken for a refusal, although the effect happened",
                "state `duplicate` and `duplicate_id` in the operation's `response`",
            );
            return Valued::Broken;
        }
        Valued::Key { carrier, contract, signals }
    }
}

/// Reports a key that does not reach the provider, or reaches it twice.
pub(super) fn check_placement(sink: Sink<'_>, stated: &Stated, request: &HttpRequest) {
    let Stated::Key(read) = stated else { return };
    match (&read.carrier.header, read.header) {
        (Some(header), Some(place)) => {
            if request.headers.keys().any(|name| name.eq_ignore_ascii_case(header)) {
                sink.report(
                    place,
                    Code::Contradiction,
                    format!("the header `{header}` is set by the key and by the request"),
                    "the provider would see one key or the other",
                    "remove it from the request's `headers`",
                );
            }
        }
        (None, _) | (_, None) => {
            if !refers_to(request, "/key") {
                sink.report(
                    read.place,
                    Code::KeyPlacement,
                    "the key has no `header`, and the request does not place `{/key}`",
                    "a key that the provider never sees protects nothing",
                    "state `header = \"Idempotency-Key\"`, or put `{/key}` where the provider wants it",
                );
            }
        }
    }
}

/// Checks that the key outlives what is done under it. `false` when it cannot be relied upon at all.
pub(super) fn check_windows(
    sink: Sink<'_>,
    contract: &Contract,
    times: &Times,
    retention: Option<Place>,
) -> bool {
    let (Some(key), Some(place)) = (&contract.key, retention) else { return true };
    let usable_ms = key.retention_ms.saturating_sub(key.margin_ms());
    let (kept, usable) = (duration_text(key.retention_ms), duration_text(usable_ms));
    if usable_ms <= contract.timeout_ms {
        let timeout = duration_text(contract.timeout_ms);
        sink.report(
            place,
            Code::Retention,
            format!("the retention of {kept} leaves nothing for sending again after a timeout of {timeout}"),
            format!("of {kept} only {usable} are trusted: one hour, a tenth or a half is kept as a margin"),
            "shorten `timeout`; if the provider really forgets so soon, state `key = \"none\"` and a lookup",
        );
        return false;
    }
    if contract.lookup.is_some() {
        return true;
    }
    let consequence = format!(
        "the class is \"key only\": from {usable} after the first send an unknown outcome can neither be sent again nor looked up, and waits for a person"
    );
    if let Some(horizon) = times.horizon.as_ref().filter(|at| at.value > usable_ms) {
        sink.report(
            horizon.place,
            Code::KeyOutlived,
            format!("the horizon of {} outlives the key", duration_text(horizon.value)),
            consequence.as_str(),
            format!("state a horizon of at most {usable}, or a lookup"),
        );
    }
    let schedule_ms = schedule_ms(&contract.retry, contract.timeout_ms);
    if schedule_ms > usable_ms {
        sink.report(
            times.retry_place,
            Code::KeyOutlived,
            format!("the attempts may take {} and outlive the key", duration_text(schedule_ms)),
            consequence,
            format!("make them fit into {usable}, or state a lookup"),
        );
    }
    true
}

/// The longest time that all attempts of an effect take. Milliseconds.
fn schedule_ms(retry: &Retry, timeout_ms: u64) -> u64 {
    let waits = (1..retry.attempts).map(|made| {
        retry.initial_ms.saturating_mul(1 << made.saturating_sub(1).min(32)).min(retry.max_ms)
    });
    let waits = waits.fold(0_u64, u64::saturating_add);
    waits.saturating_add(timeout_ms.saturating_mul(u64::from(retry.attempts)))
}
