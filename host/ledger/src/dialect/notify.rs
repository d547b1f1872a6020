//! What Postgres tells of other processes: a run may have become claimable. Whatever goes wrong here costs a worker the time
//! until it looks for itself, so it is logged and tried again, for as long as the ledger is open.

use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgListener, PgPool, PgPoolOptions};
use tokio::sync::watch;

/// The channel; `COMMIT_DUE` tells it.
const CHANNEL: &str = "twice_due";
/// The pause before a lost connection is made anew.
const PAUSE: Duration = Duration::from_secs(1);

/// Passes notices on until `running` is closed.
pub(super) async fn listen(
    options: PgConnectOptions,
    notice: watch::Sender<()>,
    mut running: watch::Receiver<()>,
) {
    let pool =
        PgPoolOptions::new().min_connections(0).max_connections(1).connect_lazy_with(options);
    loop {
        tokio::select! {
            heard = hear(&pool, &notice) => if let Err(error) = heard {
                tracing::warn!(%error, "notices of other workers are not heard; trying again");
            },
            _ = running.changed() => break,
        }
        tokio::select! {
            () = tokio::time::sleep(PAUSE) => {}
            _ = running.changed() => break,
        }
    }
    pool.close().await;
}

/// Passes notices on until the connection is lost.
async fn hear(pool: &PgPool, notice: &watch::Sender<()>) -> Result<(), sqlx::Error> {
    let mut listener = PgListener::connect_with(pool).await?;
    listener.listen(CHANNEL).await?;
    // What was told before nobody heard.
    notice.send_replace(());
    while listener.try_recv().await?.is_some() {
        notice.send_replace(());
    }
    Ok(())
}
