//! Reads and checks workflow and tool files. Given the text of the files, everything here is a pure function; what it
//! finds wrong is said with file, line, reason and fix.

pub mod model;
