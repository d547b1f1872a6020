//! The root of a node: what Zig looks for there, and the author's `main.zig` as the module `node`.

const std = @import("std");
const twice = @import("twice");

pub const panic = std.debug.FullPanic(twice.panicked);
pub const std_options: std.Options = .{ .logFn = twice.logFn, .log_level = .debug };

comptime {
    twice.exportNode(@import("node").run);
}
