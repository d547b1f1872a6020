//! Measures what a call costs: a fresh instance, `run`, one request that is answered at once.
//!
//! `cargo run --release -p twice-sandbox --example call_cost`

use std::path::Path;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use twice_sandbox::{
    CallLimits, EffectAnswer, EffectRequest, Ended, Host, LogLevel, Position, Sandbox,
    SandboxConfig, Suspend,
};

const CALLS: u32 = 10_000;

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
        Position { run: "run_1".to_owned(), node: "refund".to_owned(), visit: 1, attempt: 1 }
    }

    fn now_ms(&mut self) -> u64 {
        0
    }

    fn random(&mut self, count: usize) -> Vec<u8> {
        vec![0; count]
    }

    fn log(&mut self, _: LogLevel, _: &str) {}
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let node = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../nodes/refund");
    let built = twice_toolchain::build(&node, &mut |line| eprintln!("{line}"))?;
    let sandbox = Sandbox::new(&SandboxConfig::default())?;
    let component = sandbox.load(&built.component)?;
    let inspection = component.inspection();
    println!("{} bytes, compiled in {:?}", inspection.bytes, inspection.compiled_in);

    let input =
        r#"{"input":{"order_id":"order-42","amount_cents":4200,"paid_cents":4200},"nodes":{}}"#;
    let limits = CallLimits {
        memory_bytes: 64 << 20,
        time: Duration::from_secs(5),
        effects: 10,
        payload_bytes: 1 << 20,
        log_bytes: 64 << 10,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    runtime.block_on(async {
        let mut host: Box<dyn Host> = Box::new(Instantly);
        let begun = Instant::now();
        for _ in 0..CALLS {
            let ended;
            (ended, host) = sandbox.run(&component, input, limits.clone(), host).await;
            assert!(matches!(ended, Ended::Returned(_)), "{ended:?}");
        }
        println!("{CALLS} calls, {:?} each", begun.elapsed() / CALLS);
    });
    Ok(())
}
