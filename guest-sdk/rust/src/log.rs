//! The run's log. Messages longer than 8 KiB are cut, and the log of a call ends at the node's limit.
//!
//! ```no_run
//! use twice_node::log;
//! log::info!("{} of {} orders are refunded", 3, 40);
//! ```

use crate::bindings::twice::node::log as wit;

pub use crate::{
    __log_debug as debug, __log_error as error, __log_info as info, __log_warn as warn,
};

/// How loud a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// For the author.
    Debug,
    /// For the operator.
    Info,
    /// Something is odd.
    Warn,
    /// Something is wrong.
    Error,
}

/// Writes one message.
pub fn write(level: Level, message: &str) {
    let level = match level {
        Level::Debug => wit::Level::Debug,
        Level::Info => wit::Level::Info,
        Level::Warn => wit::Level::Warn,
        Level::Error => wit::Level::Error,
    };
    wit::write(level, message);
}

/// Writes a message for the author; takes what `format!` takes.
#[macro_export]
#[doc(hidden)]
macro_rules! __log_debug {
    ($($arg:tt)*) => { $crate::log::write($crate::log::Level::Debug, &::std::format!($($arg)*)) };
}

/// Writes a message for the operator; takes what `format!` takes.
#[macro_export]
#[doc(hidden)]
macro_rules! __log_info {
    ($($arg:tt)*) => { $crate::log::write($crate::log::Level::Info, &::std::format!($($arg)*)) };
}

/// Writes that something is odd; takes what `format!` takes.
#[macro_export]
#[doc(hidden)]
macro_rules! __log_warn {
    ($($arg:tt)*) => { $crate::log::write($crate::log::Level::Warn, &::std::format!($($arg)*)) };
}

/// Writes that something is wrong; takes what `format!` takes.
#[macro_export]
#[doc(hidden)]
macro_rules! __log_error {
    ($($arg:tt)*) => { $crate::log::write($crate::log::Level::Error, &::std::format!($($arg)*)) };
}
