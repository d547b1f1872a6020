//! Makes pinned definitions and their components ready to run, once per process.

use std::collections::BTreeMap;
use std::sync::Arc;

use twice_core::ids::{Name, RunId};
use twice_sandbox::Component;
use twice_workflow::model::Definition;

use super::compiled::{Compiled, CompiledNode, CompiledSlot};
use super::{Engine, EngineError, lock};

impl Engine {
    /// A definition that is ready to run.
    pub(super) async fn compiled(
        &self,
        run: &RunId,
        digest: &str,
    ) -> Result<Arc<Compiled>, EngineError> {
        if let Some(compiled) = lock(&self.compiled).get(digest) {
            return Ok(Arc::clone(compiled));
        }
        let damaged = |problem: String| damaged(run, digest, problem);
        let definition = self.pinned(run, digest).await?;
        let mut nodes = Vec::with_capacity(definition.workflow.nodes.len());
        for node in &definition.workflow.nodes {
            let pinned = definition.components.get(&node.component).ok_or_else(|| {
                damaged(format!("names no digest for component `{}`", node.component))
            })?;
            let mut slots = BTreeMap::new();
            for slot in &node.slots {
                let compiled = CompiledSlot::new(&definition, slot).map_err(damaged)?;
                slots.insert(slot.name.clone(), Arc::new(compiled));
            }
            let component = self.component(&node.component, pinned).await?;
            nodes.push(CompiledNode { node: node.clone(), component, slots });
        }
        let compiled = Arc::new(Compiled::new(digest.to_owned(), definition, nodes));
        lock(&self.compiled).insert(digest.to_owned(), Arc::clone(&compiled));
        Ok(compiled)
    }

    /// The definition that a run is pinned to.
    pub(super) async fn pinned(
        &self,
        run: &RunId,
        digest: &str,
    ) -> Result<Definition, EngineError> {
        let text = self.parts.ledger.definition(digest).await?;
        let text = text.ok_or_else(|| damaged(run, digest, "is not in the ledger".to_owned()))?;
        Definition::from_text(&text)
            .map_err(|problem| damaged(run, digest, format!("cannot be read: {problem}")))
    }

    async fn component(&self, name: &Name, digest: &str) -> Result<Component, EngineError> {
        if let Some(component) = lock(&self.components).get(digest) {
            return Ok(component.clone());
        }
        let missing =
            || EngineError::ComponentMissing { name: name.to_string(), digest: digest.to_owned() };
        let bytes = self.parts.ledger.module_bytes(digest).await?.ok_or_else(missing)?;
        let sandbox = Arc::clone(&self.parts.sandbox);
        let loaded = tokio::task::spawn_blocking(move || sandbox.load(&bytes)).await;
        let component = loaded
            .expect("loading a component does not panic")
            .map_err(|source| EngineError::Component { name: name.to_string(), source })?;
        lock(&self.components).insert(digest.to_owned(), component.clone());
        Ok(component)
    }
}

fn damaged(run: &RunId, digest: &str, problem: String) -> EngineError {
    EngineError::Definition { run: run.clone(), digest: digest.to_owned(), problem }
}
