//! The world `twice:node/node`, as generated from the WIT that authors read.

wasmtime::component::bindgen!({
    path: "../../guest-sdk/wit",
    world: "node",
    imports: { default: async | trappable },
    exports: { default: async },
});
