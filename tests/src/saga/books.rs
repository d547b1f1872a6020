//! Whether what the ledger says of a run's effects and what the services' own books say is the same.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{Kept, Services};
use crate::project::Project;

/// What became of an effect that a node asked for, by both accounts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It happened, and it stands.
    Stands,
    /// It happened, and was undone.
    Undone,
    /// It happened, and the service refused for good to undo it.
    NotUndone,
    /// It did not happen.
    Failed,
}

/// The effects that nodes asked for, by `tool.operation`. An operation that was never asked for is not in it.
pub type Books = BTreeMap<String, Fate>;

/// How an operation of a tool shows in the books of its service.
struct Entry {
    /// `tool.operation`.
    operation: &'static str,
    /// What the service calls it.
    makes: &'static str,
    /// The status that its object has at first.
    status: &'static str,
    undo: Option<Undo>,
}

/// How the operation that undoes it shows there.
struct Undo {
    operation: &'static str,
    makes: &'static str,
    /// The status that the object of the other one has then.
    status: &'static str,
}

const fn entry(operation: &'static str, makes: &'static str, status: &'static str) -> Entry {
    Entry { operation, makes, status, undo: None }
}

const fn undone_by(
    entry: Entry,
    operation: &'static str,
    makes: &'static str,
    status: &'static str,
) -> Entry {
    Entry { undo: Some(Undo { operation, makes, status }), ..entry }
}

const fn booking(book: &'static str, cancel: &'static str) -> Entry {
    undone_by(entry(book, "booking", "booked"), cancel, "cancellation", "cancelled")
}

/// All operations of the sagas that nodes ask for.
const ENTRIES: [Entry; 8] = [
    undone_by(
        entry("inventory.reserve", "reservation", "reserved"),
        "inventory.release",
        "release",
        "released",
    ),
    undone_by(
        entry("payments.authorize", "authorization", "authorized"),
        "payments.void",
        "void",
        "voided",
    ),
    undone_by(
        entry("shipments.create", "shipment", "shipped"),
        "shipments.cancel",
        "cancel_shipment",
        "cancelled",
    ),
    entry("payments.capture", "capture", "succeeded"),
    booking("flights.book", "flights.cancel"),
    booking("hotels.book", "hotels.cancel"),
    booking("cars.book", "cars.cancel"),
    entry("mail.send", "message", "sent"),
];

/// An effect as `twice effects list --json` has it.
struct Listed {
    id: String,
    operation: String,
    key: String,
    state: String,
    external_id: Option<String>,
    undoes: Option<String>,
    approves: Option<String>,
}

impl Listed {
    /// Whether a node asked for it.
    const fn is_of_node(&self) -> bool {
        self.undoes.is_none() && self.approves.is_none()
    }

    fn of(value: &Value) -> Result<Self, String> {
        let text = |name: &str| value[name].as_str().map(str::to_owned);
        let needed = |name: &str| text(name).ok_or(format!("there is no {name} in {value:#}"));
        Ok(Self {
            id: needed("effect_id")?,
            operation: needed("type")?,
            key: needed("idempotency_key")?,
            state: needed("state")?,
            external_id: text("external_id"),
            undoes: text("undoes"),
            approves: text("approves"),
        })
    }
}

/// Compares what `twice effects list --json` says of a run, all of whose effects are settled, with what the books of all
/// services say, as [`compare`] does; and that there is nothing twice in the books, and was no request without a key.
/// The services must have seen no other run.
///
/// # Errors
/// What does not agree.
///
/// # Panics
/// When the ledger or a service cannot be asked.
pub fn books(project: &Project, services: &Services, run: &str) -> Result<Books, String> {
    for (service, counters) in services.counters() {
        let mut keyless = counters.operations.iter().filter(|(operation, counted)| {
            !operation.ends_with("_lookup") && counted.requests_without_key > 0
        });
        if let Some((operation, counted)) = keyless.next() {
            return Err(format!("{service}: requests for {operation} without a key: {counted:?}"));
        }
        if counters.duplicates > 0 {
            return Err(format!("{service}: something is there twice: {counters:#?}"));
        }
    }
    let listed = project.json(&["effects", "list", "--run", run, "--limit", "1000"]);
    compare(&listed, services.objects())
}

/// Compares a listing of effects with the books of the services:
///
/// - each effect of a node that is CONFIRMED has exactly one object, and one that is FAILED has none;
/// - one that is undone has its object in the undone state, by exactly one undo, and both are those of its compensation,
///   which is keyed `<key of the effect>/comp/<tool>.<operation>`;
/// - one that is not undone has its object as it was made, or as a later effect of the run left it;
/// - there is nothing in the books that the ledger does not know of.
///
/// # Errors
/// What does not agree.
pub fn compare(listed: &Value, objects: Vec<Kept>) -> Result<Books, String> {
    let list = listed.as_array().ok_or("the listing is no array")?;
    let listed = list.iter().map(Listed::of).collect::<Result<Vec<_>, _>>()?;
    let account = Account { objects, listed };
    account.check_strangers()?;
    let forward = account.listed.iter().filter(|effect| effect.is_of_node());
    forward.map(|effect| Ok((effect.operation.clone(), account.fate(effect)?))).collect()
}

/// Both accounts of one run.
struct Account {
    objects: Vec<Kept>,
    listed: Vec<Listed>,
}

impl Account {
    /// Each object in the books is that of an effect, and each undo undoes an effect of this run.
    fn check_strangers(&self) -> Result<(), String> {
        let known: BTreeSet<&str> = self.listed.iter().map(|effect| effect.id.as_str()).collect();
        let is_known = |id: Option<&String>| id.is_some_and(|id| known.contains(id.as_str()));
        let stranger = |kept: &&Kept| !is_known(kept.object.reference.as_ref());
        if let Some(kept) = self.objects.iter().find(stranger) {
            return Err(format!("the ledger knows nothing of {kept:?}"));
        }
        let undoes = |effect: &&Listed| effect.undoes.is_some();
        match self.listed.iter().filter(undoes).find(|undo| !is_known(undo.undoes.as_ref())) {
            Some(undo) => Err(format!("{} undoes what is no effect of this run", undo.id)),
            None => Ok(()),
        }
    }

    fn fate(&self, effect: &Listed) -> Result<Fate, String> {
        let entry = ENTRIES.iter().find(|entry| entry.operation == effect.operation);
        let entry = entry.ok_or(format!("nobody expects {} here", effect.operation))?;
        let object = self.object_of(effect, entry.makes)?;
        let mut undos: Vec<&Listed> =
            self.listed.iter().filter(|undo| undo.undoes.as_ref() == Some(&effect.id)).collect();
        // One that was refused is asked for again under another key: the last of them counts.
        let mut refused = undos.extract_if(.., |undo| undo.state == "FAILED");
        let last_refused = refused.by_ref().last();
        drop(refused);
        if undos.is_empty() {
            undos.extend(last_refused);
        }
        match (object, undos.as_slice()) {
            (None, []) => Ok(Fate::Failed),
            (None, _) => Err(format!("{} did not happen, and is undone", effect.operation)),
            (Some(object), []) => self.check_untouched(object, entry).map(|()| Fate::Stands),
            (Some(object), [undo]) => self.undone(effect, entry, object, undo),
            (Some(_), _) => Err(format!("{} is undone more than once", effect.operation)),
        }
    }

    /// The one object of an effect; none when it did not happen.
    fn object_of(&self, effect: &Listed, makes: &str) -> Result<Option<&Kept>, String> {
        let of_effect = |kept: &&Kept| kept.object.reference.as_ref() == Some(&effect.id);
        let objects: Vec<&Kept> = self.objects.iter().filter(of_effect).collect();
        let Listed { operation, state, .. } = effect;
        match (state.as_str(), objects.as_slice()) {
            ("FAILED", []) => Ok(None),
            ("CONFIRMED", [kept]) => {
                if kept.object.operation != makes {
                    return Err(format!("{operation} made {kept:?}"));
                }
                if effect.external_id.as_ref() != Some(&kept.object.id) {
                    let told = &effect.external_id;
                    return Err(format!("{operation}: the receipt names {told:?}, not {kept:?}"));
                }
                Ok(Some(kept))
            }
            _ => Err(format!("{operation} is {state}, and in the books there is {objects:?}")),
        }
    }

    /// The object is as it was made, or as a later effect of a node left it.
    fn check_untouched(&self, kept: &Kept, entry: &Entry) -> Result<(), String> {
        let Entry { operation, status, .. } = entry;
        let Some(changed_by) = &kept.object.changed_by else {
            return if kept.object.status.as_deref() == Some(status) {
                Ok(())
            } else {
                Err(format!("{operation} is not as it was made: {kept:?}"))
            };
        };
        let is_changer =
            |other: &&Kept| other.service == kept.service && other.object.id == *changed_by;
        let changer = self.objects.iter().find(is_changer);
        let reference = changer.and_then(|changer| changer.object.reference.as_ref());
        let by_node = |effect: &Listed| effect.is_of_node() && reference == Some(&effect.id);
        if self.listed.iter().any(by_node) {
            Ok(())
        } else {
            Err(format!("{operation} stands, and was changed: {kept:?}"))
        }
    }

    fn undone(
        &self,
        effect: &Listed,
        entry: &Entry,
        kept: &Kept,
        undo: &Listed,
    ) -> Result<Fate, String> {
        let operation = &effect.operation;
        let wanted =
            entry.undo.as_ref().ok_or(format!("{operation} has no undo, and is undone"))?;
        let key = format!("{}/comp/{}", effect.key, wanted.operation);
        let again = undo.key.strip_prefix(&format!("{key}/generation="));
        let of_effect =
            undo.key == key || again.is_some_and(|number| number.parse::<u32>().is_ok());
        if undo.operation != wanted.operation || !of_effect {
            let Listed { operation: by, key: under, .. } = undo;
            return Err(format!("{operation} is undone by {by} under {under}, not {key}"));
        }
        let Some(made) = self.object_of(undo, wanted.makes)? else {
            return self.check_untouched(kept, entry).map(|()| Fate::NotUndone);
        };
        let (object, undoing) = (&kept.object, &made.object);
        let as_undone = made.service == kept.service
            && object.status.as_deref() == Some(wanted.status)
            && object.changed_by.as_ref() == Some(&undoing.id)
            && undoing.object == object.id;
        if as_undone {
            Ok(Fate::Undone)
        } else {
            Err(format!("{operation} is undone by {made:?}, and is {kept:?}"))
        }
    }
}
