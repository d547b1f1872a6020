//! Ledgers to test, and the smallest runs and effects that make sense.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use serde_json::{Value, json};
use tempfile::TempDir;
use twice_core::chain::{Content, Entry, Head, NewEntry, seal};
use twice_core::contract::{Contract, Retry};
use twice_core::effect::Effect;
use twice_core::event::{
    AttemptStart, Authorization, EffectEvent, Failure, Observation, Proposal, Receipt, RunEvent,
    Source, UnknownReason,
};
use twice_core::identity::{Identity, KeyFormat, RequestHash, Scope, Selector};
use twice_core::ids::{ElementId, Fence, Name, RunId, WorkerId};
use twice_core::outcome::{RuleId, Verdict};
use twice_core::progress::{Progress, StepId};
use twice_core::run::{Priority, RunState};
use twice_core::time::Timestamp;
use twice_ledger::{
    Append, Claim, ClaimBy, ClaimOutcome, Ledger, LedgerOptions, MemoryLedger, NewRun, RunChange,
    SqlLedger, Started, Wanted,
};
use twice_test_postgres::Cluster;

pub(crate) const DEFINITION: &str = "sha256:definition";
pub(crate) const LEASE_MS: u64 = 1_000;

/// A clock that stands until it is moved.
#[derive(Clone)]
pub(crate) struct TestClock(Arc<AtomicI64>);

impl TestClock {
    pub(crate) fn new() -> Self {
        Self(Arc::new(AtomicI64::new(1_000_000)))
    }

    pub(crate) fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::Relaxed))
    }

    pub(crate) fn advance(&self, ms: i64) {
        self.0.fetch_add(ms, Ordering::Relaxed);
    }

    pub(crate) fn clock(&self) -> twice_ledger::Clock {
        let clock = self.clone();
        Arc::new(move || clock.now())
    }
}

/// One implementation of the ledger, empty but for a definition.
pub(crate) struct Backend {
    pub(crate) name: &'static str,
    pub(crate) ledger: Arc<dyn Ledger>,
    pub(crate) clock: TestClock,
    _dir: Option<TempDir>,
}

/// Every implementation.
pub(crate) async fn all() -> Vec<Backend> {
    all_with(LedgerOptions::default()).await
}

/// Every implementation, with the redactor of these options.
pub(crate) async fn all_with(options: LedgerOptions) -> Vec<Backend> {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("twice.db");
    let file = open("file", path.to_str().unwrap(), &options, Some(dir)).await;
    let mut all = vec![file];
    if !twice_test_postgres::is_missing() {
        let server = Cluster::shared().database().url();
        all.push(open("server", &server, &options, None).await);
    }
    let clock = TestClock::new();
    let memory = MemoryLedger::new(clock.clock()).with_redactor(options.redactor);
    all.push(Backend { name: "memory", ledger: Arc::new(memory), clock, _dir: None });
    for backend in &all {
        backend.ledger.put_definition(DEFINITION, "text").await.unwrap();
    }
    all
}

async fn open(
    name: &'static str,
    url: &str,
    options: &LedgerOptions,
    dir: Option<TempDir>,
) -> Backend {
    let clock = TestClock::new();
    let options = LedgerOptions { now: Some(clock.clock()), ..options.clone() };
    let ledger = Arc::new(SqlLedger::open(url, options).await.unwrap());
    Backend { name, ledger, clock, _dir: dir }
}

pub(crate) fn run_id(text: &str) -> RunId {
    RunId::parse(text).unwrap()
}

pub(crate) fn name(text: &str) -> Name {
    Name::parse(text).unwrap()
}

pub(crate) fn by(worker: &str) -> ClaimBy {
    ClaimBy { worker: WorkerId::parse(worker).unwrap(), lease_ms: LEASE_MS }
}

pub(crate) fn new_run(id: &str, at: Timestamp) -> NewRun {
    let input = json!({ "order_id": "order-1" });
    let event = RunEvent::Started {
        workflow: name("refunds"),
        version: 1,
        definition: DEFINITION.to_owned(),
        input: input.clone(),
        identity_alg: 1,
        priority: Priority::default(),
        parent: None,
    };
    NewRun {
        id: run_id(id),
        caller_key: None,
        workflow: name("refunds"),
        definition: DEFINITION.to_owned(),
        input,
        priority: Priority::default(),
        entry: NewEntry { content: Content::Run(event), at },
        claim: None,
        parent_fence: None,
    }
}

impl Backend {
    pub(crate) fn at(&self) -> Timestamp {
        self.clock.now()
    }

    pub(crate) async fn start(&self, id: &str) {
        let started = self.ledger.start_run(new_run(id, self.at())).await.unwrap();
        assert!(matches!(started, Started::Created(None)), "{}: {started:?}", self.name);
    }

    /// Starts a run under a lease.
    pub(crate) async fn start_claimed(&self, id: &str) -> Claim {
        let new = NewRun { claim: Some(by("w1")), ..new_run(id, self.at()) };
        match self.ledger.start_run(new).await.unwrap() {
            Started::Created(Some(claim)) => claim,
            other => panic!("{}: {other:?}", self.name),
        }
    }

    pub(crate) async fn claim(&self, worker: &str, run: Option<&str>) -> ClaimOutcome {
        let run = run.map(run_id);
        let wanted = run.map_or_else(Wanted::any, |run| Wanted::run(&run, false));
        self.ledger.claim(&by(worker), &wanted, self.at()).await.unwrap()
    }

    pub(crate) async fn claimed(&self, worker: &str, run: Option<&str>) -> Claim {
        match self.claim(worker, run).await {
            ClaimOutcome::Claimed(claim) => *claim,
            other => panic!("{}: {other:?}", self.name),
        }
    }

    /// The whole history of a run, verified.
    pub(crate) async fn chain(&self, run: &str) -> Vec<Entry> {
        verified_chain(&*self.ledger, &run_id(run)).await
    }

    pub(crate) async fn kinds(&self, run: &str) -> Vec<String> {
        self.chain(run).await.into_iter().map(|entry| entry.kind).collect()
    }
}

/// Reads a chain page by page and makes each entry again: place, link, content and head must all be right.
pub(crate) async fn verified_chain(ledger: &dyn Ledger, run: &RunId) -> Vec<Entry> {
    let mut chain: Vec<Entry> = Vec::new();
    let mut head = Head::empty(run);
    loop {
        let page = ledger.history(run, head.seq, 100).await.unwrap();
        if page.is_empty() {
            break;
        }
        for entry in page {
            let content =
                Content::from_stored(&entry.kind, entry.effect.clone(), &entry.body).unwrap();
            let again = seal(run, head, entry.fence, &NewEntry { content, at: entry.at });
            assert_eq!(again, entry);
            head = Head { seq: entry.seq, hash: entry.hash };
            chain.push(entry);
        }
    }
    assert_eq!(ledger.head(run).await.unwrap(), head);
    chain
}

pub(crate) fn parked(at: Timestamp) -> NewEntry {
    let event = RunEvent::Parked { why: "it waits".to_owned(), until: None };
    NewEntry { content: Content::Run(event), at }
}

pub(crate) fn append(claim: &Claim, entries: Vec<NewEntry>) -> Append {
    Append {
        run: claim.run.id.clone(),
        fence: claim.fence,
        entries,
        effects: Vec::new(),
        run_change: None,
        progress_made: false,
        past_pivot: false,
    }
}

pub(crate) fn step_id(node: &str, visit: u32, element: Option<&str>) -> StepId {
    let element = element.map(|id| ElementId::parse(id).unwrap());
    StepId { node: name(node), visit, element }
}

pub(crate) fn change(state: RunState, due_at: Option<Timestamp>) -> RunChange {
    let progress = Some(Progress::default());
    RunChange { state, progress, output: None, reason: None, due_at, cancel_seen: false }
}

/// The answer that a worker got which had lost its run.
pub(crate) fn late(said: &str) -> Observation {
    Observation {
        what: "late answer".to_owned(),
        attempt: Some(1),
        verdict: Some(Verdict::Succeeded),
        rule: Some(RuleId::new("http.201")),
        message: Some("it happened".to_owned()),
        status: Some(201),
        external_id: Some("re_1".to_owned()),
        breach: false,
        detail: json!({ "message": said }),
    }
}

/// The life of an effect, and its entries that are not written yet.
#[derive(Clone)]
pub(crate) struct Story {
    pub(crate) effect: Effect,
    entries: Vec<NewEntry>,
    fence: Fence,
}

impl Story {
    /// An effect of one run.
    pub(crate) fn of_run(run: &RunId, slot: &str, fence: Fence, at: Timestamp) -> Self {
        let scope = Scope::Run {
            run: run.clone(),
            node: name("refund"),
            visit: 1,
            element: None,
            slot: name(slot),
        };
        Self::new(run, scope, slot, fence, at)
    }

    /// The same of an element of a fan-out.
    pub(crate) fn of_element(self, id: &str) -> Self {
        let mut effect = self.effect;
        let element = Some(ElementId::parse(id).unwrap());
        if let Scope::Run { element: of, .. } = &mut effect.proposal.identity.scope {
            of.clone_from(&element);
        }
        effect.proposal.element = element;
        effect.proposal.idempotency_key = effect.proposal.identity.key();
        effect.id = effect.proposal.identity.effect_id();
        let proposed = EffectEvent::Proposed(effect.proposal.clone());
        let content = Content::Effect { effect: effect.id.clone(), event: proposed };
        let entries = vec![NewEntry { content, at: effect.updated_at }];
        Self { effect, entries, fence: self.fence }
    }

    /// The same as what the ledger itself settles.
    pub(crate) fn settled_here(self) -> Self {
        let mut effect = self.effect;
        effect.proposal.contract = Contract::SETTLED_HERE;
        let proposed = EffectEvent::Proposed(effect.proposal.clone());
        let content = Content::Effect { effect: effect.id.clone(), event: proposed };
        let entries = vec![NewEntry { content, at: effect.updated_at }];
        Self { effect, entries, fence: self.fence }
    }

    /// The same as one that asks a person's approval of another.
    pub(crate) fn approving(self) -> Self {
        let mut effect = self.effect;
        effect.proposal.approves =
            Some(effect.proposal.identity.approval(&effect.proposal.request_hash).effect_id());
        let proposed = EffectEvent::Proposed(effect.proposal.clone());
        let content = Content::Effect { effect: effect.id.clone(), event: proposed };
        let entries = vec![NewEntry { content, at: effect.updated_at }];
        Self { effect, entries, fence: self.fence }
    }

    /// An effect shared by all runs.
    pub(crate) fn shared(run: &RunId, fence: Fence, at: Timestamp) -> Self {
        let scope = Scope::Object { tool: name("payments"), operation: name("refund") };
        Self::new(run, scope, "shared", fence, at)
    }

    /// One that undoes another.
    pub(crate) fn undoing(run: &RunId, fence: Fence, at: Timestamp) -> Self {
        let of = "refund/r/order-1/full".to_owned();
        let scope = Scope::Compensation { of, tool: name("payments"), operation: name("refund") };
        Self::new(run, scope, "undo", fence, at)
    }

    fn new(run: &RunId, scope: Scope, slot: &str, fence: Fence, at: Timestamp) -> Self {
        let identity = Identity {
            alg: 1,
            scope,
            object: Some("order-1".to_owned()),
            intent: "full".to_owned(),
            selector: Selector::Once,
            generation: 1,
        };
        let args = json!({ "amount_cents": 100 });
        let event = EffectEvent::Proposed(Proposal {
            node: name("refund"),
            visit: 1,
            element: None,
            slot: name(slot),
            tool: name("payments"),
            tool_version: "1".to_owned(),
            operation: name("refund"),
            request_hash: RequestHash::of(&name("payments"), "1", &name("refund"), &args, &[]),
            args,
            idempotency_key: identity.key(),
            provider_key: identity.provider_key(KeyFormat::Uuid),
            contract: Contract {
                read: false,
                key: None,
                lookup: None,
                settle_ms: 0,
                timeout_ms: 1_000,
                retry: Retry { attempts: 3, initial_ms: 1, max_ms: 10 },
                horizon_ms: 1_000,
                settled_here: false,
            },
            compensation: None,
            undoes: None,
            approval: None,
            approves: None,
            identity: identity.clone(),
        });
        let effect = Effect::begin(identity.effect_id(), run.clone(), &event, at).unwrap();
        let content = Content::Effect { effect: effect.id.clone(), event };
        Self { effect, entries: vec![NewEntry { content, at }], fence }
    }

    pub(crate) fn under(mut self, fence: Fence) -> Self {
        self.fence = fence;
        self
    }

    pub(crate) fn then(mut self, event: EffectEvent, at: Timestamp) -> Self {
        self.effect.apply(&event, self.fence, at).unwrap();
        let content = Content::Effect { effect: self.effect.id.clone(), event };
        self.entries.push(NewEntry { content, at });
        self
    }

    pub(crate) fn requested(self, at: Timestamp) -> Self {
        let hash = self.effect.proposal.request_hash.clone();
        let attempt = self.effect.attempts.len() as u32 + 1;
        let authorization =
            Authorization { policy: "granted".to_owned(), request_hash: hash, approval: None };
        let start = AttemptStart {
            attempt,
            request: json!({ "method": "POST" }),
            body_hash: "sha256:body".to_owned(),
        };
        self.then(EffectEvent::Authorized(authorization), at)
            .then(EffectEvent::Requested(start), at)
    }

    pub(crate) fn confirmed(self, result: Value, at: Timestamp) -> Self {
        let proposal = self.effect.proposal.clone();
        let receipt = Receipt {
            schema: 1,
            request_hash: proposal.request_hash,
            idempotency_key: proposal.idempotency_key,
            external_id: Some("re_1".to_owned()),
            exposed: result.clone(),
            result,
            result_hash: None,
            truncated: false,
            source: Source::Reply { attempt: 1 },
            rule: RuleId::new("http.200"),
            verdict: Some(Verdict::Succeeded),
            discrepancy: None,
            tool: proposal.tool,
            tool_version: proposal.tool_version,
            operation: proposal.operation,
            policy: "granted".to_owned(),
            approval: None,
            attempts: self.effect.attempts.len() as u32,
            requested_at: at,
            confirmed_at: at,
        };
        self.then(EffectEvent::Confirmed(Box::new(receipt)), at)
    }

    pub(crate) fn failed(self, message: &str, at: Timestamp) -> Self {
        let failure = Failure {
            code: "refused".to_owned(),
            message: message.to_owned(),
            denied: false,
            source: None,
            rule: None,
            verdict: None,
            detail: Value::Null,
        };
        self.then(EffectEvent::Failed(failure), at)
    }

    pub(crate) fn unknown(self, at: Timestamp) -> Self {
        let reason = UnknownReason {
            verdict: Verdict::Indeterminate,
            rule: RuleId::new("transport.reset"),
            message: "the connection was reset".to_owned(),
            external_id: None,
            answered: false,
            quarantined: false,
            breach: false,
            not_before: None,
            detail: Value::Null,
        };
        self.then(EffectEvent::Unknown(reason), at)
    }

    /// The write of what is not written yet.
    pub(crate) fn write(&mut self, claim: &Claim) -> Append {
        Append {
            effects: vec![self.effect.clone()],
            ..append(claim, std::mem::take(&mut self.entries))
        }
    }

    pub(crate) fn take_entries(&mut self) -> Vec<NewEntry> {
        std::mem::take(&mut self.entries)
    }
}
