//! The operations: what each route means, what body it takes, and what object it makes.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::limits::{AMOUNT_CENTS_MAX, FIELD_CHARS_MAX, TEXT_CHARS_MAX};
use crate::store::{Change, NewEffect};

/// What can be asked of the provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    Refund,
    ReverseRefund,
    Message,
    Ticket,
    Reservation,
    Release,
    Shipment,
    Model,
}

/// Why a body is refused: a code and a sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Invalid {
    pub(crate) code: &'static str,
    pub(crate) message: String,
}

impl Operation {
    /// The name in counters and in the log.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Refund => "refund",
            Self::ReverseRefund => "reverse_refund",
            Self::Message => "message",
            Self::Ticket => "ticket",
            Self::Reservation => "reservation",
            Self::Release => "release",
            Self::Shipment => "shipment",
            Self::Model => "model",
        }
    }

    /// The name under which questions about its objects are counted.
    pub(crate) const fn lookup_name(self) -> &'static str {
        match self {
            Self::Refund => "refund_lookup",
            Self::ReverseRefund => "reverse_refund_lookup",
            Self::Message => "message_lookup",
            Self::Ticket => "ticket_lookup",
            Self::Reservation => "reservation_lookup",
            Self::Release => "release_lookup",
            Self::Shipment => "shipment_lookup",
            Self::Model => "model_lookup",
        }
    }

    pub(crate) const fn id_prefix(self) -> &'static str {
        match self {
            Self::Refund => "re",
            Self::ReverseRefund => "rev",
            Self::Message => "msg",
            Self::Ticket => "tkt",
            Self::Reservation => "res",
            Self::Release => "rel",
            Self::Shipment => "shp",
            Self::Model => "gen",
        }
    }

    /// Whether the idempotency key is honoured. A ticket tracker has none, and a model answers anew each time.
    pub(crate) const fn honours_keys(self) -> bool {
        match self {
            Self::Refund
            | Self::ReverseRefund
            | Self::Message
            | Self::Reservation
            | Self::Release
            | Self::Shipment => true,
            Self::Ticket | Self::Model => false,
        }
    }

    /// Reads a body into the effect it asks for.
    pub(crate) fn read(
        self,
        params: &BTreeMap<String, String>,
        body: &Value,
    ) -> Result<NewEffect, Invalid> {
        let Value::Object(map) = body else {
            return Err(Invalid {
                code: "body_invalid",
                message: "the body must be a JSON object".to_owned(),
            });
        };
        let fields = Fields(map);
        match self {
            Self::Refund => refund(params, &fields),
            Self::ReverseRefund => {
                change_of(self, Self::Refund, "refund_id", "reversed", params, &fields)
            }
            Self::Release => {
                change_of(self, Self::Reservation, "reservation_id", "released", params, &fields)
            }
            Self::Message => message(&fields),
            Self::Ticket => ticket(&fields),
            Self::Reservation => reservation(&fields),
            Self::Shipment => shipment(&fields),
            Self::Model => Ok(NewEffect {
                operation: self,
                object: String::new(),
                reference: None,
                body: Map::new(),
                change: Change::NextLine,
            }),
        }
    }
}

fn refund(params: &BTreeMap<String, String>, fields: &Fields<'_>) -> Result<NewEffect, Invalid> {
    let order_id = match (params.get("order_id"), fields.0.contains_key("order_id")) {
        (Some(of_path), true) if *of_path != fields.name("order_id")? => {
            return Err(Invalid {
                code: "order_id_mismatch",
                message: "order_id of the body is not that of the path".to_owned(),
            });
        }
        (Some(of_path), _) => of_path.clone(),
        (None, _) => fields.name("order_id")?,
    };
    let amount_cents = fields.whole("amount_cents", AMOUNT_CENTS_MAX)?;
    let reference = fields.optional("reference", FIELD_CHARS_MAX)?;
    let reason = fields.optional("reason", TEXT_CHARS_MAX)?;
    Ok(NewEffect {
        operation: Operation::Refund,
        object: order_id.clone(),
        reference: reference.clone(),
        body: object(json!({
            "order_id": order_id, "amount_cents": amount_cents, "reference": reference, "reason": reason,
            "status": "succeeded",
        })),
        change: Change::Nothing,
    })
}

fn change_of(
    operation: Operation,
    of: Operation,
    field: &str,
    to: &'static str,
    params: &BTreeMap<String, String>,
    fields: &Fields<'_>,
) -> Result<NewEffect, Invalid> {
    let id = params.get("id").cloned().unwrap_or_default();
    let reference = fields.optional("reference", FIELD_CHARS_MAX)?;
    Ok(NewEffect {
        operation,
        object: id.clone(),
        reference: reference.clone(),
        body: object(json!({ field: id, "reference": reference, "status": "succeeded" })),
        change: Change::Status { of, id, to },
    })
}

fn message(fields: &Fields<'_>) -> Result<NewEffect, Invalid> {
    let to = fields.name("to")?;
    let subject = fields.text("subject")?;
    let text = fields.text("text")?;
    let reference = fields.optional("reference", FIELD_CHARS_MAX)?;
    Ok(NewEffect {
        operation: Operation::Message,
        object: reference.clone().unwrap_or_else(|| format!("{to}: {subject}")),
        reference: reference.clone(),
        body: object(json!({
            "to": to, "subject": subject, "text": text, "reference": reference, "status": "sent",
        })),
        change: Change::Nothing,
    })
}

fn ticket(fields: &Fields<'_>) -> Result<NewEffect, Invalid> {
    let title = fields.text("title")?;
    let body = fields.text("body")?;
    let reference = fields.optional("reference", FIELD_CHARS_MAX)?;
    Ok(NewEffect {
        operation: Operation::Ticket,
        object: reference.clone().unwrap_or_else(|| title.clone()),
        reference: reference.clone(),
        body: object(
            json!({ "title": title, "body": body, "reference": reference, "status": "open" }),
        ),
        change: Change::Nothing,
    })
}

fn reservation(fields: &Fields<'_>) -> Result<NewEffect, Invalid> {
    let order_id = fields.name("order_id")?;
    let sku = fields.name("sku")?;
    let quantity = fields.whole("quantity", 1_000_000)?;
    let reference = fields.optional("reference", FIELD_CHARS_MAX)?;
    Ok(NewEffect {
        operation: Operation::Reservation,
        object: format!("{order_id}/{sku}"),
        reference: reference.clone(),
        body: object(json!({
            "order_id": order_id, "sku": sku, "quantity": quantity, "reference": reference,
            "status": "reserved",
        })),
        change: Change::Nothing,
    })
}

fn shipment(fields: &Fields<'_>) -> Result<NewEffect, Invalid> {
    let order_id = fields.name("order_id")?;
    let address = fields.optional("address", TEXT_CHARS_MAX)?;
    let reference = fields.optional("reference", FIELD_CHARS_MAX)?;
    Ok(NewEffect {
        operation: Operation::Shipment,
        object: order_id.clone(),
        reference: reference.clone(),
        body: object(json!({
            "order_id": order_id, "address": address, "reference": reference, "status": "shipped",
        })),
        change: Change::Nothing,
    })
}

/// An object without its null members.
fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map.into_iter().filter(|(_, value)| !value.is_null()).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Map::new()
        }
    }
}

/// The members of a body. Members that nothing asks for are ignored, as providers do.
struct Fields<'a>(&'a Map<String, Value>);

impl Fields<'_> {
    /// A required text that names something: not empty, and short.
    fn name(&self, field: &str) -> Result<String, Invalid> {
        match self.optional(field, FIELD_CHARS_MAX)? {
            Some(text) if !text.is_empty() => Ok(text),
            Some(_) => Err(invalid("parameter_invalid", field, "must not be empty")),
            None => Err(invalid("parameter_missing", field, "is required")),
        }
    }

    /// A required free text.
    fn text(&self, field: &str) -> Result<String, Invalid> {
        self.optional(field, TEXT_CHARS_MAX)?
            .ok_or_else(|| invalid("parameter_missing", field, "is required"))
    }

    fn optional(&self, field: &str, chars_max: usize) -> Result<Option<String>, Invalid> {
        match self.0.get(field) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) if text.chars().count() <= chars_max => {
                Ok(Some(text.clone()))
            }
            Some(Value::String(_)) => Err(invalid(
                "parameter_invalid",
                field,
                &format!("must have at most {chars_max} characters"),
            )),
            Some(_) => Err(invalid("parameter_invalid", field, "must be a text")),
        }
    }

    fn whole(&self, field: &str, max: i64) -> Result<i64, Invalid> {
        match self.0.get(field) {
            None | Some(Value::Null) => Err(invalid("parameter_missing", field, "is required")),
            Some(value) => value.as_i64().filter(|n| (1..=max).contains(n)).ok_or_else(|| {
                invalid(
                    "parameter_invalid",
                    field,
                    &format!("must be a whole number from 1 to {max}"),
                )
            }),
        }
    }
}

fn invalid(code: &'static str, field: &str, rule: &str) -> Invalid {
    Invalid { code, message: format!("{field} {rule}") }
}
