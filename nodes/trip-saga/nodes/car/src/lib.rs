//! Books the car of a trip.

use serde::{Deserialize, Serialize};
use twice_node::{NodeError, State, effects};

#[derive(Deserialize)]
struct Trip {
    trip_id: String,
    car: Car,
}

#[derive(Deserialize)]
struct Car {
    class: String,
    days: u32,
}

#[derive(Serialize)]
struct BookArgs {
    trip_id: String,
    details: String,
}

/// What the tool lets a node see of the car rental's booking.
#[derive(Deserialize)]
struct Booking {
    id: String,
}

#[derive(Serialize)]
struct Output {
    booking_id: String,
}

fn book(state: State<Trip>) -> Result<Output, NodeError> {
    let Trip { trip_id, car } = state.input;
    let Car { class, days } = car;
    let details = format!("{class}, days: {days}");
    let receipt = effects::request::<Booking>("book", &BookArgs { trip_id, details })?;
    Ok(Output { booking_id: receipt.body.id })
}

twice_node::node!(book);
