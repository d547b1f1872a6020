// Package node makes a node for Twice of a Go function.
//
// A node gets the state of its run, computes, requests effects from the host, and returns an output. It never touches the
// world itself. In return it may be started any number of times, after any crash: what it requested before is answered from
// the ledger, and nothing happens a second time.
//
//	package main
//
//	import "twice.dev/node"
//
//	type Greeting struct{ Text string `json:"text"` }
//
//	func hello(state node.State[struct{ Name string }]) (Greeting, error) {
//		return Greeting{"Hello, " + state.Input.Name + "!"}, nil
//	}
//
//	func init() { node.Run(hello) }
//
//	func main() {}
package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"

	"twice.dev/node/internal/host"
	"twice.dev/node/internal/text"
)

// State is the state of the run. Unknown fields are skipped.
type State[Input any] struct {
	// Input is the run's input.
	Input Input `json:"input"`
	// Nodes are the outputs of the nodes that have run.
	Nodes Nodes `json:"nodes"`
	// Element is the element that this step is about, in a fan-out; else nil. Read it with [json.Unmarshal].
	Element json.RawMessage `json:"element"`
}

// Nodes holds, as JSON, the last output of each node that has run, of those whose order before or behind this one is fixed.
type Nodes map[string]json.RawMessage

// Read reads the output of the node called name into value, and says whether there is one.
func (nodes Nodes) Read(name string, value any) (bool, error) {
	output, ran := nodes[name]
	if !ran {
		return false, nil
	}
	if err := text.Into(string(output), value); err != nil {
		return true, fmt.Errorf("the output of node `%s` does not fit: %w", name, err)
	}
	return true, nil
}

// Error is an error that says how the node shall end. Any other error ends the run, as [Fatal] does: the outcome of an
// effect is final, and a restarted node would get the same answer.
type Error struct {
	// Again asks for a restart of the step.
	Again   bool
	Message string
}

func (e *Error) Error() string { return e.Message }

// Retryable starts the step again later, with backoff, as often as the workflow allows. What was confirmed meanwhile stays so.
func Retryable(message string) error { return &Error{true, message} }

// Fatal ends the run: it fails once each of its effects is known to have happened or not.
func Fatal(message string) error { return &Error{false, message} }

// Checker is what a type of an input or a receipt's body can be, to say what is wrong with a value: encoding/json leaves a
// field that is missing at zero.
type Checker interface {
	Check() error
}

// Run makes run the node. Call it once, from an init function: the host never calls main.
func Run[Input, Output any](run func(State[Input]) (Output, error)) {
	host.Run = func(input string) (host.End, string) {
		defer explain()
		return ended(Typed(input, run))
	}
}

// Typed runs a node on JSON text, for its tests.
func Typed[Input, Output any](input string, run func(State[Input]) (Output, error)) (string, error) {
	var state State[Input]
	err := text.Into(input, &state)
	if err == nil {
		err = text.Check(&state.Input)
	}
	if err != nil {
		return "", Fatal("the state does not fit the types of this node: " + err.Error())
	}
	output, err := run(state)
	if err != nil {
		return "", err
	}
	written, err := text.Of(output)
	if err != nil {
		return "", Fatal("the output is no JSON: " + err.Error())
	}
	return written, nil
}

func ended(output string, err error) (host.End, string) {
	var wanted *Error
	switch {
	case err == nil:
		return host.Returned, output
	case errors.As(err, &wanted) && wanted.Again:
		return host.Retryable, err.Error()
	default:
		return host.Fatal, err.Error()
	}
}

// explain writes the reason of a panic to the log before the node dies of it: a trap carries no text.
func explain() {
	reason := recover()
	if reason == nil {
		return
	}
	host.Write(host.Error, fmt.Sprintf("panic: %v%s", reason, place()))
	os.Exit(2)
}

// place lists the callers of the panic, the nearest first.
func place() string {
	var into strings.Builder
	callers := make([]uintptr, 32)
	frames := runtime.CallersFrames(callers[:runtime.Callers(4, callers)])
	for {
		frame, more := frames.Next()
		if strings.HasPrefix(frame.Function, "twice.dev/node.Typed") || frame.Function == "" {
			return into.String()
		}
		fmt.Fprintf(&into, "\n    at %s (%s:%d)", frame.Function, frame.File, frame.Line)
		if !more {
			return into.String()
		}
	}
}
