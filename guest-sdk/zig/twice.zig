//! Write nodes for Twice in Zig.
//!
//! A node is one function, `run`, in `main.zig`. It gets the state of its run, computes, requests effects from the host, and
//! returns an output or an error. It never touches the world itself. In return it may be started any number of times, after any
//! crash: what it requested before is answered from the ledger, and nothing happens a second time.
//!
//! Everything that this file hands out lives in `allocator`, which is emptied when the node has ended. There is nothing to free.

const std = @import("std");

var arena: std.heap.ArenaAllocator = .init(std.heap.wasm_allocator);

/// Memory that lasts until the node has ended.
pub const allocator = arena.allocator();

/// The state of the run. Unknown fields are skipped.
pub fn State(comptime Input: type) type {
    return struct {
        /// The run's input.
        input: Input,
        /// The last output of each node that has run, of those whose order before or behind this one is fixed:
        /// `state.nodes.map.get("refund")`.
        nodes: std.json.ArrayHashMap(Raw) = .{},
        /// The element that this step is about, in a fan-out.
        element: ?Raw = null,
    };
}

/// JSON text. As a field of a type it takes whatever stands there, to the last digit.
pub const Raw = struct {
    text: []const u8,

    pub const null_value: Raw = .{ .text = "null" };

    /// Reads it as a `T`. Where it does not fit, the node ends as fatal.
    pub fn as(self: Raw, comptime T: type) Failure!T {
        return switch (read(T, self.text)) {
            .value => |value| value,
            .problem => |problem| fatal("JSON does not fit: {s}", .{problem}),
        };
    }

    pub fn jsonParse(_: std.mem.Allocator, source: anytype, _: std.json.ParseOptions) !Raw {
        // Moves to the value's first character.
        _ = try source.peekNextTokenType();
        const from = source.cursor;
        try source.skipValue();
        return .{ .text = source.input[from..source.cursor] };
    }

    pub fn jsonStringify(self: Raw, into: *std.json.Stringify) !void {
        try into.beginWriteRaw();
        try into.writer.writeAll(self.text);
        into.endWriteRaw();
    }
};

/// Writes any value as JSON.
pub fn json(value: anytype) Raw {
    return .{ .text = std.json.Stringify.valueAlloc(allocator, value, .{}) catch outOfMemory() };
}

/// How a node ends without an output. Its message is kept aside, since an error of Zig's carries none.
pub const Failure = error{
    /// Start the step again later, with backoff, as often as the workflow allows. What was confirmed meanwhile stays so.
    Retryable,
    /// The run cannot go on, and fails once each of its effects is known to have happened or not.
    Fatal,
};

/// `return twice.retryable("{s} is busy", .{name});`
pub fn retryable(comptime format: []const u8, args: anytype) Failure {
    said = print(format, args);
    return error.Retryable;
}

/// `return twice.fatal("there is nothing to refund", .{});`
pub fn fatal(comptime format: []const u8, args: anytype) Failure {
    said = print(format, args);
    return error.Fatal;
}

var said: []const u8 = "";

/// A text, as `std.fmt` makes it.
pub fn print(comptime format: []const u8, args: anytype) []const u8 {
    return std.fmt.allocPrint(allocator, format, args) catch outOfMemory();
}

/// The proof that an effect happened.
pub const Receipt = struct {
    slot: []const u8,
    /// The effect's id in the ledger, `eff_…`.
    effect_id: []const u8,
    /// What the tool lets a node see of the provider's result.
    body: Raw,

    /// Reads the body as a `T`. Where it does not fit, the node ends as fatal.
    pub fn as(self: Receipt, comptime T: type) Failure!T {
        return switch (read(T, self.body.text)) {
            .value => |value| value,
            .problem => |problem| fatal(
                "`{s}` happened ({s}), but its receipt does not fit the node's type: {s}",
                .{ self.slot, self.effect_id, problem },
            ),
        };
    }
};

/// What became of a request. A refusal is final: a restarted node gets the same.
pub const Answer = union(enum) {
    confirmed: Receipt,
    /// It did not happen.
    failed: struct {
        slot: []const u8,
        /// A stable word, such as the provider's error code, `http_402` or `exhausted`.
        code: []const u8,
        /// For people.
        message: []const u8,
    },
    /// It is not allowed, and was not sent.
    denied: struct {
        slot: []const u8,
        /// What refused.
        policy: []const u8,
        /// For people.
        message: []const u8,
    },

    /// The receipt; a refusal ends the node as fatal.
    pub fn receipt(self: Answer) Failure!Receipt {
        return switch (self) {
            .confirmed => |confirmed| confirmed,
            .failed => |no| fatal("`{s}` failed with {s}: {s}", .{ no.slot, no.code, no.message }),
            .denied => |no| fatal("`{s}` is denied by {s}: {s}", .{ no.slot, no.policy, no.message }),
        };
    }
};

/// Requests the effect that the workflow grants under `slot`, with what `json` makes of `args`. A request that cannot be
/// answered yet does not return: the host drops the instance, and starts the node again from the beginning when the answer is
/// known.
pub fn request(slot: []const u8, args: anytype) Answer {
    return perform(.{ .slot = slot, .args = json(args) });
}

/// Requests the effect for element `item`, from 0, of the array that the workflow bound to `slot` with `for_each`.
pub fn requestItem(slot: []const u8, item: u32, args: anytype) Answer {
    return perform(.{ .slot = slot, .item = item, .args = json(args) });
}

/// One request of several.
pub const Call = struct {
    slot: []const u8,
    /// Null but for a slot that is bound to an array.
    item: ?u32 = null,
    args: Raw = .null_value,
};

/// Requests several, which the host performs concurrently. The answers stand in the order of the calls. When one cannot be
/// answered yet, none is: the node starts again when all can.
pub fn requestAll(calls: []const Call) []const Answer {
    // One is there even for none: Zig would point outside of memory, which the host refuses.
    const requests = alloc(abi.Request, @max(calls.len, 1))[0..calls.len];
    for (requests, calls) |*lowered, call| lowered.* = .{
        .slot = .of(call.slot),
        .has_item = @intFromBool(call.item != null),
        .item = call.item orelse 0,
        .args = .of(call.args.text),
    };
    var into: abi.Results = undefined;
    abi.@"request-all"(requests.ptr, requests.len, &into);
    const answers = alloc(Answer, calls.len);
    for (answers, calls, into.ptr[0..calls.len]) |*answer, call, lowered| answer.* = lowered.lift(call.slot);
    return answers;
}

fn perform(call: Call) Answer {
    var into: abi.Result = undefined;
    const slot: abi.Text, const args: abi.Text = .{ .of(call.slot), .of(call.args.text) };
    const has_item = @intFromBool(call.item != null);
    abi.request(slot.ptr, slot.len, has_item, call.item orelse 0, args.ptr, args.len, &into);
    return into.lift(call.slot);
}

/// What a node may know about where it runs. All of it is durable: a node that is started again sees the same values.
pub const context = struct {
    /// The id of the run.
    pub fn runId() []const u8 {
        return told(abi.@"run-id");
    }
    /// The name of the node in the workflow.
    pub fn node() []const u8 {
        return told(abi.node);
    }
    /// Which visit of the node in this run, from 1.
    pub fn visit() u32 {
        return abi.visit();
    }
    /// Which attempt of this visit, from 1. For logs: nothing that is requested may depend on it.
    pub fn attempt() u32 {
        return abi.attempt();
    }
    /// Milliseconds since 1970-01-01T00:00:00Z: when the step became due, moved forward by each answered effect to the time of
    /// its answer.
    pub fn now() u64 {
        return abi.now();
    }
    /// The next random bytes, at most 65,536. Not secret: whoever knows the run can compute them.
    pub fn random(count: u32) []const u8 {
        var into: abi.Text = undefined;
        abi.random(count, &into);
        return into.lift();
    }
    fn told(ask: *const fn (*abi.Text) callconv(.c) void) []const u8 {
        var into: abi.Text = undefined;
        ask(&into);
        return into.lift();
    }
};

/// The run's log. Messages longer than 8 KiB are cut, and the log of a call ends at the node's limit. `std.log` goes here too.
pub const log = struct {
    pub const Level = enum(u32) { debug, info, warn, err };

    pub fn write(level: Level, message: []const u8) void {
        const text: abi.Text = .of(message);
        abi.write(@intFromEnum(level), text.ptr, text.len);
    }
    pub fn debug(comptime format: []const u8, args: anytype) void {
        write(.debug, print(format, args));
    }
    pub fn info(comptime format: []const u8, args: anytype) void {
        write(.info, print(format, args));
    }
    pub fn warn(comptime format: []const u8, args: anytype) void {
        write(.warn, print(format, args));
    }
    pub fn err(comptime format: []const u8, args: anytype) void {
        write(.err, print(format, args));
    }
};

/// For `std.Options.logFn`.
pub fn logFn(
    comptime level: std.log.Level,
    comptime scope: @EnumLiteral(),
    comptime format: []const u8,
    args: anytype,
) void {
    const prefix = if (scope == .default) "" else @tagName(scope) ++ ": ";
    log.write(@field(log.Level, @tagName(level)), print(prefix ++ format, args));
}

/// For `std.debug.FullPanic`: a trap carries no text, so the reason goes to the log first.
pub fn panicked(message: []const u8, _: ?usize) noreturn {
    log.write(.err, message);
    @trap();
}

fn outOfMemory() noreturn {
    panicked("out of memory", null);
}

fn alloc(comptime T: type, count: usize) []T {
    return allocator.alloc(T, count) catch outOfMemory();
}

fn Reading(comptime T: type) type {
    return union(enum) { value: T, problem: []const u8 };
}

fn read(comptime T: type, text: []const u8) Reading(T) {
    var scanner: std.json.Scanner = .initCompleteInput(allocator, text);
    var place: std.json.Scanner.Diagnostics = .{};
    scanner.enableDiagnostics(&place);
    const options: std.json.ParseOptions = .{ .ignore_unknown_fields = true };
    const value = std.json.parseFromTokenSourceLeaky(T, allocator, &scanner, options) catch |problem| return .{
        .problem = print("{t} at line {d} column {d}", .{ problem, place.getLine(), place.getColumn() }),
    };
    return .{ .value = value };
}

/// Exports `run` as the node. `root.zig` does it.
pub fn exportNode(comptime run: anytype) void {
    const Input = @typeInfo(@TypeOf(run)).@"fn".param_types[0].?;
    const exports = struct {
        var end: abi.End = undefined;

        fn start(ptr: [*]const u8, len: usize) callconv(.c) *abi.End {
            end = ended(ptr[0..len]) catch |failure| .{ .failed = 1, .of = .{ .failure = .{
                .fatal = @intFromBool(failure != error.Retryable),
                .message = .of(switch (failure) {
                    error.Retryable, error.Fatal => said,
                    else => @errorName(failure),
                }),
            } } };
            return &end;
        }

        fn ended(text: []const u8) anyerror!abi.End {
            const state = switch (read(Input, text)) {
                .value => |value| value,
                .problem => |problem| return fatal("the state does not fit the types of this node: {s}", .{problem}),
            };
            return .{ .failed = 0, .of = .{ .output = .of(json(try run(state)).text) } };
        }

        fn postRun(_: *abi.End) callconv(.c) void {
            _ = arena.reset(.free_all);
        }

        fn realloc(old: [*]const u8, old_len: usize, alignment: usize, len: usize) callconv(.c) [*]u8 {
            // A pointer to nothing needs only its alignment.
            if (len == 0) return @ptrFromInt(alignment);
            const new = alloc(u64, (len + 7) / 8);
            const bytes: [*]u8 = @ptrCast(new.ptr);
            @memcpy(bytes[0..old_len], old[0..old_len]);
            return bytes;
        }
    };
    @export(&exports.start, .{ .name = "run" });
    @export(&exports.postRun, .{ .name = "cabi_post_run" });
    @export(&exports.realloc, .{ .name = "cabi_realloc" });
}

/// The border: the canonical ABI of `wit/node.wit`.
const abi = struct {
    const Text = extern struct {
        ptr: [*]const u8,
        len: usize,

        /// Where it has nothing to point at, Zig points outside of memory, which the host refuses.
        fn of(text: []const u8) Text {
            if (text.len == 0) return .{ .ptr = "", .len = 0 };
            return .{ .ptr = text.ptr, .len = text.len };
        }
        fn lift(self: Text) []const u8 {
            return self.ptr[0..self.len];
        }
    };

    const Request = extern struct { slot: Text, has_item: u8, item: u32, args: Text };

    /// A `result<receipt, effect-error>`.
    const Result = extern struct {
        refused: u8,
        of: extern union {
            receipt: extern struct { effect_id: Text, body: Text },
            refusal: extern struct { denied: u8, reason: Text, message: Text },
        },

        fn lift(self: Result, slot: []const u8) Answer {
            if (self.refused == 0) {
                const receipt = self.of.receipt;
                return .{ .confirmed = .{
                    .slot = slot,
                    .effect_id = receipt.effect_id.lift(),
                    .body = .{ .text = receipt.body.lift() },
                } };
            }
            const refusal = self.of.refusal;
            const message = refusal.message.lift();
            if (refusal.denied == 1)
                return .{ .denied = .{ .slot = slot, .policy = refusal.reason.lift(), .message = message } };
            return .{ .failed = .{ .slot = slot, .code = refusal.reason.lift(), .message = message } };
        }
    };

    const Results = extern struct { ptr: [*]const abi.Result, len: usize };

    /// A `result<string, node-error>`.
    const End = extern struct {
        failed: u8,
        of: extern union {
            output: Text,
            failure: extern struct { fatal: u8, message: Text },
        },
    };

    extern "twice:node/effects@0.1.0" fn request([*]const u8, usize, u32, u32, [*]const u8, usize, *Result) void;
    extern "twice:node/effects@0.1.0" fn @"request-all"([*]const Request, usize, *Results) void;
    extern "twice:node/context@0.1.0" fn @"run-id"(*Text) void;
    extern "twice:node/context@0.1.0" fn node(*Text) void;
    extern "twice:node/context@0.1.0" fn visit() u32;
    extern "twice:node/context@0.1.0" fn attempt() u32;
    extern "twice:node/context@0.1.0" fn now() u64;
    extern "twice:node/context@0.1.0" fn random(u32, *Text) void;
    extern "twice:node/log@0.1.0" fn write(u32, [*]const u8, usize) void;
};
