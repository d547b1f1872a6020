//! Makes pinned definitions and their components ready to run, once per process.

use std::collections::BTreeMap;
use std::sync::Arc;

use twice_core::ids::{Name, RunId};
use twice_core::wit::TypedImport;
use twice_sandbox::Component;
use twice_workflow::model::{Definition, Node};
use twice_workflow::typed;

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
            let component = self.granted(&definition, node, &component)?;
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

    /// The component of a node with its slots behind what it imports of tools.
    fn granted(
        &self,
        definition: &Definition,
        node: &Node,
        component: &Component,
    ) -> Result<Component, EngineError> {
        let imports = component.inspection().typed;
        if imports.is_empty() {
            return Ok(component.clone());
        }
        let grants = typed::grants(node, &definition.tools, &imports)
            .map_err(|problems| ungranted(node, problems))?;
        self.parts
            .sandbox
            .grant(component, &grants)
            .map_err(|source| EngineError::Component { name: node.component.to_string(), source })
    }

    /// Refuses a definition of which a node's component imports what its slots do not grant. A component that is not there is
    /// reported when it is needed.
    pub(super) async fn check_imports(&self, definition: &Definition) -> Result<(), EngineError> {
        for node in &definition.workflow.nodes {
            let Some(digest) = definition.components.get(&node.component) else { continue };
            let imports = self.imports(&node.component, digest).await?;
            if let Err(problems) = typed::grants(node, &definition.tools, &imports) {
                return Err(ungranted(node, problems));
            }
        }
        Ok(())
    }

    /// What a component imports of tools.
    async fn imports(
        &self,
        name: &Name,
        digest: &str,
    ) -> Result<Arc<Vec<TypedImport>>, EngineError> {
        if let Some(imports) = lock(&self.imports).get(digest) {
            return Ok(Arc::clone(imports));
        }
        let Some(bytes) = self.parts.ledger.module_bytes(digest).await? else {
            return Ok(Arc::default());
        };
        let read = tokio::task::spawn_blocking(move || twice_sandbox::typed_imports(&bytes)).await;
        let imports = read
            .expect("reading a component does not panic")
            .map_err(|source| EngineError::Component { name: name.to_string(), source })?;
        let imports = Arc::new(imports);
        lock(&self.imports).insert(digest.to_owned(), Arc::clone(&imports));
        Ok(imports)
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

fn ungranted(node: &Node, problems: Vec<String>) -> EngineError {
    EngineError::Ungranted { node: node.name.clone(), problems }
}

fn damaged(run: &RunId, digest: &str, problem: String) -> EngineError {
    EngineError::Definition { run: run.clone(), digest: digest.to_owned(), problem }
}
