//! The bodies of requests: what each operation takes, and what object it makes of that.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::limits::{AMOUNT_CENTS_MAX, FIELD_CHARS_MAX, TEXT_CHARS_MAX};
use crate::operation::{Invalid, Operation};
use crate::store::{Change, NewEffect};

/// What can be booked.
const BOOKING_KINDS: [&str; 3] = ["flight", "hotel", "car"];

/// Reads a body into the effect it asks for.
pub(crate) fn read(
    operation: Operation,
    params: &BTreeMap<String, String>,
    body: &Value,
) -> Result<NewEffect, Invalid> {
    use Operation::{Authorization, Booking, Refund, Reservation, Shipment};
    let Value::Object(members) = body else {
        return Err(Invalid {
            code: "body_invalid",
            message: "the body must be a JSON object".to_owned(),
        });
    };
    let fields = Fields { members, params };
    let change = |of, field, from, to| change(operation, &fields, of, field, from, to);
    match operation {
        Operation::Refund => refund(&fields),
        Operation::ReverseRefund => change(Refund, "refund_id", "succeeded", "reversed"),
        Operation::Authorization => authorization(&fields),
        Operation::Void => change(Authorization, "authorization_id", "authorized", "voided"),
        Operation::Capture => change(Authorization, "authorization_id", "authorized", "captured"),
        Operation::Message => message(&fields),
        Operation::Ticket => ticket(&fields),
        Operation::Reservation => reservation(&fields),
        Operation::Release => change(Reservation, "reservation_id", "reserved", "released"),
        Operation::Shipment => shipment(&fields),
        Operation::CancelShipment => change(Shipment, "shipment_id", "shipped", "cancelled"),
        Operation::Booking => booking(&fields),
        Operation::Cancellation => change(Booking, "booking_id", "booked", "cancelled"),
        Operation::Model => Ok(NewEffect {
            operation,
            object: String::new(),
            reference: None,
            body: Map::new(),
            change: Change::NextLine,
        }),
    }
}

/// The effect that makes an object of its own, of these members and the caller's reference.
fn makes(
    operation: Operation,
    object: String,
    reference: Option<String>,
    members: Value,
) -> NewEffect {
    let mut body = without_nulls(members);
    if let Some(reference) = &reference {
        body.insert("reference".to_owned(), Value::from(reference.as_str()));
    }
    NewEffect { operation, object, reference, body, change: Change::Nothing }
}

/// The effect that moves what an earlier one made on from one status to another, or back.
fn change(
    operation: Operation,
    fields: &Fields<'_>,
    of: Operation,
    field: &str,
    from: &'static str,
    to: &'static str,
) -> Result<NewEffect, Invalid> {
    let id = fields.params.get("id").cloned().unwrap_or_default();
    let members = json!({ field: id, "status": "succeeded" });
    let made = makes(operation, id.clone(), fields.reference()?, members);
    Ok(NewEffect { change: Change::Status { of, id, from, to }, ..made })
}

fn refund(fields: &Fields<'_>) -> Result<NewEffect, Invalid> {
    let order_id = fields.of_path_or_body("order_id")?;
    let amount_cents = fields.whole("amount_cents", AMOUNT_CENTS_MAX)?;
    let reason = fields.optional("reason", TEXT_CHARS_MAX)?;
    let members = json!({
        "order_id": order_id, "amount_cents": amount_cents, "reason": reason, "status": "succeeded",
    });
    Ok(makes(Operation::Refund, order_id, fields.reference()?, members))
}

fn authorization(fields: &Fields<'_>) -> Result<NewEffect, Invalid> {
    let order_id = fields.name("order_id")?;
    let amount_cents = fields.whole("amount_cents", AMOUNT_CENTS_MAX)?;
    let members =
        json!({ "order_id": order_id, "amount_cents": amount_cents, "status": "authorized" });
    Ok(makes(Operation::Authorization, order_id, fields.reference()?, members))
}

fn message(fields: &Fields<'_>) -> Result<NewEffect, Invalid> {
    let to = fields.name("to")?;
    let subject = fields.text("subject")?;
    let text = fields.text("text")?;
    let reference = fields.reference()?;
    let object = reference.clone().unwrap_or_else(|| format!("{to}: {subject}"));
    let members = json!({ "to": to, "subject": subject, "text": text, "status": "sent" });
    Ok(makes(Operation::Message, object, reference, members))
}

fn ticket(fields: &Fields<'_>) -> Result<NewEffect, Invalid> {
    let title = fields.text("title")?;
    let body = fields.text("body")?;
    let reference = fields.reference()?;
    let object = reference.clone().unwrap_or_else(|| title.clone());
    let members = json!({ "title": title, "body": body, "status": "open" });
    Ok(makes(Operation::Ticket, object, reference, members))
}

fn reservation(fields: &Fields<'_>) -> Result<NewEffect, Invalid> {
    let order_id = fields.name("order_id")?;
    let sku = fields.name("sku")?;
    let quantity = fields.whole("quantity", 1_000_000)?;
    let object = format!("{order_id}/{sku}");
    let members =
        json!({ "order_id": order_id, "sku": sku, "quantity": quantity, "status": "reserved" });
    Ok(makes(Operation::Reservation, object, fields.reference()?, members))
}

fn shipment(fields: &Fields<'_>) -> Result<NewEffect, Invalid> {
    let order_id = fields.name("order_id")?;
    let address = fields.optional("address", TEXT_CHARS_MAX)?;
    let members = json!({ "order_id": order_id, "address": address, "status": "shipped" });
    Ok(makes(Operation::Shipment, order_id, fields.reference()?, members))
}

fn booking(fields: &Fields<'_>) -> Result<NewEffect, Invalid> {
    let trip_id = fields.of_path_or_body("trip_id")?;
    let kind = fields.of_path_or_body("kind")?;
    if !BOOKING_KINDS.contains(&kind.as_str()) {
        let rule = format!("must be one of {}", BOOKING_KINDS.join(", "));
        return Err(invalid("parameter_invalid", "kind", &rule));
    }
    let details = fields.optional("details", TEXT_CHARS_MAX)?;
    let object = format!("{trip_id}/{kind}");
    let members =
        json!({ "trip_id": trip_id, "kind": kind, "details": details, "status": "booked" });
    Ok(makes(Operation::Booking, object, fields.reference()?, members))
}

/// An object without its null members.
fn without_nulls(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map.into_iter().filter(|(_, value)| !value.is_null()).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Map::new()
        }
    }
}

/// The members of a body, and what the path says. Members that nothing asks for are ignored, as providers do.
struct Fields<'a> {
    members: &'a Map<String, Value>,
    params: &'a BTreeMap<String, String>,
}

impl Fields<'_> {
    /// The caller's own name for what is made.
    fn reference(&self) -> Result<Option<String>, Invalid> {
        self.optional("reference", FIELD_CHARS_MAX)
    }

    /// A required text that names something, and that stands in the path, the body or both.
    fn of_path_or_body(&self, field: &str) -> Result<String, Invalid> {
        match self.params.get(field) {
            Some(of_path) if !self.members.contains_key(field) => Ok(of_path.clone()),
            Some(of_path) => {
                let of_body = self.name(field)?;
                if of_body == *of_path {
                    Ok(of_body)
                } else {
                    Err(invalid("path_mismatch", field, "of the body is not that of the path"))
                }
            }
            None => self.name(field),
        }
    }

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
        match self.members.get(field) {
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
        match self.members.get(field) {
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
