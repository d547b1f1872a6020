// Package effects requests effects, the only way in which a node reaches the world.
//
// A request that cannot be answered yet does not return: the host drops the instance, and starts the node again from the
// beginning when the answer is known. What was answered before is then answered at once.
package effects

import (
	"fmt"

	"twice.dev/node/internal/host"
	"twice.dev/node/internal/text"
)

// Receipt is the proof that an effect happened.
type Receipt[Body any] struct {
	// EffectID is the effect's id in the ledger, `eff_…`.
	EffectID string
	// Body is what the tool lets a node see of the provider's result.
	Body Body
}

// Failed says that the effect did not happen. It is final: a restarted node gets the same.
type Failed struct {
	Slot string
	// Code is a stable word, such as the provider's error code, `http_402` or `exhausted`.
	Code string
	// Message is for people.
	Message string
}

func (e *Failed) Error() string {
	return fmt.Sprintf("`%s` failed with %s: %s", e.Slot, e.Code, e.Message)
}

// Denied says that the effect is not allowed, and was not sent. It is final.
type Denied struct {
	Slot string
	// Policy is what refused.
	Policy string
	// Message is for people.
	Message string
}

func (e *Denied) Error() string {
	return fmt.Sprintf("`%s` is denied by %s: %s", e.Slot, e.Policy, e.Message)
}

// BadArgs says that the arguments cannot be written as JSON. Nothing was requested.
type BadArgs struct {
	Slot  string
	Cause error
}

func (e *BadArgs) Error() string {
	return fmt.Sprintf("the arguments of `%s` are no JSON: %v", e.Slot, e.Cause)
}

func (e *BadArgs) Unwrap() error { return e.Cause }

// BadBody says that the effect happened, but that what the tool shows of it does not fit the node's type.
type BadBody struct {
	Slot string
	// EffectID is the effect, which is confirmed.
	EffectID string
	Cause    error
}

func (e *BadBody) Error() string {
	return fmt.Sprintf("`%s` happened (%s), but its receipt does not fit the node's type: %v", e.Slot, e.EffectID, e.Cause)
}

func (e *BadBody) Unwrap() error { return e.Cause }

// Request requests the effect that the workflow grants under slot. Args become JSON as encoding/json makes it; a
// [json.RawMessage] goes out as it is. A body with a method `Check() error` is asked whether it is content.
//
// The error is a [*Failed], [*Denied], [*BadArgs] or [*BadBody].
func Request[Body any](slot string, args any) (Receipt[Body], error) {
	return request[Body](Call{Slot: slot, Args: args})
}

// RequestItem is [Request] for element item, from 0, of the array that the workflow bound to slot with `for_each`.
func RequestItem[Body any](slot string, item uint32, args any) (Receipt[Body], error) {
	return request[Body](Call{Slot: slot, Item: &item, Args: args})
}

// Call is one request of several.
type Call struct {
	Slot string
	// Item is nil but for a slot that the workflow bound to an array.
	Item *uint32
	Args any
}

// ForEach makes one call for each element of the array that the workflow bound to slot, in its order.
func ForEach[Args any](slot string, args []Args) []Call {
	calls := make([]Call, len(args))
	for i, one := range args {
		item := uint32(i)
		calls[i] = Call{Slot: slot, Item: &item, Args: one}
	}
	return calls
}

// Answer is the answer to one call of several. Err is as in [Request].
type Answer[Body any] struct {
	Receipt Receipt[Body]
	Err     error
}

// RequestAll requests several effects, which the host performs concurrently. The answers stand in the order of the calls.
// When one cannot be answered yet, none is: the node starts again when all can.
//
// The error is a [*BadArgs]; then nothing was requested.
func RequestAll[Body any](calls []Call) ([]Answer[Body], error) {
	requests := make([]host.Request, len(calls))
	for i, call := range calls {
		lowered, err := lower(call)
		if err != nil {
			return nil, err
		}
		requests[i] = lowered
	}
	answers := make([]Answer[Body], len(calls))
	for i, answer := range host.PerformAll(requests) {
		receipt, err := read[Body](calls[i].Slot, answer)
		answers[i] = Answer[Body]{receipt, err}
	}
	return answers, nil
}

func request[Body any](call Call) (Receipt[Body], error) {
	lowered, err := lower(call)
	if err != nil {
		return Receipt[Body]{}, err
	}
	return read[Body](call.Slot, host.Perform(lowered))
}

func lower(call Call) (host.Request, error) {
	args, err := text.Of(call.Args)
	if err != nil {
		return host.Request{}, &BadArgs{call.Slot, err}
	}
	return host.Request{Slot: call.Slot, Item: call.Item, Args: args}, nil
}

func read[Body any](slot string, answer host.Answer) (Receipt[Body], error) {
	var receipt Receipt[Body]
	switch answer.Outcome {
	case host.Failed:
		return receipt, &Failed{slot, answer.First, answer.Second}
	case host.Denied:
		return receipt, &Denied{slot, answer.First, answer.Second}
	}
	receipt.EffectID = answer.First
	if err := text.Into(answer.Second, &receipt.Body); err != nil {
		return receipt, &BadBody{slot, receipt.EffectID, err}
	}
	return receipt, nil
}
