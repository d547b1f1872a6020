//! The sandbox, through its public interface: real nodes, hostile components, every limit.

mod cache;
mod hostile;
mod limits;
mod load;
mod nodes;
mod support;
