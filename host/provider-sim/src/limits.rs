//! Every limit of the simulator, with its unit and the reason for it.

/// Largest request body taken. Bytes; what Twice itself would ever send, and then some.
pub const REQUEST_BYTES_MAX: usize = 1 << 20;
/// How much of a body that is too large is read, and thrown away, before the connection is given up. Bytes.
pub const REFUSED_BYTES_MAX: usize = 16 << 20;
/// Longest idempotency key taken. Characters; the longest that a known provider takes, rounded up.
pub const KEY_CHARS_MAX: usize = 256;
/// Longest text of an identifying field (order, reference, recipient). Characters.
pub const FIELD_CHARS_MAX: usize = 256;
/// Longest free text (reason, title, body of a message). Characters.
pub const TEXT_CHARS_MAX: usize = 10_000;
/// Largest amount of money. Cents; far from where integers stop being exact in JSON.
pub const AMOUNT_CENTS_MAX: i64 = 1_000_000_000_000;
/// How many requests the log keeps; older ones go, the counters stay.
pub const LOG_LENGTH_MAX: i64 = 10_000;
/// Longest page of a listing.
pub const PAGE_MAX: i64 = 1_000;
/// Length of a page when none is asked for.
pub const PAGE_DEFAULT: i64 = 100;
/// Most switches at once.
pub const SWITCHES_MAX: usize = 64;
/// Most lines in the model's script.
pub const SCRIPT_LINES_MAX: usize = 10_000;
/// Longest delay a switch may ask for. Milliseconds; ten minutes.
pub const DELAY_MS_MAX: u64 = 600_000;
/// Longest pause before a reply; the connection is dropped when nobody continues it. Milliseconds.
pub const PAUSE_MS_MAX: u64 = 600_000;
/// Longest long-poll of `/_sim/wait`. Milliseconds.
pub const WAIT_MS_MAX: u64 = 600_000;
/// How long `/_sim/wait` waits when it is not told. Milliseconds.
pub const WAIT_MS_DEFAULT: u64 = 30_000;
/// How often a file that a paused reply waits for is looked for. Milliseconds.
pub const FILE_LOOK_MS: u64 = 10;
/// Size of the `huge_body` answer when the switch carries none. Bytes; past any sane limit on a receipt.
pub const HUGE_BODY_BYTES_DEFAULT: u64 = 8 << 20;
/// Largest `huge_body` answer. Bytes.
pub const HUGE_BODY_BYTES_MAX: u64 = 64 << 20;
/// Where even `endless_body` ends, so that a client without a limit fails instead of filling a disk. Bytes.
pub const ENDLESS_BODY_BYTES_MAX: u64 = 1 << 30;
/// How far behind the ticket search is unless `lookup_lag_ms` says otherwise. Milliseconds.
pub const TICKET_SEARCH_LAG_MS: u64 = 2_000;
/// How long a stopping simulator waits for open connections. Milliseconds.
pub const STOP_MS_MAX: u64 = 2_000;
