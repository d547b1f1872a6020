//! The general table of HTTP statuses, for requests that have an effect. Declarations come before it.

use super::Verdict;

/// One row: statuses that mean the same.
#[derive(Debug, Clone, Copy)]
pub(super) struct Row {
    /// The first and the last status it covers.
    from: u16,
    to: u16,
    /// What they mean.
    pub(super) meaning: Meaning,
    /// Why, in words that follow "the provider answered 404: ".
    pub(super) why: &'static str,
}

/// What a status means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Meaning {
    /// It happened, if the body bears it out.
    Success,
    /// It happened, if the operation declares that a success has no body.
    SuccessWithoutBody,
    /// A verdict by itself.
    Verdict(Verdict),
    /// It may have happened, and the provider may answer the same again under our key.
    StoredError,
    /// A refusal, unless an earlier attempt may have changed what the precondition speaks of.
    Precondition,
    /// Not an answer that HTTP allows here.
    Breach,
}

const fn row(from: u16, to: u16, meaning: Meaning, why: &'static str) -> Row {
    Row { from, to, meaning, why }
}

const IN: Meaning = Meaning::Verdict(Verdict::Indeterminate);
const NP: Meaning = Meaning::Verdict(Verdict::NotProcessed);
const RJ: Meaning = Meaning::Verdict(Verdict::Rejected);
const AP: Meaning = Meaning::Verdict(Verdict::AcceptedPending);

/// The first row that covers a status decides. Every status is covered.
const TABLE: &[Row] = &[
    row(0, 199, Meaning::Breach, "it is not a final answer"),
    row(200, 201, Meaning::Success, "success"),
    row(202, 202, AP, "accepted, and still being worked on"),
    row(204, 205, Meaning::SuccessWithoutBody, "success without a body"),
    row(206, 208, IN, "only parts of it are told, and may have gone differently"),
    row(203, 299, IN, "it likely happened, but nothing vouches for this kind of success"),
    row(303, 303, IN, "it likely happened, and the result is elsewhere"),
    row(300, 399, IN, "a redirect, which is never followed"),
    row(400, 400, Meaning::StoredError, "this refusal is not declared as definite"),
    row(401, 401, RJ, "the credential was not accepted"),
    row(402, 402, RJ, "declined"),
    row(403, 403, RJ, "the credential does not permit it"),
    row(404, 404, RJ, "there is no such thing"),
    row(405, 406, RJ, "it does not take such a request"),
    row(408, 408, IN, "it says that it waited in vain, but something between may have said so"),
    row(409, 409, IN, "a conflict that is not declared: in flight, duplicate or refused"),
    row(410, 410, RJ, "it is gone"),
    row(411, 411, RJ, "it does not take such a request"),
    row(412, 412, Meaning::Precondition, "a precondition does not hold"),
    row(413, 415, RJ, "it does not take such a request"),
    row(421, 421, NP, "this connection does not lead to it"),
    row(422, 422, RJ, "it does not accept the content"),
    row(423, 423, NP, "the object is locked"),
    row(424, 424, NP, "something that it depends on failed"),
    row(425, 425, NP, "too early"),
    row(428, 428, RJ, "it wants a precondition"),
    row(429, 429, IN, "too many requests, not declared to be said before anything is processed"),
    row(431, 431, RJ, "it does not take such a request"),
    row(400, 499, Meaning::StoredError, "this refusal is not declared as definite"),
    row(501, 501, RJ, "it does not take such a request"),
    row(502, 502, IN, "a gateway got no valid answer"),
    row(503, 503, IN, "unavailable, and not declared to be said before anything is processed"),
    row(504, 504, IN, "a gateway got no answer in time"),
    row(520, 527, IN, "the network before the provider got no valid answer"),
    row(500, 599, Meaning::StoredError, "it failed, and may have done it all the same"),
    row(600, u16::MAX, Meaning::Breach, "it is not a status of HTTP"),
];

/// The row for a status.
pub(super) fn row_of(status: u16) -> &'static Row {
    TABLE
        .iter()
        .find(|row| (row.from..=row.to).contains(&status))
        .expect("the ranges of the table leave no gap")
}
