//! Building nodes through the public interface.

mod detect;
mod leftovers;
