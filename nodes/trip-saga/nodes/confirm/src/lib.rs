//! Tells the traveller that all three are booked.

use serde::{Deserialize, Serialize};
use twice_node::{NodeError, State, effects};

#[derive(Deserialize)]
struct Trip {
    trip_id: String,
    traveller_email: String,
}

/// The outputs of earlier nodes that this one reads: one field per node, named as in the workflow.
#[derive(Deserialize)]
struct Nodes {
    flight: Booked,
    hotel: Booked,
    car: Booked,
}

#[derive(Deserialize)]
struct Booked {
    booking_id: String,
}

#[derive(Serialize)]
struct Message {
    to: String,
    subject: String,
    text: String,
}

/// What the tool lets a node see of the mail service's message.
#[derive(Deserialize)]
struct Sent {
    id: String,
}

#[derive(Serialize)]
struct Output {
    message_id: String,
}

fn confirm(state: State<Trip, Nodes>) -> Result<Output, NodeError> {
    let Trip { trip_id, traveller_email } = state.input;
    let Nodes { flight, hotel, car } = state.nodes;
    let [flight, hotel, car] = [flight, hotel, car].map(|booked| booked.booking_id);
    let message = Message {
        to: traveller_email,
        subject: format!("Your trip {trip_id} is booked"),
        text: format!("Flight: {flight}. Hotel: {hotel}. Car: {car}. Have a good trip."),
    };
    let receipt = effects::request::<Sent>("confirm", &message)?;
    Ok(Output { message_id: receipt.body.id })
}

twice_node::node!(confirm);
