//! Definitions: what a run is pinned to when it starts (I9), as text and as digest.

use serde_json::Value;
use twice_core::event::Proposal;
use twice_core::identity::{hash_text, tagged_sha256};
use twice_core::ids::Name;
use twice_core::json;

use crate::model::{Child, Definition, Operation, Tool};

/// Why there is no definition.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DefinitionError {
    /// There is no such workflow.
    #[error("there is no workflow `{workflow}`{}", did_you_mean(.near.as_deref()))]
    UnknownWorkflow {
        /// The name that was asked for.
        workflow: Name,
        /// The name that was likely meant.
        near: Option<String>,
    },
    /// A component is not registered.
    #[error(
        "node `{node}` of workflow `{workflow}` runs component `{component}`, which is not registered; add it with `twice node add {component} FILE.wasm`"
    )]
    UnknownComponent {
        /// The workflow.
        workflow: Name,
        /// The node.
        node: Name,
        /// The component.
        component: Name,
    },
    /// It starts too many other workflows.
    #[error(
        "workflow `{workflow}` and the workflows it starts come to more than 100 child workflows, each pinned in full; start fewer"
    )]
    TooManyChildren {
        /// The workflow at which the limit was passed.
        workflow: Name,
    },
    /// The text is no definition.
    #[error("not a definition: {message}")]
    Malformed {
        /// What is wrong.
        message: String,
    },
    /// The definition is of a format that this version does not know.
    #[error(
        "the definition has format {format}; this version of Twice knows format {}",
        Definition::FORMAT
    )]
    UnknownFormat {
        /// The format it has.
        format: u64,
    },
}

fn did_you_mean(near: Option<&str>) -> String {
    near.map(|near| format!("; did you mean `{near}`?")).unwrap_or_default()
}

impl Definition {
    /// The version of the format written by this version of Twice.
    pub const FORMAT: u32 = 1;

    /// The definition as canonical JSON.
    #[must_use]
    pub fn to_text(&self) -> String {
        let value = serde_json::to_value(self).expect("a definition is plain data with text keys");
        json::canonical(&value)
    }

    /// Reads a definition back.
    ///
    /// # Errors
    /// [`DefinitionError::UnknownFormat`] when it was written in another format, [`DefinitionError::Malformed`] when it is
    /// no definition.
    pub fn from_text(text: &str) -> Result<Self, DefinitionError> {
        let malformed =
            |error: serde_json::Error| DefinitionError::Malformed { message: error.to_string() };
        let value: Value = serde_json::from_str(text).map_err(malformed)?;
        match value.get("format").and_then(Value::as_u64) {
            Some(format) if format == u64::from(Self::FORMAT) => {}
            Some(format) => return Err(DefinitionError::UnknownFormat { format }),
            None => {
                let message = "it has no `format`".to_owned();
                return Err(DefinitionError::Malformed { message });
            }
        }
        serde_json::from_value(value).map_err(malformed)
    }

    /// The workflows that are pinned with it: its children, theirs, and so on.
    pub fn descendants(&self) -> impl Iterator<Item = &Child> {
        let mut found: Vec<&Child> = self.children.values().collect();
        let mut at = 0;
        while at < found.len() {
            found.extend(found[at].definition.children.values());
            at += 1;
        }
        found.into_iter()
    }

    /// The tools that it and its descendants use.
    pub fn all_tools(&self) -> impl Iterator<Item = &Tool> {
        let own = self.tools.values();
        own.chain(self.descendants().flat_map(|child| child.definition.tools.values()))
    }

    /// The components that it and its descendants run, with their digests.
    pub fn all_components(&self) -> impl Iterator<Item = (&Name, &String)> {
        let own = self.components.iter();
        own.chain(self.descendants().flat_map(|child| child.definition.components.iter()))
    }

    /// The pinned operation that a proposal is for.
    #[must_use]
    pub fn operation(&self, proposal: &Proposal) -> Option<&Operation> {
        self.tools.get(&proposal.tool)?.operations.get(&proposal.operation)
    }

    /// The digest by which runs are pinned: `sha256:` and 64 hexadecimal digits.
    #[must_use]
    pub fn digest(&self) -> String {
        hash_text(&tagged_sha256("twice/definition/v1", self.to_text().as_bytes()))
    }
}
