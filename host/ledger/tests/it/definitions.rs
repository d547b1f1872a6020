//! Pinned definitions and registered components.

use twice_core::time::Timestamp;
use twice_ledger::ModuleRow;

use crate::support::{all, name};

#[tokio::test]
async fn a_definition_is_stored_once() {
    for backend in all().await {
        assert_eq!(backend.ledger.definition("sha256:a").await.unwrap(), None);
        backend.ledger.put_definition("sha256:a", "first").await.unwrap();
        backend.ledger.put_definition("sha256:a", "second").await.unwrap();
        let text = backend.ledger.definition("sha256:a").await.unwrap();
        assert_eq!(text.as_deref(), Some("first"), "{}", backend.name);
    }
}

#[tokio::test]
async fn the_newest_registration_of_a_name_is_the_current_one() {
    for backend in all().await {
        let refund = name("refund");
        assert_eq!(backend.ledger.module(&refund).await.unwrap(), None);
        assert_eq!(backend.ledger.module_bytes("sha256:a").await.unwrap(), None);
        let row = |digest: &str, bytes, at| ModuleRow {
            name: refund.clone(),
            digest: digest.to_owned(),
            bytes,
            added_at: Timestamp(at),
        };
        for (digest, bytes, at, current) in [
            ("sha256:a", &b"aa"[..], 1, row("sha256:a", 2, 1)),
            ("sha256:a", b"aa", 2, row("sha256:a", 2, 1)),
            ("sha256:b", b"bbb", 3, row("sha256:b", 3, 3)),
            // Back to an older one: a registration of its own.
            ("sha256:a", b"aa", 4, row("sha256:a", 2, 4)),
        ] {
            backend.ledger.put_module(&refund, digest, bytes, Timestamp(at)).await.unwrap();
            let found = backend.ledger.module(&refund).await.unwrap();
            assert_eq!(found, Some(current), "{} at {at}", backend.name);
        }
        let other = name("a-node");
        backend.ledger.put_module(&other, "sha256:b", b"bbb", Timestamp(5)).await.unwrap();
        let modules = backend.ledger.modules().await.unwrap();
        let names: Vec<_> = modules.iter().map(|module| module.name.as_str()).collect();
        assert_eq!(names, ["a-node", "refund"], "{}", backend.name);
        let bytes = backend.ledger.module_bytes("sha256:b").await.unwrap();
        assert_eq!(bytes.as_deref(), Some(&b"bbb"[..]));
    }
}
