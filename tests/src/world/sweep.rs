//! Every write of the ledger, the first and the second of its kind, under every scene here, in every way in which a store
//! can fail, on every store: then the run is resumed, finishes, and is resumed again.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde_json::{Value, json};
use twice::engine::boundary::Boundary;
use twice_core::ids::RunId;

use super::crashes;
use super::provider::{Mood, Trouble};
use super::shapes::Shape;
use super::{Came, Plan, Task, Theatre, World, run_ids};
use crate::families;
use crate::host::{LEASE_MS, Store, steps};
use crate::invariants::{Broken, holds};
use crate::store::{Kind, Point, StoreFault};
use crate::tools::{Class, WINDOWS, Windows, later, until_attempt};

/// Stores that are swept.
const STORES: [Store; 2] = [Store::Memory, Store::Sqlite];
/// Writes of one kind that are swept.
const OCCURRENCES: u32 = 2;
/// The same of a run that is undone: there and back.
const THERE_AND_BACK: u32 = 10;

/// A run, and what it meets.
struct Scene {
    name: &'static str,
    class: Class,
    trouble: Vec<Trouble>,
    todo: Vec<Value>,
    count: u64,
    /// Another workflow than that of one node.
    shape: Option<Shape>,
    /// A run that starts another, which refunds.
    family: bool,
    /// A run that is undone, in the place of all but the name.
    saga: Option<crashes::Scene>,
}

fn ask(item: u64) -> Value {
    let mut step = request(item);
    step["do"] = json!("request");
    step
}

fn request(item: u64) -> Value {
    let order = format!("order-{item}");
    json!({ "slot": "refund", "item": item, "args": { "order_id": order, "amount_cents": 1_000 } })
}

fn scenes() -> Vec<Scene> {
    let scene = |name, class, trouble: &[Trouble], todo: Vec<Value>, count| Scene {
        name,
        class,
        trouble: trouble.to_vec(),
        todo,
        count,
        shape: None,
        family: false,
        saga: None,
    };
    let shaped = |name, class, trouble: &[Trouble], shape| Scene {
        shape: Some(shape),
        ..scene(name, class, trouble, Vec::new(), 0)
    };
    let family =
        |name, class, trouble| Scene { family: true, ..scene(name, class, trouble, Vec::new(), 1) };
    let two = || vec![ask(0), ask(1)];
    let lost = [Trouble::CommitThenDrop];
    let unsent = [Trouble::DropBeforeCommit];
    let at_once = json!({ "do": "request_all", "requests": [request(0), request(1)] });
    let fatal = json!({ "do": "fatal", "message": "no use" });
    let plain = [
        scene("two refunds", Class::KeyLookup, &[], two(), 2),
        scene("an answer lost", Class::KeyLookup, &lost, two(), 2),
        scene("a key alone, an answer lost", Class::Key, &lost, two(), 2),
        scene("a lookup alone, an answer lost", Class::Lookup, &lost, two(), 2),
        scene("a lookup alone, a request lost", Class::Lookup, &unsent, two(), 2),
        scene("a lookup that lags, an answer lost", Class::Lagging, &lost, two(), 2),
        scene("neither", Class::Neither, &[], two(), 2),
        scene("neither, an answer lost", Class::Neither, &lost, two(), 2),
        scene("at once", Class::Key, &[], vec![at_once], 2),
        scene("a restart", Class::Key, &[], vec![ask(0), until_attempt(2, later()), ask(1)], 2),
        scene("no use", Class::KeyLookup, &[], vec![ask(0), fatal], 1),
        shaped("branches", Class::KeyLookup, &[], Shape::Branches),
        shaped("branches, an answer lost", Class::Lookup, &lost, Shape::Branches),
        shaped("branches, neither", Class::Neither, &lost, Shape::Branches),
        shaped("a loop", Class::Key, &[], Shape::Loop),
        shaped("a loop, an answer lost", Class::Lookup, &lost, Shape::Loop),
        family("a child", Class::Key, &[]),
        family("a child, an answer lost", Class::Lookup, &lost),
        shaped("a fan-out", Class::Key, &[], Shape::FanOut),
        shaped("a fan-out, an answer lost", Class::KeyLookup, &lost, Shape::FanOut),
    ];
    let sagas = crashes::scenes().into_iter().map(|saga| Scene {
        saga: Some(saga.clone()),
        ..scene(saga.name, saga.class, &[], Vec::new(), 0)
    });
    plain.into_iter().chain(sagas).collect()
}

impl Scene {
    fn theatre(&self) -> Theatre {
        if self.family {
            let windows = Windows { horizon: "4h", ..WINDOWS };
            return Theatre::of(&families::one_parcel(self.class, windows));
        }
        if let Some(crashes::Scene { saga, class, back, .. }) = &self.saga {
            return Theatre::of(&saga.setup(*class, *back));
        }
        match self.shape {
            Some(shape) => Theatre::of(&shape.setup(self.class)),
            None => Theatre::new(self.class),
        }
    }

    fn input(&self) -> Value {
        if self.family {
            return families::bundle("order-0", &families::parcel("order-0"));
        }
        if let Some(saga) = &self.saga {
            return saga.input();
        }
        if let Some(shape) = self.shape {
            return shape.input(0, |step| vec![step]).0;
        }
        let orders: Vec<Value> =
            (0..self.count).map(|item| json!({ "order_id": format!("order-{item}") })).collect();
        steps(json!({ "orders": orders }), self.todo.clone())
    }

    /// Plays it with that failure.
    async fn play<'t>(
        &self,
        at: &str,
        theatre: &'t Theatre,
        store: Store,
        fault: Option<StoreFault>,
    ) -> Result<World<'t>, Broken> {
        let script = self.trouble.iter().copied().collect();
        let mood = match &self.saga {
            Some(saga) => saga.mood(),
            None => Mood { script, ..Mood::default() },
        };
        let world = theatre.world(store, mood).await;
        let (runs, input) = (run_ids(1), self.input());
        if let Some(fault) = fault {
            world.fail_at(fault);
        }
        let run = &runs[0];
        let start = Task::Start(run.clone(), input.clone());
        self.go_on(at, &world, start, fault).await?;
        self.check_sent_after_reading(at, &world, run, fault).await?;
        self.finish(at, &world, run, &input).await?;
        // What was held up for longer comes when another has done the run.
        world.thaw_all(at).await?;
        self.finish(at, &world, run, &input).await?;
        let ended = world.check(at, &runs).await?;
        if let Some(saga) = &self.saga {
            saga.check(at, &ended)?;
        }
        Ok(world)
    }

    async fn finish(
        &self,
        at: &str,
        world: &World<'_>,
        run: &RunId,
        input: &Value,
    ) -> Result<(), Broken> {
        match &self.saga {
            Some(saga) => saga.finish(at, world, run).await,
            None => world.finish(at, run, input).await.map(drop),
        }
    }

    async fn go_on(
        &self,
        at: &str,
        world: &World<'_>,
        task: Task,
        fault: Option<StoreFault>,
    ) -> Result<(), Broken> {
        let again = task.clone();
        let came = world.work(at, task, Plan::default()).await?;
        match (came, fault.map(|fault| fault.kind)) {
            (Came::Ended(_), _) => {}
            (Came::Frozen, Some(Kind::HeldUp | Kind::HeldUpLonger)) => {}
            (Came::GaveUp(_), Some(_)) => {}
            (came, kind) => panic!("{at}: {came:?} by {kind:?}"),
        }
        // Whoever gave its run up, or is held up, has lost it by now.
        world.clock().advance(LEASE_MS + 1);
        if world.frozen() > 0 && fault.is_some_and(|fault| fault.kind == Kind::HeldUp) {
            let plan = Plan { vanish: Some((Boundary::AfterClaim, 1)), ..Plan::default() };
            world.work(at, again, plan).await?;
            world.thaw_all(at).await?;
            world.clock().advance(LEASE_MS + 1);
        }
        Ok(())
    }

    /// When the answer to the first REQUESTED is lost, nothing was sent: the one that wrote it does not know that it did.
    async fn check_sent_after_reading(
        &self,
        at: &str,
        world: &World<'_>,
        run: &RunId,
        fault: Option<StoreFault>,
    ) -> Result<(), Broken> {
        let unseen =
            |kind| matches!(kind, Kind::AppliedUnseen | Kind::LostUnseen | Kind::NotApplied);
        let first =
            fault.is_some_and(|f| f.point == Point::Requested && f.nth == 1 && unseen(f.kind));
        if first {
            let requests = world.books().requests;
            holds(requests == 0, "I3", at, || {
                format!("{run}: {requests} requests left before the ledger was read again")
            })?;
        }
        Ok(())
    }
}

/// How much a sweep covered.
#[derive(Debug, Default)]
pub struct Size {
    scenes: usize,
    sagas: usize,
    /// How many scenes came to that write of each kind, the first and the second, or as many as there are where a run is undone.
    reached: BTreeMap<(Point, u32), usize>,
    played: usize,
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kinds, stores) = (Kind::ALL.len(), STORES.len());
        let points = Point::ALL.len();
        writeln!(
            f,
            "store sweep: {} scenes, {} of them sagas, {points} boundaries, {OCCURRENCES} occurrences ({THERE_AND_BACK}), {kinds} faults, {stores} stores: {} plays",
            self.scenes, self.sagas, self.played
        )?;
        for ((point, nth), scenes) in &self.reached {
            writeln!(f, "  {}:{nth} in {scenes} scenes", point.as_str())?;
        }
        Ok(())
    }
}

/// Sweeps.
///
/// # Errors
/// [`Broken`], for the first invariant that does not hold; a boundary that no scene reaches is an error too.
///
/// # Panics
/// When something cannot be set up.
pub async fn sweep() -> Result<Size, Broken> {
    let mut size = Size::default();
    for scene in scenes() {
        size.scenes += 1;
        let at = format!("boundary=none, {}", scene.name);
        let theatre = scene.theatre();
        let calm = scene.play(&at, &theatre, Store::Memory, None).await?.writes();
        let occurrences = if scene.saga.is_some() { THERE_AND_BACK } else { OCCURRENCES };
        // What undoing adds is not in what a store does: one saga is on each.
        let stores = if scene.saga.is_some() && size.sagas > 0 { &STORES[..1] } else { &STORES };
        size.sagas += usize::from(scene.saga.is_some());
        for (point, made) in calm {
            for nth in 1..=made.min(occurrences) {
                *size.reached.entry((point, nth)).or_default() += 1;
                for (kind, store) in both(&Kind::ALL, stores) {
                    let at = format!(
                        "boundary={}:{nth}, {kind:?}, {store:?}, {}",
                        point.as_str(),
                        scene.name
                    );
                    let fault = Some(StoreFault { point, nth, kind });
                    scene.play(&at, &theatre, store, fault).await?;
                    size.played += 1;
                }
            }
        }
    }
    let reached: BTreeSet<Point> = size.reached.keys().map(|(point, _)| *point).collect();
    let never: Vec<Point> = Point::ALL.into_iter().filter(|p| !reached.contains(p)).collect();
    let again = size.reached.keys().any(|(_, nth)| *nth == OCCURRENCES);
    holds(never.is_empty() && again, "I4", "boundary=all", || {
        format!("no scene reaches {never:?}; a second time: {again}")
    })?;
    Ok(size)
}

fn both<A: Copy, B: Copy>(first: &[A], second: &[B]) -> Vec<(A, B)> {
    first.iter().flat_map(|a| second.iter().map(|b| (*a, *b))).collect()
}
