//! Requests for effects, the only way in which a node reaches the world.

use std::fmt;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::bindings::twice::node::effects as wit;

/// The proof that an effect happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receipt<T> {
    /// The effect's id in the ledger, `eff_…`.
    pub effect_id: String,
    /// What the tool lets a node see of the provider's result.
    pub body: T,
}

/// Why there is no receipt. It is final: a restarted node gets the same. (An outcome that is not known is no error; the
/// request then does not return.)
#[derive(Debug)]
pub enum EffectError {
    /// It did not happen.
    Failed {
        /// The slot.
        slot: String,
        /// A stable word, such as the provider's error code, `http_402` or `exhausted`.
        code: String,
        /// For people.
        message: String,
    },
    /// It is not allowed, and was not sent.
    Denied {
        /// The slot.
        slot: String,
        /// The policy that refused.
        policy: String,
        /// For people.
        message: String,
    },
    /// The arguments cannot be written as JSON. Nothing was requested.
    Args {
        /// The slot.
        slot: String,
        /// Why.
        source: serde_json::Error,
    },
    /// It happened, but what the tool shows of it does not fit the node's type.
    Body {
        /// The slot.
        slot: String,
        /// The effect, which is confirmed.
        effect_id: String,
        /// Why.
        source: serde_json::Error,
    },
}

impl fmt::Display for EffectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed { slot, code, message } => {
                write!(f, "`{slot}` failed with {code}: {message}")
            }
            Self::Denied { slot, policy, message } => {
                write!(f, "`{slot}` is denied by {policy}: {message}")
            }
            Self::Args { slot, source } => {
                write!(f, "the arguments of `{slot}` are no JSON: {source}")
            }
            Self::Body { slot, effect_id, source } => write!(
                f,
                "`{slot}` happened ({effect_id}), but its receipt does not fit the node's type: {source}"
            ),
        }
    }
}

impl std::error::Error for EffectError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Args { source, .. } | Self::Body { source, .. } => Some(source),
            Self::Failed { .. } | Self::Denied { .. } => None,
        }
    }
}

/// Requests the effect that the workflow grants under `slot`.
///
/// # Errors
/// [`EffectError`]: the effect failed, is denied, or its JSON does not fit.
pub fn request<T: DeserializeOwned>(
    slot: &str,
    args: &(impl Serialize + ?Sized),
) -> Result<Receipt<T>, EffectError> {
    read(slot, wit::request(&prepare(slot, None, args)?))
}

/// Requests the effect for element `item` (from 0) of the array that the workflow bound to `slot` with `for_each`.
///
/// # Errors
/// As [`request`].
pub fn request_item<T: DeserializeOwned>(
    slot: &str,
    item: u32,
    args: &(impl Serialize + ?Sized),
) -> Result<Receipt<T>, EffectError> {
    read(slot, wit::request(&prepare(slot, Some(item), args)?))
}

/// Requests all of a list; the host performs them concurrently. The answers stand in the order of the requests. When one
/// cannot be answered yet, none is: the node starts again when all can.
pub fn request_all<T: DeserializeOwned>(
    requests: &Requests,
) -> Vec<Result<Receipt<T>, EffectError>> {
    let answers = wit::request_all(&requests.list);
    requests.list.iter().zip(answers).map(|(request, answer)| read(&request.slot, answer)).collect()
}

/// A list of requests for [`request_all`].
///
/// ```
/// # use twice_node::effects::Requests;
/// let orders = ["order-1", "order-2"];
/// let requests = Requests::for_each("refund", orders.map(|id| serde_json::json!({ "order_id": id })))?;
/// assert_eq!(requests.len(), 2);
/// # Ok::<(), twice_node::effects::EffectError>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Requests {
    list: Vec<wit::EffectRequest>,
}

impl Requests {
    /// An empty list.
    #[must_use]
    pub const fn new() -> Self {
        Self { list: Vec::new() }
    }

    /// One request for each element of the array that the workflow bound to `slot`, in its order.
    ///
    /// # Errors
    /// [`EffectError::Args`].
    pub fn for_each<A: Serialize>(
        slot: &str,
        args: impl IntoIterator<Item = A>,
    ) -> Result<Self, EffectError> {
        let mut requests = Self::new();
        for (item, args) in (0..).zip(args) {
            requests.push_item(slot, item, &args)?;
        }
        Ok(requests)
    }

    /// Adds a request.
    ///
    /// # Errors
    /// [`EffectError::Args`].
    pub fn push(
        &mut self,
        slot: &str,
        args: &(impl Serialize + ?Sized),
    ) -> Result<(), EffectError> {
        self.list.push(prepare(slot, None, args)?);
        Ok(())
    }

    /// Adds a request for element `item` of the slot's array.
    ///
    /// # Errors
    /// [`EffectError::Args`].
    pub fn push_item(
        &mut self,
        slot: &str,
        item: u32,
        args: &(impl Serialize + ?Sized),
    ) -> Result<(), EffectError> {
        self.list.push(prepare(slot, Some(item), args)?);
        Ok(())
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
}

fn prepare(
    slot: &str,
    item: Option<u32>,
    args: &(impl Serialize + ?Sized),
) -> Result<wit::EffectRequest, EffectError> {
    let args = serde_json::to_string(args)
        .map_err(|source| EffectError::Args { slot: slot.to_owned(), source })?;
    Ok(wit::EffectRequest { slot: slot.to_owned(), item, args })
}

fn read<T: DeserializeOwned>(
    slot: &str,
    answer: Result<wit::Receipt, wit::EffectError>,
) -> Result<Receipt<T>, EffectError> {
    let slot = slot.to_owned();
    match answer {
        Ok(wit::Receipt { effect_id, body }) => match serde_json::from_str(&body) {
            Ok(body) => Ok(Receipt { effect_id, body }),
            Err(source) => Err(EffectError::Body { slot, effect_id, source }),
        },
        Err(wit::EffectError::Failed(wit::Failure { code, message })) => {
            Err(EffectError::Failed { slot, code, message })
        }
        Err(wit::EffectError::Denied(wit::Denial { policy, message })) => {
            Err(EffectError::Denied { slot, policy, message })
        }
    }
}
