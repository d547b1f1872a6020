//! When runs were taken over, by the database's own clock and by nobody's word.

use twice_test_postgres::Database;

/// Notes each claim of a run under whose lease another worker had it.
const NOTE: &str = "
CREATE TABLE takeover (run_id TEXT, worker TEXT, lease_until BIGINT, claimed_at BIGINT);
CREATE FUNCTION note_takeover() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    INSERT INTO public.takeover
    VALUES (OLD.id, OLD.worker, OLD.lease_until, (SELECT now_ms FROM public.clock));
    RETURN NULL;
END $$;
CREATE TRIGGER note_takeover AFTER UPDATE ON run FOR EACH ROW
    WHEN (OLD.state = 'running' AND NEW.state = 'running' AND NEW.fence > OLD.fence)
    EXECUTE FUNCTION note_takeover();";

/// A run that was taken over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Takeover {
    /// Which.
    pub run: String,
    /// From whom.
    pub from: String,
    /// When the lease had ended. Milliseconds, by the database's clock.
    pub lease_until: i64,
    /// When another worker took the run, by the same clock.
    pub claimed_at: i64,
}

impl Takeover {
    /// For how long nobody had the run.
    #[must_use]
    pub const fn late_ms(&self) -> i64 {
        self.claimed_at - self.lease_until
    }
}

/// Times at which no worker could have taken anything, as there was no server.
#[derive(Debug, Default)]
pub struct Outages(Vec<(i64, i64)>);

impl Outages {
    /// There was none from then to then.
    pub fn add(&mut self, from: i64, until: i64) {
        self.0.push((from, until));
    }

    /// Whether a run could have been taken over as soon as its lease was over.
    #[must_use]
    pub fn spare(&self, takeover: &Takeover) -> bool {
        self.0
            .iter()
            .all(|(from, until)| takeover.claimed_at < *from || takeover.lease_until > *until)
    }
}

/// The notes of a database with a ledger.
pub struct Takeovers<'d>(&'d Database<'d>);

impl<'d> Takeovers<'d> {
    /// Begins to take notes.
    ///
    /// # Panics
    /// When the database does not let it; as everything here.
    #[must_use]
    pub fn note(database: &'d Database<'d>) -> Self {
        database.sql(NOTE).expect("a trigger can be added");
        Self(database)
    }

    /// What the database's clock shows.
    #[must_use]
    pub fn now_ms(&self) -> i64 {
        let now = self.0.sql("SELECT now_ms FROM clock").expect("the clock can be read");
        now.parse().expect("it is a number")
    }

    /// How many runs a worker holds, by what its ids begin with, whether under a live lease or not.
    #[must_use]
    pub fn held_by(&self, prefix: &str) -> usize {
        let held =
            format!("SELECT COUNT(*) FROM run WHERE state = 'running' AND worker LIKE '{prefix}%'");
        self.0.sql(&held).expect("runs can be counted").parse().expect("it is a number")
    }

    /// How many runs were taken over from a worker.
    ///
    /// # Panics
    /// As [`Takeovers::note`].
    #[must_use]
    pub fn from(&self, prefix: &str) -> usize {
        let taken = format!("SELECT COUNT(*) FROM takeover WHERE worker LIKE '{prefix}%'");
        self.0.sql(&taken).expect("the notes can be read").parse().expect("it is a number")
    }

    /// All of them.
    #[must_use]
    pub fn all(&self) -> Vec<Takeover> {
        let told = self.0.sql(
            "SELECT run_id, worker, lease_until, claimed_at FROM takeover ORDER BY claimed_at",
        );
        let told = told.expect("the notes can be read");
        let read = |line: &str| {
            let fields: Vec<&str> = line.split('|').collect();
            Takeover {
                run: fields[0].to_owned(),
                from: fields[1].to_owned(),
                lease_until: fields[2].parse().expect("it is a number"),
                claimed_at: fields[3].parse().expect("it is a number"),
            }
        };
        told.lines().map(read).collect()
    }
}
