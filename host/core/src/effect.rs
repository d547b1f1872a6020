//! An effect: one identified request to the outside and its whole life, as folded from its ledger entries.

use serde::{Deserialize, Serialize};

use crate::contract::Contract;
use crate::event::{
    Authorization, Conflict, ConflictDecision, ConflictRule, EffectEvent, Failure, Observation,
    Probe, ProbeResult, Proposal, Receipt, UnknownReason,
};
use crate::identity::RequestHash;
use crate::ids::{EffectId, Fence, RunId};
use crate::mutation;
use crate::outcome::Verdict;
use crate::time::Timestamp;
use crate::transition::{self, Illegal};

/// The states of an effect, exactly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum State {
    /// Asked for: identity, args, key and contract are written down.
    Proposed,
    /// Policy (and approval, where required) permits this very request.
    Authorized,
    /// An attempt started: its bytes may have left.
    Requested,
    /// It happened; a receipt proves it.
    Confirmed,
    /// It did not happen.
    Failed,
    /// Sent, and not known to have happened or not.
    Unknown,
}

impl State {
    /// Every state, in the order of DESIGN's table.
    pub const ALL: [Self; 6] = [
        Self::Proposed,
        Self::Authorized,
        Self::Requested,
        Self::Confirmed,
        Self::Failed,
        Self::Unknown,
    ];

    /// The word used in the ledger, in listings and in JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Proposed => "PROPOSED",
            Self::Authorized => "AUTHORIZED",
            Self::Requested => "REQUESTED",
            Self::Confirmed => "CONFIRMED",
            Self::Failed => "FAILED",
            Self::Unknown => "UNKNOWN",
        }
    }

    /// Reads the word back.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == word)
    }

    /// Whether nothing but a person's order can change it any more.
    #[must_use]
    pub const fn is_final(self) -> bool {
        match self {
            Self::Confirmed | Self::Failed => true,
            Self::Proposed | Self::Authorized | Self::Requested | Self::Unknown => false,
        }
    }
}

impl std::fmt::Display for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One send of an effect.
#[derive(Debug, Clone, PartialEq)]
pub struct Attempt {
    /// 1 for the first.
    pub number: u32,
    /// The lease under which it was sent.
    pub fence: Fence,
    /// When its REQUESTED entry was made.
    pub requested_at: Timestamp,
    /// `sha256:` and the digest of the exact body bytes; every attempt sends the same.
    pub body_hash: String,
    /// What became of it; `None` while no answer is recorded (after a crash: indeterminate, whatever the logs suggest).
    pub verdict: Option<Verdict>,
    /// When its verdict was recorded.
    pub settled_at: Option<Timestamp>,
    /// How many lookups were made before it; what they told is no news about it. A count, as clocks of hosts differ.
    pub probes_before: usize,
}

impl Attempt {
    /// Whether it may have done something that is not known: no verdict, or an indeterminate or pending one.
    #[must_use]
    pub const fn in_doubt(&self) -> bool {
        match self.verdict {
            None | Some(Verdict::Indeterminate | Verdict::AcceptedPending) => true,
            Some(
                Verdict::NotSent | Verdict::NotProcessed | Verdict::Rejected | Verdict::Succeeded,
            ) => false,
        }
    }
}

/// Why dependants of an effect are held until a person decides.
#[derive(Debug, Clone, PartialEq)]
pub enum Hold {
    /// The same identity was requested with other args.
    Conflict(Conflict),
    /// It happened, but differs from what was asked for.
    Discrepancy(String),
}

/// What a request under the identity of an effect that is on record means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meant {
    /// That effect: it was asked for so, or a person decided that it stands for this request as well.
    This,
    /// A new logical action under the next generation, as a person decided.
    NextGeneration,
    /// It was asked for otherwise, and nobody decided (I6).
    Undecided,
}

/// An effect as its entries tell it. Built only by [`Effect::apply`], so that memory and ledger cannot disagree.
#[derive(Debug, Clone, PartialEq)]
pub struct Effect {
    /// The digest of its identity.
    pub id: EffectId,
    /// The run that owns it (the first to propose it, for effects shared between runs).
    pub run: RunId,
    /// Where it stands.
    pub state: State,
    /// What is asked for, under which identity and promises.
    pub proposal: Proposal,
    /// Why it may be sent.
    pub authorization: Option<Authorization>,
    /// Every send.
    pub attempts: Vec<Attempt>,
    /// Every lookup that was made.
    pub probes: Vec<(Timestamp, Probe)>,
    /// What arrived about it and was not applied. Nothing is decided by it but by a person.
    pub observed: Vec<(Timestamp, Observation)>,
    /// Why its outcome is not known, when it is not.
    pub unknown: Option<UnknownReason>,
    /// The proof, when confirmed.
    pub receipt: Option<Receipt>,
    /// The reason, when failed.
    pub failure: Option<Failure>,
    /// Not to be sent or asked about before this instant (backoff, `Retry-After`).
    pub not_before: Option<Timestamp>,
    /// What a person must decide before anything that depends on this effect goes on.
    pub hold: Option<Hold>,
    /// What was decided about conflicts, oldest first.
    pub decisions: Vec<ConflictDecision>,
    /// The last error in words, for listings.
    pub last_error: Option<String>,
    /// When its outcome was recorded; the durable clock of its step moves to here.
    pub answered_at: Option<Timestamp>,
    /// When its latest entry was made.
    pub updated_at: Timestamp,
}

impl Effect {
    /// The effect that its first entry makes.
    ///
    /// # Errors
    /// [`Illegal`] when that entry is not a proposal.
    pub fn begin(
        id: EffectId,
        run: RunId,
        event: &EffectEvent,
        at: Timestamp,
    ) -> Result<Self, Illegal> {
        let state = transition::next(None, event.kind())?;
        let EffectEvent::Proposed(proposal) = event else {
            return Err(Illegal { from: None, event: event.kind() });
        };
        Ok(Self {
            id,
            run,
            state,
            proposal: proposal.clone(),
            authorization: None,
            attempts: Vec::new(),
            probes: Vec::new(),
            observed: Vec::new(),
            unknown: None,
            receipt: None,
            failure: None,
            not_before: None,
            hold: None,
            decisions: Vec::new(),
            last_error: None,
            answered_at: None,
            updated_at: at,
        })
    }

    /// Takes in one more entry.
    ///
    /// # Errors
    /// [`Illegal`] when the transition table does not know the move; the effect is unchanged then.
    pub fn apply(
        &mut self,
        event: &EffectEvent,
        fence: Fence,
        at: Timestamp,
    ) -> Result<(), Illegal> {
        self.state = transition::next(Some(self.state), event.kind())?;
        self.updated_at = at;
        if self.state.is_final() {
            self.answered_at.get_or_insert(at);
        }
        match event {
            EffectEvent::Proposed(proposal) => {
                self.proposal = proposal.clone();
                self.authorization = None;
            }
            EffectEvent::Authorized(authorization) => {
                self.authorization = Some(authorization.clone());
            }
            EffectEvent::Requested(start) => {
                self.attempts.push(Attempt {
                    number: start.attempt,
                    fence,
                    requested_at: at,
                    body_hash: start.body_hash.clone(),
                    verdict: None,
                    settled_at: None,
                    probes_before: self.probes.len(),
                });
                self.not_before = None;
                if mutation::is("key-by-attempt") {
                    self.proposal.provider_key.push_str("-again");
                }
            }
            EffectEvent::Confirmed(receipt) => {
                self.settle_attempt(receipt.verdict, at);
                self.receipt = Some((**receipt).clone());
                self.unknown = None;
                self.last_error.clone_from(&receipt.discrepancy);
                // A conflict that waits for its decision is not forgotten because the outcome became known.
                if self.hold.is_none() {
                    self.hold = receipt.discrepancy.clone().map(Hold::Discrepancy);
                }
            }
            EffectEvent::Failed(failure) => {
                self.settle_attempt(failure.verdict, at);
                self.unknown = None;
                self.last_error = Some(failure.message.clone());
                self.failure = Some(failure.clone());
            }
            EffectEvent::Deferred(deferral) => {
                self.settle_attempt(Some(deferral.verdict), at);
                self.not_before = deferral.not_before;
                self.last_error = Some(deferral.message.clone());
            }
            EffectEvent::Unknown(reason) => {
                self.settle_attempt(Some(reason.verdict), at);
                self.not_before = reason.not_before;
                self.last_error = Some(reason.message.clone());
                self.unknown = Some(reason.clone());
            }
            EffectEvent::Probed(probe) => {
                self.not_before = probe.not_before;
                if let ProbeResult::Error { message } = &probe.result {
                    self.last_error = Some(message.clone());
                }
                self.probes.push((at, probe.clone()));
            }
            EffectEvent::Observed(observation) => self.observed.push((at, observation.clone())),
            EffectEvent::Conflicted(conflict) => {
                self.last_error = Some("the same effect was requested with other args".to_owned());
                self.hold = Some(Hold::Conflict(conflict.clone()));
            }
            EffectEvent::ConflictDecided(decision) => {
                self.decide_hold();
                self.decisions.push(decision.clone());
            }
        }
        Ok(())
    }

    /// A decision lifts one hold. Behind a conflict a difference of the result may have been waiting.
    fn decide_hold(&mut self) {
        let difference = self.receipt.as_ref().and_then(|receipt| receipt.discrepancy.clone());
        self.hold = match self.hold.take() {
            Some(Hold::Conflict(_)) => difference.clone().map(Hold::Discrepancy),
            Some(Hold::Discrepancy(_)) | None => None,
        };
        let unknown = self.unknown.as_ref().map(|reason| reason.message.clone());
        let failure = self.failure.as_ref().map(|failure| failure.message.clone());
        self.last_error = difference.or(unknown).or(failure);
    }

    fn settle_attempt(&mut self, verdict: Option<Verdict>, at: Timestamp) {
        if let (Some(verdict), Some(attempt)) = (verdict, self.attempts.last_mut()) {
            attempt.verdict = Some(verdict);
            attempt.settled_at = Some(at);
        }
    }

    /// What a request with that request hash, under the identity of this effect, means.
    #[must_use]
    pub fn meant_by(&self, request_hash: &RequestHash) -> Meant {
        let own = &self.proposal.request_hash;
        // An order to try again what failed says nothing about how it is to be asked for then.
        if self.state == State::Failed && self.is_renewed_for(own) {
            return Meant::NextGeneration;
        }
        match self.decision_about(request_hash).map(|decided| decided.decision) {
            Some(ConflictRule::Renew) => Meant::NextGeneration,
            Some(ConflictRule::Keep | ConflictRule::Fail) => Meant::This,
            None if request_hash == own => Meant::This,
            None => Meant::Undecided,
        }
    }

    /// The latest decision about requests with that request hash.
    #[must_use]
    pub fn decision_about(&self, request_hash: &RequestHash) -> Option<&ConflictDecision> {
        self.decisions.iter().rev().find(|decided| decided.requested_hash == *request_hash)
    }

    /// Whether requests with that request hash are a new logical action, as a person decided.
    #[must_use]
    pub fn is_renewed_for(&self, request_hash: &RequestHash) -> bool {
        let decided = self.decision_about(request_hash);
        decided.is_some_and(|decided| decided.decision == ConflictRule::Renew)
    }

    /// Whether a person decided that some request under this identity is a new logical action.
    #[must_use]
    pub fn is_renewed(&self) -> bool {
        self.decisions.iter().any(|decided| decided.decision == ConflictRule::Renew)
    }

    /// Whether a request of another run means this effect no more: it was called off or refused before anything of it was sent, which
    /// says nothing about what another run may do.
    #[must_use]
    pub fn is_void_for_others(&self) -> bool {
        self.state == State::Failed && self.attempts.is_empty()
    }

    /// The promises under which it was proposed (I9: never those of today's tool file).
    #[must_use]
    pub fn contract(&self) -> &Contract {
        &self.proposal.contract
    }

    /// When its first attempt may have left the host.
    #[must_use]
    pub fn first_sent_at(&self) -> Option<Timestamp> {
        self.attempts.iter().find(|a| a.verdict != Some(Verdict::NotSent)).map(|a| a.requested_at)
    }

    /// Whether an attempt before the last may have done something, so that the last one's clean failure settles nothing.
    #[must_use]
    pub fn earlier_attempt_in_doubt(&self) -> bool {
        let earlier = self.attempts.len().saturating_sub(1);
        self.attempts.iter().take(earlier).any(Attempt::in_doubt)
    }

    /// The attempts whose outcome nothing has settled: no verdict, or an indeterminate or pending one.
    pub fn indeterminate_attempts(&self) -> impl Iterator<Item = &Attempt> {
        self.attempts.iter().filter(|attempt| attempt.in_doubt())
    }

    /// The state to show to people: REQUESTED under a lease that is no longer held *is* UNKNOWN (I5), unless this ledger
    /// itself tells what became of it.
    #[must_use]
    pub const fn shown_state(&self, lease_is_live: bool) -> State {
        match self.state {
            State::Requested if !lease_is_live && !self.proposal.contract.settled_here => {
                State::Unknown
            }
            state => state,
        }
    }
}
