//! Every boundary at which a worker can vanish, and every gate at which it can be frozen, each time that any of a run's workers
//! passes it, on the way forward and on the way back of every saga: then others go on with the run, and it is resumed once more.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;
use twice::engine::boundary::Boundary;
use twice_core::ids::RunId;
use twice_core::run::RunState;

use super::provider::{Mood, Trouble};
use super::saga_schedules::Theatres;
use super::sagas::{Saga, no_use};
use super::{Came, Gate, Place, Plan, Task, Theatre, World, run_ids};
use crate::host::{LEASE_MS, Store};
use crate::invariants::{Broken, Ended, holds};
use crate::tools::Class;

/// A run that is undone, and what it meets.
#[derive(Debug, Clone)]
pub(super) struct Scene {
    pub(super) name: &'static str,
    pub(super) saga: Saga,
    pub(super) class: Class,
    pub(super) back: Class,
    /// What goes wrong with the first refunds.
    forth: Vec<Trouble>,
    /// What goes wrong with the first reversals.
    undoing: Vec<Trouble>,
    /// Whether it is cancelled when it waits for a person.
    is_cancelled: bool,
    /// How it ends.
    ends: &'static [RunState],
}

const UNDONE: &[RunState] = &[RunState::Failed];
const HELD: &[RunState] = &[RunState::Halted];
const STUCK: &[RunState] = &[RunState::Stuck];
/// How often a play is tried whose mishap did not happen.
const PLAYS_MAX: u32 = 4;
/// How many passings of one worker are tried, besides the last.
const PASSINGS: u32 = 2;
/// What cannot be asked about again is held wherever its worker vanished amid it.
const UNDONE_OR_HELD: &[RunState] = &[RunState::Failed, RunState::Halted];
/// Which of two branches is refused depends on which comes first.
const ANY: &[RunState] = &[RunState::Failed, RunState::Stuck];

/// Every scene.
pub(super) fn scenes() -> Vec<Scene> {
    use Class::{Key, KeyLookup, Lagging, Lookup, Neither};
    let lost = Trouble::CommitThenDrop;
    let (unsent, no) = (Trouble::DropBeforeCommit, Trouble::Decline);
    let scene = |name, saga, (class, back), forth: &[Trouble], undoing: &[Trouble], ends| Scene {
        name,
        saga,
        class,
        back,
        forth: forth.to_vec(),
        undoing: undoing.to_vec(),
        is_cancelled: false,
        ends,
    };
    let cancelled = |scene: Scene| Scene { is_cancelled: true, ..scene };
    let late = Trouble::CommitLate;
    vec![
        scene("a chain", Saga::Chain, (KeyLookup, KeyLookup), &[], &[], UNDONE),
        scene("a chain by keys, answers lost", Saga::Chain, (Key, Key), &[lost], &[lost], UNDONE),
        scene(
            "a chain by lookups, answers lost",
            Saga::Chain,
            (Lookup, Lookup),
            &[lost],
            &[lost],
            UNDONE,
        ),
        scene(
            "a chain by lookups, requests lost",
            Saga::Chain,
            (Lookup, Lookup),
            &[unsent],
            &[unsent],
            UNDONE,
        ),
        scene(
            "a chain, lookups lag",
            Saga::Chain,
            (Lagging, Lagging),
            &[lost],
            &[lost],
            UNDONE_OR_HELD,
        ),
        scene("a chain, neither", Saga::Chain, (Neither, Neither), &[], &[], UNDONE_OR_HELD),
        scene(
            "a chain, neither, an answer back lost",
            Saga::Chain,
            (Key, Neither),
            &[],
            &[lost],
            HELD,
        ),
        scene(
            "a chain, the middle refused once",
            Saga::Chain,
            (KeyLookup, Key),
            &[],
            &[Trouble::TooMany, lost, no],
            UNDONE,
        ),
        scene("a chain, the last refused", Saga::Chain, (Key, KeyLookup), &[], &[no], STUCK),
        scene("branches", Saga::Branches, (KeyLookup, Key), &[], &[], UNDONE),
        scene(
            "branches, answers lost",
            Saga::Branches,
            (Lookup, Key),
            &[lost],
            &[lost, lost],
            UNDONE,
        ),
        scene("branches, one refused", Saga::Branches, (Key, Lookup), &[], &[lost, no, no], ANY),
        scene("a fan-out", Saga::FanOut, (Key, Key), &[], &[], UNDONE),
        scene(
            "a fan-out, answers lost",
            Saga::FanOut,
            (KeyLookup, Lookup),
            &[lost],
            &[lost, unsent, lost],
            UNDONE,
        ),
        scene("rounds", Saga::Rounds, (Key, KeyLookup), &[lost], &[lost], UNDONE),
        scene("a release", Saga::Release, (Key, Key), &[lost], &[lost], UNDONE),
        cancelled(scene(
            "a release on suspicion",
            Saga::Release,
            (Neither, Key),
            &[late],
            &[lost],
            HELD,
        )),
        scene("a point of no return", Saga::Pivot, (Key, Key), &[lost, lost], &[], STUCK),
    ]
}

/// What happens to the first worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Mishap {
    /// It vanishes.
    Vanish(Boundary),
    /// It vanishes when a request is recorded, and the next worker there.
    VanishAgain(Boundary),
    /// It is frozen, and wakes up when another has the run and vanished with it.
    Freeze(Gate),
    /// It is frozen, and wakes up when all is over.
    FreezeLonger(Gate),
}

impl Mishap {
    /// Whether it is met only where a slot has a lock, as none here has: undoing takes none.
    const fn needs_lock(self) -> bool {
        matches!(self, Self::Vanish(Boundary::AfterLock) | Self::VanishAgain(Boundary::AfterLock))
    }
}

impl fmt::Display for Mishap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Vanish(boundary) => f.write_str(boundary.as_str()),
            Self::VanishAgain(boundary) => write!(f, "again-{}", boundary.as_str()),
            Self::Freeze(gate) => write!(f, "frozen-{gate:?}"),
            Self::FreezeLonger(gate) => write!(f, "frozen-longer-{gate:?}"),
        }
    }
}

impl Mishap {
    fn all() -> impl Iterator<Item = Self> {
        let vanish = Boundary::ALL.into_iter().filter(|at| *at != Boundary::BeforeUnknown);
        let vanish = vanish.map(Self::Vanish);
        // That a worker vanished is found by another, which may vanish before it says so.
        let vanish = vanish.chain([Self::VanishAgain(Boundary::BeforeUnknown)]);
        let freeze =
            Gate::ALL.into_iter().flat_map(|gate| [Self::Freeze(gate), Self::FreezeLonger(gate)]);
        vanish.chain(freeze)
    }

    /// Where it happens.
    fn place(self) -> Place {
        match self {
            Self::Vanish(boundary) => Place::Boundary(boundary),
            Self::VanishAgain(_) => Place::Boundary(Boundary::AfterRequestedCommit),
            Self::Freeze(gate) | Self::FreezeLonger(gate) => Place::Gate(gate),
        }
    }

    fn plan(self, nth: u32) -> Plan {
        match self {
            Self::Vanish(boundary) => Plan { vanish: Some((boundary, nth)), ..Plan::default() },
            Self::VanishAgain(_) => Self::Vanish(Boundary::AfterRequestedCommit).plan(nth),
            Self::Freeze(gate) | Self::FreezeLonger(gate) => {
                Plan { freeze: Some((gate, nth)), ..Plan::default() }
            }
        }
    }
}

impl Scene {
    pub(super) fn input(&self) -> Value {
        self.saga.input(0, |step| vec![step], Some(no_use()))
    }

    pub(super) fn mood(&self) -> Mood {
        Mood {
            script: self.forth.iter().copied().collect(),
            back: self.undoing.iter().copied().collect(),
            ..Mood::default()
        }
    }

    /// Whether it ended as it must.
    pub(super) fn check(&self, at: &str, ended: &[Ended]) -> Result<(), Broken> {
        ended.iter().try_for_each(|ended| {
            let record = &ended.record;
            holds(self.ends.contains(&record.state), "I11", at, || {
                format!("it is {}: {:?}", record.state, record.reason)
            })
        })
    }

    /// Lets the run go on with workers to which nothing happens, until it has ended or waits for a person.
    pub(super) async fn finish(
        &self,
        at: &str,
        world: &World<'_>,
        run: &RunId,
    ) -> Result<(), Broken> {
        let input = self.input();
        world.finish(at, run, &input).await?;
        self.heed(world, run).await;
        world.finish(at, run, &input).await.map(drop)
    }

    /// It is cancelled, once it waits for a person, if it is to be.
    async fn heed(&self, world: &World<'_>, run: &RunId) {
        let record = world.ledger().run(run).await.expect("the ledger can be read");
        let waits = record.is_some_and(|run| run.state == RunState::Halted && run.cancel.is_none());
        if self.is_cancelled && waits {
            world.cancel(run).await;
        }
    }

    /// How often each of its workers comes to each place when nothing happens to them.
    async fn calm(&self, at: &str, theatre: &Theatre) -> Result<Vec<BTreeMap<Place, u32>>, Broken> {
        let world = theatre.world(Store::Memory, self.mood()).await;
        let runs = run_ids(1);
        self.finish(at, &world, &runs[0]).await?;
        let passed = world.passed();
        self.check(at, &world.check(at, &runs).await?)?;
        Ok(passed)
    }

    /// Plays it with that mishap of the worker of that number, from 0. Which of several answers comes first is for the sockets to
    /// say, and now and then a worker comes to a place one time less than when it was counted: then it is played anew.
    async fn play(
        &self,
        at: &str,
        theatre: &Theatre,
        mishap: Mishap,
        place: (usize, u32),
    ) -> Result<(), Broken> {
        for _ in 0..PLAYS_MAX {
            if self.play_once(at, theatre, mishap, place).await? {
                return Ok(());
            }
        }
        panic!("{at}: what happened to nobody before happens to nobody now")
    }

    /// Tells whether the mishap happened.
    async fn play_once(
        &self,
        at: &str,
        theatre: &Theatre,
        mishap: Mishap,
        (worker, nth): (usize, u32),
    ) -> Result<bool, Broken> {
        let world = theatre.world(Store::Memory, self.mood()).await;
        let runs = run_ids(1);
        let run = &runs[0];
        if !self.go_on_until(at, &world, run, worker, mishap.plan(nth)).await? {
            return Ok(false);
        }
        let another = match mishap {
            Mishap::Freeze(_) => Some(Boundary::AfterReply),
            Mishap::VanishAgain(boundary) => Some(boundary),
            Mishap::Vanish(_) | Mishap::FreezeLonger(_) => None,
        };
        if let Some(boundary) = another {
            world.clock().advance(LEASE_MS + 1);
            let plan = Mishap::Vanish(boundary).plan(1);
            world.work(at, Task::Resume(run.clone()), plan).await?;
            world.thaw_all(at).await?;
        }
        self.finish(at, &world, run).await?;
        world.thaw_all(at).await?;
        self.finish(at, &world, run).await?;
        self.check(at, &world.check(at, &runs).await?)?;
        Ok(true)
    }

    /// Goes on with a run until that happens to the worker of that number which is planned for it. Tells whether it did.
    async fn go_on_until(
        &self,
        at: &str,
        world: &World<'_>,
        run: &RunId,
        worker: usize,
        plan: Plan,
    ) -> Result<bool, Broken> {
        let mut task = Task::Start(run.clone(), self.input());
        for number in 0..=worker {
            let plan = if number == worker { plan } else { Plan::default() };
            match world.work(at, task, plan).await? {
                Came::Vanished | Came::Frozen => return Ok(true),
                Came::Ended(_) => {}
                Came::GaveUp(error) => panic!("{at}: the store does not fail: {error}"),
            }
            if world.due(run).await.is_none() {
                self.heed(world, run).await;
            }
            let Some(until) = world.due(run).await else { break };
            world.advance_to(until);
            task = Task::Resume(run.clone());
        }
        Ok(false)
    }
}

/// How much a sweep covered.
#[derive(Debug, Default)]
pub struct Size {
    scenes: usize,
    played: usize,
    /// How often each mishap was met, and how often at most in one scene.
    met: BTreeMap<Mishap, (usize, usize)>,
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "crash sweep: {} sagas, {} plays", self.scenes, self.played)?;
        for (mishap, (count, most)) in &self.met {
            writeln!(f, "  {mishap}: {count} plays, {most} of one scene")?;
        }
        Ok(())
    }
}

/// Sweeps.
///
/// # Errors
/// [`Broken`], for the first invariant that does not hold; a mishap that no scene meets is an error too.
///
/// # Panics
/// When something cannot be set up.
pub async fn sweep() -> Result<Size, Broken> {
    let (mut size, mut theatres) = (Size::default(), Theatres::default());
    let mut calm = Vec::new();
    for scene in scenes() {
        let theatre = theatres.of(scene.saga, scene.class, scene.back);
        let at = format!("boundary=none, {}", scene.name);
        calm.push((scene.calm(&at, theatre).await?, scene));
    }
    for (workers, scene) in calm {
        size.scenes += 1;
        let theatre = theatres.of(scene.saga, scene.class, scene.back);
        for mishap in Mishap::all() {
            let mut met = 0;
            for (worker, passed) in workers.iter().enumerate() {
                let times = passed.get(&mishap.place()).copied().unwrap_or(0);
                for nth in (1..=times).filter(|nth| *nth <= PASSINGS || *nth == times) {
                    let at = format!("boundary={mishap}:{worker}.{nth}, {}", scene.name);
                    scene.play(&at, theatre, mishap, (worker, nth)).await?;
                    met += 1;
                }
            }
            size.played += met;
            if met > 0 {
                let (count, most) = size.met.entry(mishap).or_default();
                *count += met;
                *most = met.max(*most);
            }
        }
    }
    let never: Vec<String> = Mishap::all()
        .filter(|m| !m.needs_lock() && !size.met.contains_key(m))
        .map(|m| m.to_string())
        .collect();
    holds(never.is_empty(), "I4", "boundary=all", || format!("no scene meets {never:?}"))?;
    Ok(size)
}
