//! Tests of reading and checking projects, through the public interface.

mod diagnostics;
mod drawings;
mod example;
mod files;
mod flows;
mod planning;
mod plans;
mod policies;
mod properties;
mod reference;
mod sources;
mod support;
mod typed;
mod undoing;
