//! A call of a node by itself: a fresh instance of the refund node, whose one request is answered at once.

use std::time::{Duration, Instant};

use anyhow::ensure;
use async_trait::async_trait;
use serde::Serialize;
use twice_sandbox::{
    CallLimits, EffectAnswer, EffectRequest, Ended, Host, LogLevel, Position, Sandbox,
    SandboxConfig, Suspend,
};

use super::percentile;
use crate::nodes;

/// What a call costs.
#[derive(Debug, Serialize)]
pub struct CallCost {
    /// How many were made.
    pub calls: u32,
    /// The middle one. Microseconds.
    pub median_us: f64,
    /// What 99 of 100 stay below. Microseconds.
    pub p99_us: f64,
}

struct Instantly;

#[async_trait]
impl Host for Instantly {
    async fn request(
        &mut self,
        requests: Vec<EffectRequest>,
    ) -> Result<Vec<EffectAnswer>, Suspend> {
        let answer = |_| EffectAnswer::Receipt {
            effect_id: "eff_1".to_owned(),
            body: r#"{"id":"re_1","status":"succeeded"}"#.to_owned(),
        };
        Ok(requests.into_iter().map(answer).collect())
    }

    fn refused(&mut self, _: &str, _: &'static str, _: &str) {}

    fn position(&self) -> Position {
        Position { run: "run-1".to_owned(), node: "refund".to_owned(), visit: 1, attempt: 1 }
    }

    fn now_ms(&mut self) -> u64 {
        0
    }

    fn random(&mut self, count: usize) -> Vec<u8> {
        vec![0; count]
    }

    fn log(&mut self, _: LogLevel, _: &str) {}
}

pub(super) async fn measure(calls: u32) -> anyhow::Result<CallCost> {
    let sandbox = Sandbox::new(&SandboxConfig::default())?;
    let component = sandbox.load(&nodes::component("refund"))?;
    let input =
        r#"{"input":{"order_id":"order-42","amount_cents":4200,"paid_cents":4200},"nodes":{}}"#;
    let limits = CallLimits {
        memory_bytes: 64 << 20,
        time: Duration::from_secs(5),
        effects: 10,
        payload_bytes: 1 << 20,
        log_bytes: 64 << 10,
    };
    let mut host: Box<dyn Host> = Box::new(Instantly);
    let mut took = Vec::with_capacity(calls as usize);
    // The first tenth warms up.
    for call in 0..calls + calls / 10 {
        let begun = Instant::now();
        let ended;
        (ended, host) = sandbox.run(&component, input, limits.clone(), host).await;
        let elapsed = begun.elapsed();
        ensure!(matches!(ended, Ended::Returned(_)), "the refund node did not return: {ended:?}");
        if call >= calls / 10 {
            took.push(elapsed.as_secs_f64() * 1e6);
        }
    }
    took.sort_by(f64::total_cmp);
    Ok(CallCost { calls, median_us: percentile(&took, 50), p99_us: percentile(&took, 99) })
}
