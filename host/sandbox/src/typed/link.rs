//! Puts slots behind imported functions.

use std::sync::Arc;

use twice_core::wit::{ArgsShape, ErrorShape, Signature, TypedGrant, TypedImport};
use wasmtime::component::{Linker, Val};
use wasmtime::{Error, Result, StoreContextMut};

use super::value::{ValueError, from_json, members, to_json};
use crate::api::EffectAnswer;
use crate::bindings::twice::node::effects;
use crate::state::{State, Stop};

/// Offers each function of `imports`: those that a grant names as requests for its slot. A call of any other ends the node's
/// call; a component is not run before all are granted.
pub(crate) fn link(
    linker: &mut Linker<State>,
    imports: &[TypedImport],
    grants: &[TypedGrant],
) -> Result<()> {
    for (at, import) in imports.iter().enumerate() {
        if imports[..at].iter().any(|earlier| earlier.interface == import.interface) {
            continue;
        }
        let mut instance = linker.instance(&import.interface)?;
        for import in imports.iter().filter(|other| other.interface == import.interface) {
            let grant = grants.iter().find(|grant| is_for(grant, import)).cloned();
            let function = Arc::new(Function { import: import.clone(), grant });
            instance.func_new_async(&import.function, move |store, _, params, results| {
                let function = Arc::clone(&function);
                Box::new(async move { function.call(store, params, results).await })
            })?;
        }
    }
    Ok(())
}

/// Whether a grant is for an import.
pub(crate) fn is_for(grant: &TypedGrant, import: &TypedImport) -> bool {
    grant.interface == import.interface && grant.function == import.function
}

struct Function {
    import: TypedImport,
    grant: Option<TypedGrant>,
}

impl Function {
    async fn call(
        &self,
        mut store: StoreContextMut<'_, State>,
        params: &[Val],
        results: &mut [Val],
    ) -> Result<()> {
        let TypedImport { interface, function, .. } = &self.import;
        let Some(grant) = &self.grant else {
            return Err(misuse(format!("`{interface}#{function}` is not granted to this node")));
        };
        let state = store.data_mut();
        let answer = match request(&grant.slot, &grant.signature, params) {
            Ok(request) => state.answer_one(request).await?,
            Err(error) => {
                let message =
                    format!("the args of `{}` cannot be written as JSON: {error}", grant.slot);
                state.refuse(&grant.slot, "args", &message)?
            }
        };
        let value = answered(&grant.slot, &grant.signature, answer).map_err(|error| {
            misuse(format!(
                "the receipt of `{}` does not fit the result of `{interface}#{function}`: {error}. The effect happened, and its \
                 receipt is kept; build the node against what `twice tool wit` writes, with options where a receipt may have \
                 nothing",
                grant.slot
            ))
        })?;
        match results {
            [result] => *result = value,
            _ => return Err(misuse(format!("`{interface}#{function}` has no result"))),
        }
        Ok(())
    }
}

fn misuse(problem: String) -> Error {
    Stop::Misuse(problem).into()
}

/// The request that a call is.
fn request(
    slot: &str,
    signature: &Signature,
    params: &[Val],
) -> Result<effects::EffectRequest, ValueError> {
    let (item, params) = match params {
        [Val::U32(item), rest @ ..] if signature.item => (Some(*item), rest),
        _ => (None, params),
    };
    let args = match (&signature.args, params) {
        (ArgsShape::Whole(ty), [args]) => to_json(args, ty)?,
        (ArgsShape::Whole(ty), _) => to_json(&Val::Tuple(params.to_vec()), ty)?,
        (ArgsShape::Members(types), _) => {
            members(types.iter().zip(params).map(|((name, ty), value)| (name.as_str(), ty, value)))?
        }
    };
    let args = twice_core::json::canonical(&args);
    Ok(effects::EffectRequest { slot: slot.to_owned(), item, args })
}

/// The result that an answer is.
fn answered(slot: &str, signature: &Signature, answer: EffectAnswer) -> Result<Val, ValueError> {
    let ok = match &answer {
        EffectAnswer::Receipt { body, .. } => match &signature.ok {
            None => Some(None),
            Some(ty) => {
                let body: serde_json::Value =
                    serde_json::from_str(body).map_err(|error| ValueError {
                        problem: format!("it is no JSON: {error}"),
                        pointer: String::new(),
                    })?;
                Some(Some(Box::new(from_json(&body, ty)?)))
            }
        },
        EffectAnswer::Failed { .. } | EffectAnswer::Denied { .. } => None,
    };
    if let Some(ok) = ok {
        return Ok(Val::Result(Ok(ok)));
    }
    let error = match signature.error {
        ErrorShape::Text => Val::String(text(slot, &answer)),
        ErrorShape::EffectError => effect_error(answer),
    };
    Ok(Val::Result(Err(Some(Box::new(error)))))
}

/// A refusal in one text, as the SDKs write it.
fn text(slot: &str, answer: &EffectAnswer) -> String {
    match answer {
        EffectAnswer::Receipt { effect_id, .. } => format!("`{slot}` happened: {effect_id}"),
        EffectAnswer::Failed { code, message } => format!("`{slot}` failed with {code}: {message}"),
        EffectAnswer::Denied { policy, message } => {
            format!("`{slot}` is denied by {policy}: {message}")
        }
    }
}

fn effect_error(answer: EffectAnswer) -> Val {
    let record = |name: &str, value: String, message: String| {
        let fields = vec![
            (name.to_owned(), Val::String(value)),
            ("message".to_owned(), Val::String(message)),
        ];
        Some(Box::new(Val::Record(fields)))
    };
    match answer {
        EffectAnswer::Failed { code, message } => {
            Val::Variant("failed".to_owned(), record("code", code, message))
        }
        EffectAnswer::Denied { policy, message } => {
            Val::Variant("denied".to_owned(), record("policy", policy, message))
        }
        EffectAnswer::Receipt { effect_id, .. } => {
            Val::Variant("failed".to_owned(), record("code", "internal".to_owned(), effect_id))
        }
    }
}
