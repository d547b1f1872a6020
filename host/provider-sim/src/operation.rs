//! The operations: what can be asked of the provider, and what each is called.

/// What can be asked of the provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    Refund,
    ReverseRefund,
    Authorization,
    Void,
    Capture,
    Message,
    Ticket,
    Reservation,
    Release,
    Shipment,
    CancelShipment,
    Booking,
    Cancellation,
    Model,
}

/// What an operation is called and how it treats keys.
struct Row {
    name: &'static str,
    lookup_name: &'static str,
    id_prefix: &'static str,
    honours_keys: bool,
}

/// Why a body is refused: a code and a sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Invalid {
    pub(crate) code: &'static str,
    pub(crate) message: String,
}

impl Operation {
    const fn row(self) -> Row {
        match self {
            Self::Refund => keyed("refund", "refund_lookup", "re"),
            Self::ReverseRefund => keyed("reverse_refund", "reverse_refund_lookup", "rev"),
            Self::Authorization => keyed("authorization", "authorization_lookup", "auth"),
            Self::Void => keyed("void", "void_lookup", "void"),
            Self::Capture => keyed("capture", "capture_lookup", "cap"),
            Self::Message => keyed("message", "message_lookup", "msg"),
            Self::Ticket => unkeyed("ticket", "ticket_lookup", "tkt"),
            Self::Reservation => keyed("reservation", "reservation_lookup", "res"),
            Self::Release => keyed("release", "release_lookup", "rel"),
            Self::Shipment => keyed("shipment", "shipment_lookup", "shp"),
            Self::CancelShipment => keyed("cancel_shipment", "cancel_shipment_lookup", "csh"),
            Self::Booking => keyed("booking", "booking_lookup", "bk"),
            Self::Cancellation => keyed("cancellation", "cancellation_lookup", "can"),
            Self::Model => unkeyed("model", "model_lookup", "gen"),
        }
    }

    /// The name in counters and in the log.
    pub(crate) const fn as_str(self) -> &'static str {
        self.row().name
    }

    /// The name under which questions about its objects are counted.
    pub(crate) const fn lookup_name(self) -> &'static str {
        self.row().lookup_name
    }

    pub(crate) const fn id_prefix(self) -> &'static str {
        self.row().id_prefix
    }

    /// Whether the idempotency key is honoured.
    pub(crate) const fn honours_keys(self) -> bool {
        self.row().honours_keys
    }

    /// Whether its business object is an order, so that it can be asked for by that.
    pub(crate) const fn is_about_an_order(self) -> bool {
        matches!(self, Self::Refund | Self::Authorization | Self::Shipment)
    }
}

const fn keyed(name: &'static str, lookup_name: &'static str, id_prefix: &'static str) -> Row {
    Row { name, lookup_name, id_prefix, honours_keys: true }
}

/// A ticket tracker has no keys, and a model answers anew each time.
const fn unkeyed(name: &'static str, lookup_name: &'static str, id_prefix: &'static str) -> Row {
    Row { name, lookup_name, id_prefix, honours_keys: false }
}
