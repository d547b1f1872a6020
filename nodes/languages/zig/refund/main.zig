//! Refunds an order, once.
//!
//! The node decides what to ask for. Whether it is allowed, whether a person must approve it, under which idempotency key it is
//! sent and what to do after a crash is the business of the workflow, the tool and the host.

const twice = @import("twice");

const Input = struct {
    order_id: []const u8,
    amount_cents: u64,
    paid_cents: u64,
    reason: ?[]const u8 = null,
};

/// What the tool lets a node see of the provider's refund.
const Refund = struct { id: []const u8, status: []const u8 };

const Output = struct { refund_id: []const u8, status: []const u8, amount_cents: u64 };

pub fn run(state: twice.State(Input)) !Output {
    const order = state.input;
    if (order.amount_cents == 0 or order.amount_cents > order.paid_cents) return twice.fatal(
        "{d} cents cannot be refunded: {d} were paid for {s}",
        .{ order.amount_cents, order.paid_cents, order.order_id },
    );
    const args = .{
        .order_id = order.order_id,
        .amount_cents = order.amount_cents,
        .reason = order.reason orelse "requested by the customer",
    };
    // Started again after a crash, this returns the recorded receipt: the money moves at most once.
    const receipt = try twice.request("refund", args).receipt();
    const refund = try receipt.as(Refund);
    twice.log.info("{s}: {d} cents refunded ({s})", .{ order.order_id, order.amount_cents, receipt.effect_id });
    return .{ .refund_id = refund.id, .status = refund.status, .amount_cents = order.amount_cents };
}
