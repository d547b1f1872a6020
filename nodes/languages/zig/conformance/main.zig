//! Does whatever a test asks of a node: the run's input lists steps, the output lists what came of each.

const std = @import("std");
const twice = @import("twice");

const Plan = struct {
    /// For nodes that are not named below.
    steps: []const Step = &.{},
    nodes: std.json.ArrayHashMap([]const Step) = .{},
};

const Do = enum {
    request,
    request_all,
    request_big,
    request_deep,
    request_volatile,
    retryable,
    fatal,
    panic,
    trap,
    log,
    print,
    now,
    random,
    context,
    nodes,
    native,
    @"return",
};

/// Any step. JSON that it only hands on stays text, so every number and character stays as it came.
const Step = struct {
    do: Do,
    until_attempt: u32 = std.math.maxInt(u32),
    until_visit: u32 = std.math.maxInt(u32),
    from_visit: u32 = 0,
    slot: []const u8 = "",
    item: ?u32 = null,
    args: twice.Raw = .null_value,
    must: bool = false,
    requests: []const struct { slot: []const u8, item: ?u32 = null, args: twice.Raw = .null_value } = &.{},
    bytes: usize = 0,
    depth: usize = 0,
    message: []const u8 = "",
    level: []const u8 = "info",
    count: u32 = 0,
    output: twice.Raw = .null_value,

    fn isLeftOut(self: Step) bool {
        const attempt, const visit = .{ twice.context.attempt(), twice.context.visit() };
        return attempt >= self.until_attempt or visit >= self.until_visit or visit < self.from_visit;
    }
};

pub fn run(state: twice.State(Plan)) !twice.Raw {
    const steps = state.input.nodes.map.get(twice.context.node()) orelse state.input.steps;
    var notes: std.ArrayList(twice.Raw) = .empty;
    for (steps) |step| {
        if (step.isLeftOut()) continue;
        if (step.do == .@"return") return step.output;
        try notes.append(twice.allocator, try take(step, state.nodes));
    }
    return twice.json(.{ .notes = notes.items });
}

fn take(step: Step, nodes: std.json.ArrayHashMap(twice.Raw)) !twice.Raw {
    switch (step.do) {
        .request => {
            const answer = if (step.item) |item|
                twice.requestItem(step.slot, item, step.args)
            else
                twice.request(step.slot, step.args);
            if (step.must) _ = try answer.receipt();
            return note(answer);
        },
        .request_all => return requestAll(step),
        .request_big => {
            const text = try twice.allocator.alloc(u8, step.bytes);
            @memset(text, 'x');
            return note(twice.request(step.slot, text));
        },
        .request_deep => return note(twice.request(step.slot, try nested(step.depth))),
        .request_volatile => return note(twice.request(step.slot, .{
            .now = twice.context.now(),
            .random = try random(8),
        })),
        .retryable => return twice.retryable("{s}", .{step.message}),
        .fatal => return twice.fatal("{s}", .{step.message}),
        .panic => std.debug.panic("{s}", .{step.message}),
        .trap => @trap(),
        .log => {
            const level = std.meta.stringToEnum(twice.log.Level, step.level);
            twice.log.write(level orelse if (std.mem.eql(u8, step.level, "error")) .err else .info, step.message);
            return .null_value;
        },
        .print => {
            std.log.info("{s}", .{step.message});
            return .null_value;
        },
        .now => return twice.json(twice.context.now()),
        .random => return twice.json(try random(step.count)),
        .context => return twice.json(.{
            .run = twice.context.runId(),
            .node = twice.context.node(),
            .visit = twice.context.visit(),
            .attempt = twice.context.attempt(),
        }),
        .nodes => return twice.json(nodes),
        // Without a system below it, Zig has neither a clock nor randomness.
        .native => return .{ .text = "{}" },
        .@"return" => unreachable,
    }
}

fn requestAll(step: Step) !twice.Raw {
    const calls = try twice.allocator.alloc(twice.Call, step.requests.len);
    for (calls, step.requests) |*call, one| call.* = .{ .slot = one.slot, .item = one.item, .args = one.args };
    const answers = twice.requestAll(calls);
    const notes = try twice.allocator.alloc(twice.Raw, answers.len);
    for (notes, answers) |*each, answer| each.* = note(answer);
    return twice.json(notes);
}

fn note(answer: twice.Answer) twice.Raw {
    return switch (answer) {
        .confirmed => |receipt| twice.json(.{ .effect_id = receipt.effect_id, .body = receipt.body }),
        .failed => |no| twice.json(.{ .failed = no.code, .message = no.message }),
        .denied => |no| twice.json(.{ .denied = no.policy, .message = no.message }),
    };
}

/// A list of numbers: bytes would be written as a text.
fn random(count: u32) ![]const u16 {
    const numbers = try twice.allocator.alloc(u16, count);
    for (numbers, twice.context.random(count)) |*number, byte| number.* = byte;
    return numbers;
}

fn nested(depth: usize) !twice.Raw {
    const text = try twice.allocator.alloc(u8, 2 * depth + 4);
    @memset(text[0..depth], '[');
    @memcpy(text[depth..][0..4], "null");
    @memset(text[depth + 4 ..], ']');
    return .{ .text = text };
}
