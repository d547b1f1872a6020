//! Taking the next run of a turn.

use twice_core::ids::{Name, RunId};
use twice_core::time::Timestamp;

use crate::batch::{Batch, Refused};
use crate::dialect::Held;
use crate::rows::{self, Place};
use crate::value::Cell;
use crate::{ClaimBy, ClaimOutcome, Turn, sql};

impl Batch<'_> {
    /// Takes the next run of a turn. What another transaction holds is passed over: whoever holds it is about to change it.
    pub(crate) async fn claim_next(
        &mut self,
        by: &ClaimBy,
        turn: &Turn,
        at: Timestamp,
    ) -> Result<ClaimOutcome, Refused> {
        self.flush().await?;
        for place in self.places(turn).await? {
            while let Some(run) = self.due_at(&place).await? {
                match self.record(&run).await {
                    Ok(Some((record, head))) => return self.claim(by, record, head, at).await,
                    Ok(None) => {
                        self.damaged.insert(run);
                    }
                    Err(Refused::Alone(error)) => {
                        tracing::error!(%run, %error, "a run that is due cannot be read and is passed over");
                        self.damaged.insert(run);
                    }
                    Err(lost @ Refused::Database(_)) => return Err(lost),
                }
            }
        }
        Ok(ClaimOutcome::Nothing)
    }

    /// Where runs are due, in the order of the turn.
    async fn places(&mut self, turn: &Turn) -> Result<Vec<Place>, Refused> {
        let rows = self.connection.fetch(sql::PLACES_DUE, vec![self.clock.into()]).await?;
        let mut places = rows.into_iter().map(rows::place).collect::<Result<Vec<_>, _>>()?;
        places.retain(|place| !turn.not.contains(&place.workflow));
        let had_its_turn = |name: &Name| turn.after.as_ref().is_some_and(|after| name <= after);
        places.sort_by_key(|place| {
            let round = (had_its_turn(&place.workflow), place.workflow.clone());
            (std::cmp::Reverse(place.priority), round)
        });
        Ok(places)
    }

    /// The run there that has been due longest, locked.
    async fn due_at(&mut self, place: &Place) -> Result<Option<RunId>, sqlx::Error> {
        let wanted = self.damaged.len() as i64 + 1;
        let args = vec![
            self.clock.into(),
            place.workflow.as_str().into(),
            place.priority.get().into(),
            wanted.into(),
        ];
        let rows = self.connection.fetch_locked(sql::RUNS_DUE, args, Held::Skip).await?;
        let mut ids = rows.into_iter().filter_map(|row| match row.into_iter().next() {
            Some(Cell::Text(id)) => RunId::parse(id).ok(),
            Some(Cell::Null | Cell::Int(_) | Cell::Blob(_) | Cell::Foreign(_)) | None => None,
        });
        Ok(ids.find(|id| !self.damaged.contains(id)))
    }
}
