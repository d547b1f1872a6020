// Refunds an order, once.
//
// The node decides what to ask for. Whether it is allowed, whether a person must approve it, under which idempotency key it is
// sent and what to do after a crash is the business of the workflow, the tool and the host.
package main

import (
	"errors"
	"fmt"

	"twice.dev/node"
	"twice.dev/node/effects"
	"twice.dev/node/log"
)

type input struct {
	OrderID     string  `json:"order_id"`
	AmountCents uint64  `json:"amount_cents"`
	PaidCents   uint64  `json:"paid_cents"`
	Reason      *string `json:"reason"`
}

// Check finds what is missing, which encoding/json takes for empty.
func (o *input) Check() error {
	if o.OrderID == "" {
		return errors.New("missing field `order_id`")
	}
	return nil
}

type refundArgs struct {
	OrderID     string `json:"order_id"`
	AmountCents uint64 `json:"amount_cents"`
	Reason      string `json:"reason"`
}

// refund is what the tool lets a node see of the provider's refund.
type refund struct {
	ID     string `json:"id"`
	Status string `json:"status"`
}

// Check finds what is missing, which encoding/json takes for empty.
func (r *refund) Check() error {
	switch {
	case r.ID == "":
		return errors.New("missing field `id`")
	case r.Status == "":
		return errors.New("missing field `status`")
	}
	return nil
}

type output struct {
	RefundID    string `json:"refund_id"`
	Status      string `json:"status"`
	AmountCents uint64 `json:"amount_cents"`
}

func run(state node.State[input]) (output, error) {
	order := state.Input
	if order.AmountCents == 0 || order.AmountCents > order.PaidCents {
		return output{}, node.Fatal(fmt.Sprintf(
			"%d cents cannot be refunded: %d were paid for %s", order.AmountCents, order.PaidCents, order.OrderID))
	}
	args := refundArgs{order.OrderID, order.AmountCents, "requested by the customer"}
	if order.Reason != nil {
		args.Reason = *order.Reason
	}
	// Started again after a crash, this returns the recorded receipt: the money moves at most once.
	receipt, err := effects.Request[refund]("refund", args)
	if err != nil {
		return output{}, err
	}
	log.Info("%s: %d cents refunded (%s)", order.OrderID, order.AmountCents, receipt.EffectID)
	return output{receipt.Body.ID, receipt.Body.Status, order.AmountCents}, nil
}

func init() { node.Run(run) }

func main() {}
