//! Books the flight of a trip.

use serde::{Deserialize, Serialize};
use twice_node::{NodeError, State, effects};

#[derive(Deserialize)]
struct Trip {
    trip_id: String,
    flight: Flight,
}

#[derive(Deserialize)]
struct Flight {
    from: String,
    to: String,
    date: String,
}

#[derive(Serialize)]
struct BookArgs {
    trip_id: String,
    details: String,
}

/// What the tool lets a node see of the airline's booking.
#[derive(Deserialize)]
struct Booking {
    id: String,
}

#[derive(Serialize)]
struct Output {
    booking_id: String,
}

fn book(state: State<Trip>) -> Result<Output, NodeError> {
    let Trip { trip_id, flight } = state.input;
    let Flight { from, to, date } = flight;
    let details = format!("{from} to {to} on {date}");
    let receipt = effects::request::<Booking>("book", &BookArgs { trip_id, details })?;
    Ok(Output { booking_id: receipt.body.id })
}

twice_node::node!(book);
