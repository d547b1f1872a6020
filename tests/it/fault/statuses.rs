//! One row per line of the table of status codes. The verdicts are those of an operation that declares nothing beyond
//! the general table.

use twice_core::outcome::{Body, Verdict};
use twice_tests::fault::{Authority, Script, Step, reply};

use super::support::{End, Row, TRANSPORTS, check, exchange_with, operation, run};

const BODY: &str = "{\"id\":\"re_1\",\"error\":{\"code\":\"some_code\"}}";

/// Status, and the verdict on it.
const STATUSES: [(u16, Verdict); 60] = {
    use Verdict::{
        AcceptedPending as Pending, Indeterminate as Unsure, NotProcessed as Unprocessed, Rejected,
        Succeeded,
    };
    [
        (200, Succeeded),
        (201, Succeeded),
        (202, Pending),
        (203, Unsure),
        (204, Unsure),
        (205, Unsure),
        (206, Unsure),
        (207, Unsure),
        (226, Unsure),
        (300, Unsure),
        (301, Unsure),
        (302, Unsure),
        (303, Unsure),
        (304, Unsure),
        (307, Unsure),
        (308, Unsure),
        (400, Unsure),
        (401, Rejected),
        (402, Rejected),
        (403, Rejected),
        (404, Rejected),
        (405, Rejected),
        (406, Rejected),
        (407, Unsure),
        (408, Unsure),
        (409, Unsure),
        (410, Rejected),
        (411, Rejected),
        (412, Rejected),
        (413, Rejected),
        (414, Rejected),
        (415, Rejected),
        (416, Unsure),
        (417, Unsure),
        (418, Unsure),
        (421, Unprocessed),
        (422, Rejected),
        (423, Unprocessed),
        (424, Unprocessed),
        (425, Unprocessed),
        (426, Unsure),
        (428, Rejected),
        (429, Unsure),
        (431, Rejected),
        (451, Unsure),
        (499, Unsure),
        (500, Unsure),
        (501, Rejected),
        (502, Unsure),
        (503, Unsure),
        (504, Unsure),
        (505, Unsure),
        (507, Unsure),
        (508, Unsure),
        (511, Unsure),
        (520, Unsure),
        (521, Unsure),
        (524, Unsure),
        (526, Unsure),
        (599, Unsure),
    ]
};

#[test]
fn every_status_arrives_as_it_is_and_once() {
    for (status, verdict) in STATUSES {
        let script = vec![Step::ReadRequest, reply(status, &[], BODY)];
        check(&Row::new("status", script, End::Status(status), verdict), &operation());
    }
}

fn interim(text: &str) -> Step {
    Step::Write(format!("HTTP/1.1 {text}\r\n\r\n").into_bytes())
}

#[test]
fn interim_answers_are_not_the_answer() {
    let created = reply(201, &[], BODY);
    let rows = [
        ("continue", vec![Step::ReadRequest, interim("100 Continue"), created.clone()]),
        ("early hints", vec![Step::ReadRequest, interim("103 Early Hints\r\nlink: </x>"), created]),
    ];
    for (name, script) in rows {
        check(&Row::new(name, script, End::Status(201), Verdict::Succeeded), &operation());
    }
    let script = vec![Step::ReadRequest, interim("101 Switching Protocols\r\nupgrade: x")];
    let row =
        Row::new("an upgrade not asked for", script, End::Status(101), Verdict::Indeterminate);
    check(&row, &operation());
}

/// Following would send the request, or a changed one, to a place that nobody authorized.
#[test]
fn redirects_are_not_followed() {
    let ca = Authority::new();
    for status in [301, 302, 303, 307, 308] {
        for transport in TRANSPORTS {
            let headers = [("location", "/elsewhere"), ("connection", "close")];
            let script: Script = vec![Step::ReadRequest, reply(status, &headers, "")];
            let tls = ca.server("localhost");
            let (exchange, seen) = run(exchange_with(transport, &ca, tls, operation(), script));
            let answer = exchange.result.unwrap();
            assert_eq!((answer.status, answer.body), (status, Body::Empty));
            assert!(answer.headers.contains(&("location".to_owned(), "/elsewhere".to_owned())));
            assert_eq!((seen.connections, seen.requests.len()), (1, 1), "{status} {transport:?}");
        }
    }
}
