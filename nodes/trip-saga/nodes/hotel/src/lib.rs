//! Books the hotel of a trip.

use serde::{Deserialize, Serialize};
use twice_node::{NodeError, State, effects};

#[derive(Deserialize)]
struct Trip {
    trip_id: String,
    hotel: Hotel,
}

#[derive(Deserialize)]
struct Hotel {
    city: String,
    nights: u32,
}

#[derive(Serialize)]
struct BookArgs {
    trip_id: String,
    details: String,
}

/// What the tool lets a node see of the hotel's booking.
#[derive(Deserialize)]
struct Booking {
    id: String,
}

#[derive(Serialize)]
struct Output {
    booking_id: String,
}

fn book(state: State<Trip>) -> Result<Output, NodeError> {
    let Trip { trip_id, hotel } = state.input;
    let Hotel { city, nights } = hotel;
    let details = format!("{city}, nights: {nights}");
    let receipt = effects::request::<Booking>("book", &BookArgs { trip_id, details })?;
    Ok(Output { booking_id: receipt.body.id })
}

twice_node::node!(book);
