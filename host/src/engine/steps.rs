//! What is needed to have the steps of a run under way: their contexts, and the elements that they are about.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value;
use twice_core::ids::{ElementId, Name};
use twice_core::progress::StepId;
use twice_workflow::elements;
use twice_workflow::source::{self, Trusted};

use super::compiled::Compiled;
use super::session::Session;
use super::step::{StepContext, source_node};
use super::{Engine, EngineError};

/// The steps of a run.
pub(super) struct Steps<'e> {
    pub(super) engine: &'e Engine,
    pub(super) session: Arc<Session>,
    pub(super) compiled: Arc<Compiled>,
    /// The arrays of fan-outs, by node and visit.
    arrays: HashMap<(Name, u32), Arc<Vec<Value>>>,
    /// The elements of fan-outs that are undone, by node and visit.
    behind: HashMap<(Name, u32), HashMap<ElementId, Value>>,
}

impl<'e> Steps<'e> {
    /// The steps of a run just claimed.
    pub(super) fn new(engine: &'e Engine, session: Arc<Session>, compiled: Arc<Compiled>) -> Self {
        Self { engine, session, compiled, arrays: HashMap::new(), behind: HashMap::new() }
    }

    /// The context of a step.
    ///
    /// # Errors
    /// [`EngineError::Definition`] when there is no such node.
    pub(super) fn context(&self, id: &StepId) -> Result<StepContext, EngineError> {
        let place = self.compiled.place(&id.node).ok_or_else(|| self.damaged(id))?;
        Ok(StepContext::new(
            Arc::clone(&self.compiled),
            place,
            Arc::clone(&self.engine.parts.drivers),
            Arc::clone(&self.engine.circuits),
        ))
    }

    /// The element that a step of a fan-out is about.
    ///
    /// # Errors
    /// [`EngineError::Definition`] when there is none.
    pub(super) fn element(&mut self, id: &StepId) -> Result<Option<Value>, EngineError> {
        let Some(element) = &id.element else { return Ok(None) };
        let key = (id.node.clone(), id.visit);
        if !self.arrays.contains_key(&key) {
            let array = self.array(&id.node).ok_or_else(|| self.damaged(id))?;
            self.arrays.insert(key.clone(), Arc::new(array));
        }
        let position = self.session.progress(|progress| {
            progress.nodes.get(&id.node)?.elements.as_ref()?.position(element)
        });
        let found = position.and_then(|at| self.arrays[&key].get(at as usize).cloned());
        found.map(Some).ok_or_else(|| self.damaged(id))
    }

    /// The element of whose step an effect is undone, of whatever visit: where its elements stood is known of the latest visit
    /// alone, so that it is found by its identity. `None`, too, when it cannot be found any more; the policy of the undoing then
    /// sees none.
    ///
    /// # Errors
    /// When the ledger cannot be read.
    pub(super) async fn element_behind(
        &mut self,
        id: &StepId,
    ) -> Result<Option<Value>, EngineError> {
        let Some(element) = &id.element else { return Ok(None) };
        let key = (id.node.clone(), id.visit);
        if !self.behind.contains_key(&key) {
            let elements = self.elements_behind(id).await?;
            self.behind.insert(key.clone(), elements);
        }
        Ok(self.behind[&key].get(element).cloned())
    }

    async fn elements_behind(&self, id: &StepId) -> Result<HashMap<ElementId, Value>, EngineError> {
        let place = self.compiled.place(&id.node);
        let fan_out = place.and_then(|place| self.compiled.nodes[place].node.for_each.as_ref());
        let Some(fan_out) = fan_out else { return Ok(HashMap::new()) };
        let mut receipts = None;
        if let Some(source) = source_node(&fan_out.array) {
            // Visited as often in the same loop, and less often before it.
            for visit in (1..=id.visit).rev() {
                let of_visit = self.session.receipts_of(&source, visit).await?;
                if !of_visit.is_empty() {
                    receipts = Some(of_visit);
                    break;
                }
            }
        }
        let receipts = |_: &Name, slot: &Name| receipts.as_ref()?.get(slot).cloned();
        let trusted =
            Trusted { input: &self.session.run.input, element: None, receipts: &receipts };
        let Ok((items, ids)) = elements::of(fan_out, trusted) else { return Ok(HashMap::new()) };
        Ok(ids.into_iter().zip(items).collect())
    }

    fn array(&self, node: &Name) -> Option<Vec<Value>> {
        let fan_out = self.compiled.nodes[self.compiled.place(node)?].node.for_each.as_ref()?;
        self.session.progress(|progress| {
            let receipts = |node: &Name, slot: &Name| self.session.receipt(progress, node, slot);
            let trusted =
                Trusted { input: &self.session.run.input, element: None, receipts: &receipts };
            match source::resolve(&fan_out.array, trusted).ok()?.into_owned() {
                Value::Array(items) => Some(items),
                _ => None,
            }
        })
    }

    fn damaged(&self, id: &StepId) -> EngineError {
        EngineError::Definition {
            run: self.session.id().clone(),
            digest: self.compiled.digest.clone(),
            problem: format!("does not fit its history: there is no step {id}"),
        }
    }
}
