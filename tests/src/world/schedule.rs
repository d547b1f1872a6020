//! Random schedules: nodes that trap and ask otherwise after a restart, a provider and a store that fail as they like,
//! workers that vanish or are frozen and wake up when another has their run, people who resume too early, hosts that are
//! down for days. Everything follows from the seed.

use serde_json::{Value, json};
use twice::engine::boundary::Boundary;
use twice_core::ids::RunId;

use super::provider::{LookupTrouble, Mood, Trouble};
use super::shapes::Shape;
use super::{Gate, Plan, Task, Theatre, World, run_ids};
use crate::dice::Dice;
use crate::host::{Store, steps};
use crate::invariants::{Broken, Ended, Tally};
use crate::store::{Kind, Point, StoreFault};
use crate::tools::{Class, later, until_attempt};

/// The classes of tools, in the order in which seeds take turns.
pub const CLASSES: [Class; 5] =
    [Class::KeyLookup, Class::Key, Class::Lookup, Class::Lagging, Class::Neither];

/// Takeovers of a run in a row with which it is still far from quarantine.
const CRASHES_MAX: u32 = 3;
/// One schedule of so many is on a file, which takes longer; the others are in memory.
const ON_FILE: u64 = 100;

/// The context of what a schedule finds.
#[must_use]
pub fn title(seed: u64) -> String {
    format!("seed={seed} ({:?})", class_of(seed))
}

/// The class of a seed's tool.
#[must_use]
pub fn class_of(seed: u64) -> Class {
    CLASSES[index_of(seed)]
}

fn index_of(seed: u64) -> usize {
    usize::try_from(seed % CLASSES.len() as u64).expect("it is below five")
}

/// Where a schedule is recorded.
pub(super) fn store(dice: &mut Dice) -> Store {
    if dice.one_in(ON_FILE) { Store::Sqlite } else { Store::Memory }
}

/// What goes wrong in the provider; nothing that the tool's declarations would make a lie of.
pub(super) fn mood(dice: &mut Dice, class: Class) -> Mood {
    let mut chances = Vec::new();
    for trouble in Trouble::ALL {
        if dice.one_in(4) {
            chances.push((trouble, *dice.one_of(&[10, 30, 60])));
        }
    }
    // Only a lookup that is never taken for a proof may find nothing at will.
    let proves_nothing = class == Class::Lagging;
    let lookups = LookupTrouble {
        errors: *dice.one_of(&[0, 0, 30]),
        blind: if proves_nothing { *dice.one_of(&[0, 50]) } else { 0 },
        lag_ms: if proves_nothing { *dice.one_of(&[0, 60_000, 120_000]) } else { 0 },
    };
    Mood { chances, lookups, seed: dice.number(), ..Mood::default() }
}

/// A node with up to three effects that fails in between, and perhaps asks for another amount after a restart.
#[must_use]
pub fn input(dice: &mut Dice, run: u64, may_ask_at_once: bool) -> Value {
    let count = 1 + dice.below(3);
    let orders: Vec<Value> =
        (0..count).map(|item| json!({ "order_id": format!("order-{run}-{item}") })).collect();
    let request = |item: u64, cents: u64| {
        let order = format!("order-{run}-{item}");
        json!({ "slot": "refund", "item": item, "args": { "order_id": order, "amount_cents": cents } })
    };
    let single = |item: u64, cents: u64| {
        let mut step = request(item, cents);
        step["do"] = json!("request");
        step
    };
    let mut todo = Vec::new();
    if may_ask_at_once && dice.one_in(3) {
        let requests: Vec<Value> = (0..count).map(|item| request(item, 1_000)).collect();
        todo.push(json!({ "do": "request_all", "requests": requests }));
    }
    for item in 0..count {
        let attempt = u32::try_from(2 + dice.below(2)).expect("it is below four");
        if dice.one_in(6) {
            todo.push(until_attempt(attempt, single(item, 1_000)));
            todo.push(until_attempt(attempt, later()));
            todo.push(single(item, 2_000));
        } else {
            todo.push(single(item, 1_000));
        }
        if dice.one_in(4) {
            todo.push(until_attempt(attempt, later()));
        }
        if dice.one_in(6) {
            todo.push(until_attempt(attempt, json!({ "do": "trap" })));
        }
    }
    if dice.one_in(8) {
        todo.push(json!({ "do": "fatal", "message": "no use" }));
    }
    steps(json!({ "orders": orders }), todo)
}

/// What happens to a worker, if anything does.
fn plan(dice: &mut Dice) -> Plan {
    let nth = if dice.one_in(3) { 2 } else { 1 };
    let mut plan = Plan::default();
    match dice.below(6) {
        0 | 1 => plan.vanish = Some((*dice.one_of(&Boundary::ALL), nth)),
        2 => plan.freeze = Some((*dice.one_of(&Gate::ALL), nth)),
        3 => {
            let (point, kind) = (*dice.one_of(&Point::ALL), *dice.one_of(&Kind::ALL));
            plan.fault = Some(StoreFault { point, nth, kind });
        }
        _ => {}
    }
    plan
}

pub(super) struct Schedule<'t> {
    pub(super) at: String,
    pub(super) dice: Dice,
    pub(super) world: World<'t>,
    pub(super) runs: Vec<(RunId, Value)>,
    /// Whether people cancel runs.
    pub(super) cancels: bool,
}

impl<'t> Schedule<'t> {
    /// A worker does something about a run.
    async fn work(&mut self, number: usize) -> Result<(), Broken> {
        let (id, input) = &self.runs[number];
        let record = self.world.ledger().run(id).await.expect("the ledger can be read");
        let task = match &record {
            None => Task::Start(id.clone(), input.clone()),
            Some(_) => Task::Resume(id.clone()),
        };
        let calm = record.is_some_and(|run| run.crashes >= CRASHES_MAX);
        let plan = if calm { Plan::default() } else { plan(&mut self.dice) };
        self.world.work(&self.at, task, plan).await?;
        Ok(())
    }

    async fn draw(&mut self) -> Result<(), Broken> {
        if self.cancels && self.dice.one_in(10) {
            let number = self.dice.below(self.runs.len() as u64);
            let number = usize::try_from(number).expect("they are few");
            self.world.cancel(&self.runs[number].0).await;
            return Ok(());
        }
        let frozen = self.world.frozen() as u64;
        match self.dice.below(12) {
            0 | 1 => self.world.clock().advance(self.dice.below(90_000)),
            // Beyond a lease, and not yet beyond what a frozen sender may still let out.
            2 | 3 => self.world.clock().advance(30_001 + self.dice.below(20_000)),
            4 if self.dice.one_in(4) => {
                self.world.clock().advance(3_600_000 * (1 + self.dice.below(30)));
            }
            5 | 6 if frozen > 0 => {
                let number = self.dice.below(frozen);
                let number = usize::try_from(number).expect("they are few");
                self.world.thaw(&self.at, number).await?;
            }
            _ => {
                let number = self.dice.below(self.runs.len() as u64);
                self.work(usize::try_from(number).expect("they are few")).await?;
            }
        }
        Ok(())
    }

    /// Plays it until every run has ended or waits for a person, and nobody is frozen any more.
    pub(super) async fn play(mut self) -> Result<Self, Broken> {
        for number in 0..self.runs.len() {
            self.work(number).await?;
        }
        for _ in 0..3 + self.dice.below(8) {
            self.draw().await?;
        }
        let thaws = self.dice.one_in(2);
        let Self { at, world, runs, .. } = &self;
        if thaws {
            world.thaw_all(at).await?;
        }
        for (id, input) in runs {
            world.finish(at, id, input).await?;
        }
        world.thaw_all(at).await?;
        // A write that was held up may have been the first of its run.
        for (id, input) in runs {
            world.finish(at, id, input).await?;
        }
        Ok(self)
    }
}

/// Plays the schedule of a seed, in the theatre of its class, and checks what came of it.
///
/// # Errors
/// [`Broken`], for the first invariant that does not hold.
///
/// # Panics
/// When something cannot be set up.
pub async fn simulate(theatre: &Theatre, seed: u64) -> Result<Vec<Ended>, Broken> {
    let class = class_of(seed);
    let mut dice = Dice::new(seed);
    let store = store(&mut dice);
    let mood = mood(&mut dice, class);
    let world = theatre.world(store, mood).await;
    let ids = run_ids(1 + dice.below(2));
    let runs: Vec<(RunId, Value)> =
        ids.iter().cloned().zip((0..).map(|run| input(&mut dice, run, true))).collect();
    let schedule = Schedule { at: title(seed), dice, world, runs, cancels: false };
    let Schedule { world, at, .. } = schedule.play().await?;
    world.check(&at, &ids).await
}

/// Plays the schedule of a seed under a workflow of that shape, in a theatre for both, and checks what came of it.
///
/// # Errors
/// As [`simulate`].
///
/// # Panics
/// As [`simulate`].
pub async fn simulate_shape(
    theatre: &Theatre,
    shape: Shape,
    seed: u64,
) -> Result<Vec<Ended>, Broken> {
    let class = class_of(seed);
    let mut dice = Dice::new(seed);
    let store = store(&mut dice);
    let mood = mood(&mut dice, class);
    let world = theatre.world(store, mood).await;
    let ids = run_ids(1 + dice.below(2));
    let runs: Vec<(RunId, Value)> =
        ids.iter().cloned().zip((0..).map(|run| shape.drawn(&mut dice, run))).collect();
    let at = format!("{}, {shape:?}", title(seed));
    let schedule = Schedule { at, dice, world, runs, cancels: false };
    let Schedule { world, at, .. } = schedule.play().await?;
    world.check(&at, &ids).await
}

/// Schedules of each shape that are always played.
const FIXED_SHAPES: u64 = 200;

/// Plays the schedule of `seed` alone under every shape; or `schedules` of them for each (200), and a tenth of that from the
/// seed `fresh` on. Tells what they came to.
///
/// # Errors
/// As [`play_all`].
///
/// # Panics
/// As [`play_all`].
pub async fn play_shapes(
    seed: Option<u64>,
    schedules: Option<u64>,
    fresh: u64,
) -> Result<String, Broken> {
    let fixed = schedules.unwrap_or(FIXED_SHAPES);
    let seeds: Vec<u64> = match seed {
        Some(seed) => vec![seed],
        None => (0..fixed).chain((0..fixed.min(10 * FRESH) / 10).map(|n| fresh + n)).collect(),
    };
    let mut tally = Tally::default();
    for shape in Shape::ALL {
        let theatres = CLASSES.map(|class| Theatre::of(&shape.setup(class)));
        for seed in &seeds {
            let ended = simulate_shape(&theatres[index_of(*seed)], shape, *seed).await?;
            ended.iter().for_each(|ended| tally.count(ended));
        }
    }
    let summary =
        format!("{} schedules of each shape, fresh from seed {fresh} on: {tally:?}", seeds.len());
    let broken = |what| Broken { invariant: "I1", at: "all seeds".to_owned(), what };
    let enough = tally.all_seen() || seeds.len() < 200;
    if enough { Ok(summary) } else { Err(broken(format!("not every outcome occurred: {tally:?}"))) }
}

/// Schedules that are always played.
const FIXED: u64 = 2_000;
/// Schedules that nobody has played before.
const FRESH: u64 = 200;

/// Plays the schedule of `seed` alone; or `schedules` of them (2,000), and a tenth of that from the seed `fresh` on. Tells
/// what they came to.
///
/// # Errors
/// [`Broken`], for the first invariant that does not hold, and when the schedules come to nothing.
///
/// # Panics
/// When something cannot be set up.
pub async fn play_all(
    seed: Option<u64>,
    schedules: Option<u64>,
    fresh: u64,
) -> Result<String, Broken> {
    let fixed = schedules.unwrap_or(FIXED);
    let seeds: Vec<u64> = match seed {
        Some(seed) => vec![seed],
        None => (0..fixed).chain((0..fixed.min(10 * FRESH) / 10).map(|n| fresh + n)).collect(),
    };
    let mut tally = Tally::default();
    let theatres = CLASSES.map(Theatre::new);
    for seed in &seeds {
        let theatre = &theatres[index_of(*seed)];
        simulate(theatre, *seed).await?.iter().for_each(|ended| tally.count(ended));
    }
    let summary = format!("{} schedules, fresh from seed {fresh} on: {tally:?}", seeds.len());
    let broken = |what| Broken { invariant: "I1", at: "all seeds".to_owned(), what };
    // A few schedules need not come to everything.
    let enough = tally.all_seen() || seeds.len() < 200;
    if enough { Ok(summary) } else { Err(broken(format!("not every outcome occurred: {tally:?}"))) }
}
