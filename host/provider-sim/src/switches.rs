//! Switches: which faults are on, where, and how often. This module decides whether a switch fires; what a fault then
//! does is the business of the part that asked.

use std::fmt;
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::fault::Fault;
use crate::limits::SWITCHES_MAX;
use crate::store::{Store, StoreError};

/// One fault, switched on: everywhere or for one path, always or a number of times or with a probability.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Switch {
    /// The fault.
    pub name: Fault,
    /// What the fault needs to know: see [`Fault::about`].
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub value: Value,
    /// The path it is limited to: exact, with `{…}` for any one segment, or ending in `*`. Everywhere otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The method it is limited to: `POST`, unless the fault is one of lookups, which are `GET`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// How often it fires; then it is spent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub times: Option<u32>,
    /// How likely it fires, from 0 to 1. The draws follow from the seed and the number of the draw alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probability: Option<f64>,
    /// The seed of the draws; 0 otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
}

/// Why a switch cannot be set.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("switch `{switch}`: {problem}")]
pub struct SwitchError {
    /// The switch as given, or its name.
    pub switch: String,
    /// What is wrong with it and what would be right.
    pub problem: String,
}

impl Switch {
    /// The fault, everywhere and always, with the value it takes when none is given.
    #[must_use]
    pub const fn new(name: Fault) -> Self {
        Self {
            name,
            value: Value::Null,
            path: None,
            method: None,
            times: None,
            probability: None,
            seed: None,
        }
    }

    /// With this value.
    #[must_use]
    pub fn value(mut self, value: impl Into<Value>) -> Self {
        self.value = value.into();
        self
    }

    /// Only for this path.
    #[must_use]
    pub fn path(mut self, path: impl Into<String>) -> Self {
        self.path = Some(path.into());
        self
    }

    /// Only for this method.
    #[must_use]
    pub fn method(mut self, method: impl Into<String>) -> Self {
        self.method = Some(method.into());
        self
    }

    /// Only so many times.
    #[must_use]
    pub const fn times(mut self, times: u32) -> Self {
        self.times = Some(times);
        self
    }

    /// Only with this probability, drawn from this seed.
    #[must_use]
    pub const fn probability(mut self, probability: f64, seed: u64) -> Self {
        self.probability = Some(probability);
        self.seed = Some(seed);
        self
    }

    /// Checks the value and the limits of the switch.
    ///
    /// # Errors
    /// [`SwitchError`] with what would be right.
    pub fn check(&self) -> Result<(), SwitchError> {
        let refuse =
            |problem: String| Err(SwitchError { switch: self.name.as_str().to_owned(), problem });
        if let Err(problem) = self.name.check_value(&self.value) {
            return refuse(problem);
        }
        if self.probability.is_some_and(|p| !(0.0..=1.0).contains(&p)) {
            return refuse("probability must be from 0 to 1".to_owned());
        }
        if self.seed.is_some() && self.probability.is_none() {
            return refuse("seed is of no use without probability".to_owned());
        }
        if self.times == Some(0) {
            return refuse("times must be at least 1; leave the switch out instead".to_owned());
        }
        if self.path.as_ref().is_some_and(|path| !path.starts_with('/')) {
            return refuse("path must start with `/`".to_owned());
        }
        if self.method.as_ref().is_some_and(|method| method != "GET" && method != "POST") {
            return refuse("method must be GET or POST".to_owned());
        }
        Ok(())
    }

    fn covers(&self, method: &str, path: &str) -> bool {
        let default = if self.name.is_of_lookups() { "GET" } else { "POST" };
        self.method.as_deref().unwrap_or(default) == method
            && self.path.as_deref().is_none_or(|pattern| path_matches(pattern, path))
    }
}

impl fmt::Display for Switch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name.as_str())
    }
}

impl FromStr for Switch {
    type Err = SwitchError;

    /// `NAME[@PATH][=VALUE][,times=N][,probability=P][,seed=S][,method=M]`, where VALUE is JSON, text, or `on` (which may be
    /// left out) for a fault that needs none.
    fn from_str(text: &str) -> Result<Self, SwitchError> {
        let refuse = |problem: String| SwitchError { switch: text.to_owned(), problem };
        let mut rest = text;
        let mut options = Vec::new();
        while let Some((before, option)) = rest.rsplit_once(',')
            && let Some((option, value)) = option.split_once('=')
            && matches!(option, "times" | "probability" | "seed" | "method")
        {
            options.push((option, value));
            rest = before;
        }
        let (target, rest) = rest.split_once('=').unwrap_or((rest, "on"));
        let (name, path) = match target.split_once('@') {
            Some((name, path)) => (name, Some(path.to_owned())),
            None => (target, None),
        };
        let mut switch = Self::new(name.parse::<Fault>().map_err(refuse)?);
        switch.path = path;
        for (option, value) in options {
            let number = || refuse(format!("`{value}` is not a number for {option}"));
            match option {
                "times" => switch.times = Some(value.parse().map_err(|_| number())?),
                "probability" => switch.probability = Some(value.parse().map_err(|_| number())?),
                "seed" => switch.seed = Some(value.parse().map_err(|_| number())?),
                _ => switch.method = Some(value.to_owned()),
            }
        }
        switch.value = match rest {
            "on" => Value::Null,
            text => serde_json::from_str(text).unwrap_or_else(|_| Value::from(text)),
        };
        switch.check()?;
        Ok(switch)
    }
}

/// A switch and what became of it so far.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SwitchState {
    /// The switch.
    pub switch: Switch,
    /// How many requests it could have fired on.
    pub seen: u64,
    /// How often it fired.
    pub fired: u64,
}

impl SwitchState {
    /// A switch that has seen nothing yet.
    #[must_use]
    pub const fn new(switch: Switch) -> Self {
        Self { switch, seen: 0, fired: 0 }
    }

    const fn is_spent(&self) -> bool {
        match self.switch.times {
            Some(times) => self.fired >= times as u64,
            None => false,
        }
    }

    /// Counts one request and says whether the switch fires on it.
    fn draw(&mut self) -> bool {
        self.seen += 1;
        let fires = self.switch.probability.is_none_or(|probability| {
            unit_interval(self.switch.seed.unwrap_or(0), self.seen) < probability
        });
        if fires {
            self.fired += 1;
        }
        fires
    }
}

/// A switch that fired.
#[derive(Debug, Clone)]
pub(crate) struct Fired {
    /// Its value.
    pub(crate) value: Value,
    /// The how-manieth firing this is, from 1.
    pub(crate) nth: u64,
}

/// All switches that are set. Counts are durable before a fault acts, so that `times = 1` holds across a restart.
#[derive(Debug)]
pub(crate) struct Switches {
    set: Mutex<Vec<SwitchState>>,
    store: Store,
}

impl Switches {
    pub(crate) async fn load(store: Store) -> Result<Self, StoreError> {
        let set = store.switches().await?;
        Ok(Self { set: Mutex::new(set), store })
    }

    /// Replaces the whole set; counts start anew.
    pub(crate) async fn replace(&self, switches: Vec<Switch>) -> Result<(), ReplaceError> {
        if switches.len() > SWITCHES_MAX {
            return Err(ReplaceError::Switch(SwitchError {
                switch: switches[SWITCHES_MAX].to_string(),
                problem: format!("at most {SWITCHES_MAX} switches can be set at once"),
            }));
        }
        for switch in &switches {
            switch.check().map_err(ReplaceError::Switch)?;
        }
        let set: Vec<_> = switches.into_iter().map(SwitchState::new).collect();
        self.store.replace_switches(&set).await.map_err(ReplaceError::Store)?;
        *self.set.lock().unwrap_or_else(PoisonError::into_inner) = set;
        Ok(())
    }

    /// Empties the set, which the store has done already.
    pub(crate) fn forget(&self) {
        self.set.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    pub(crate) fn all(&self) -> Vec<SwitchState> {
        self.set.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether this fault happens to this request; counts it.
    pub(crate) async fn fire(
        &self,
        fault: Fault,
        method: &str,
        path: &str,
    ) -> Result<Option<Fired>, StoreError> {
        self.fire_if(fault, method, path, |_| true).await
    }

    /// As [`Self::fire`], among the switches whose value `wanted` accepts.
    pub(crate) async fn fire_if(
        &self,
        fault: Fault,
        method: &str,
        path: &str,
        wanted: impl Fn(&Value) -> bool + Send,
    ) -> Result<Option<Fired>, StoreError> {
        let (fired, counts) = {
            let mut set = self.set.lock().unwrap_or_else(PoisonError::into_inner);
            let mut fired = None;
            let mut counts = Vec::new();
            for (ordinal, state) in set.iter_mut().enumerate() {
                let applies = state.switch.name == fault
                    && !state.is_spent()
                    && state.switch.covers(method, path)
                    && wanted(&state.switch.value);
                if !applies {
                    continue;
                }
                if state.draw() {
                    fired = Some(Fired { value: state.switch.value.clone(), nth: state.fired });
                }
                counts.push((ordinal, state.clone()));
                if fired.is_some() {
                    break;
                }
            }
            (fired, counts)
        };
        for (ordinal, state) in counts {
            self.store.count_switch(ordinal, &state).await?;
        }
        Ok(fired)
    }
}

/// Why the switches were not replaced.
#[derive(Debug, thiserror::Error)]
pub enum ReplaceError {
    /// One of them is not valid; none was set.
    #[error("the switches were not set")]
    Switch(#[source] SwitchError),
    /// They could not be stored.
    #[error("the switches could not be stored")]
    Store(#[source] StoreError),
}

fn path_matches(pattern: &str, path: &str) -> bool {
    if let Some(prefix) = pattern.strip_suffix('*') {
        return path.starts_with(prefix);
    }
    let mut segments = path.split('/');
    let mut wanted = pattern.split('/');
    loop {
        match (wanted.next(), segments.next()) {
            (None, None) => return true,
            (Some(w), Some(s)) if w == s || (w.starts_with('{') && w.ends_with('}')) => {}
            _ => return false,
        }
    }
}

/// The `n`th number in [0, 1) of the sequence with this seed (SplitMix64).
fn unit_interval(seed: u64, n: u64) -> f64 {
    let mut z = seed.wrapping_add(n.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^= z >> 31;
    (z >> 11) as f64 / (1_u64 << 53) as f64
}
