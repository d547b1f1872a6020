//! Every limit, with its unit and the reason for it.

/// Largest JSON text that crosses the border of a guest: input, args, output. Bytes; what a person could still read in a
/// ledger, and small enough that a thousand waiting runs fit in memory.
pub const PAYLOAD_BYTES_MAX: usize = 1 << 20;
/// Deepest nesting of JSON; keeps every recursive reader within its stack.
pub const JSON_DEPTH_MAX: usize = 64;
/// Largest integer in JSON, and its negation the smallest: beyond ±(2^53−1) other readers round silently.
pub const JSON_INTEGER_MAX: i64 = (1 << 53) - 1;
/// Largest body of a ledger entry. Bytes; the largest result or output, in its longest spelling and doubled by what the
/// guest may see of it, fits with room to spare.
pub const ENTRY_BYTES_MAX: usize = 16 << 20;
/// Deepest nesting of a ledger entry's body: JSON of the deepest kind taken in, inside the members of an event.
pub const ENTRY_DEPTH_MAX: usize = JSON_DEPTH_MAX + 16;
/// Shortest secret value that can be taken out of texts. Characters; anything shorter turns up by chance.
pub const SECRET_CHARS_MIN: usize = 6;
/// Largest response body taken from a provider. Bytes.
pub const RESPONSE_BYTES_MAX: u64 = 1 << 20;
/// Largest event that a provider posts. Bytes; GitHub's limit is 25 MiB, those that speak of one payment have a few KiB.
pub const WEBHOOK_BYTES_MAX: usize = 1 << 20;
/// How much of a body that cannot be kept whole is kept. Bytes.
pub const EXCERPT_BYTES_MAX: usize = 4 << 10;
/// Largest component. Bytes; an interpreter with its library fits.
pub const COMPONENT_BYTES_MAX: usize = 64 << 20;
/// Largest workflow, tool or schema file. Bytes.
pub const FILE_BYTES_MAX: u64 = 1 << 20;
/// Longest page of a listing.
pub const PAGE_MAX: u32 = 1_000;
/// Crashes of a run in a row, without progress, after which it is not loaded any more.
pub const CRASHES_MAX: u32 = 5;
/// Most elements of a fan-out; their identities are one ledger entry, their outputs one value.
pub const ELEMENTS_MAX: usize = 10_000;
