//! Greets. Requests nothing.

const twice = @import("twice");

const Input = struct { name: []const u8 = "world" };
const Output = struct { greeting: []const u8 };

pub fn run(state: twice.State(Input)) !Output {
    return .{ .greeting = twice.print("Hello, {s}!", .{state.input.name}) };
}
