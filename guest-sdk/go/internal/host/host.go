// Package host is the border between a node and Twice: what `wit/node.wit` says, as Go functions. The packages around it are
// nicer.
package host

// Request asks for one effect.
type Request struct {
	Slot string
	// Item is nil but for a slot that the workflow bound to an array.
	Item *uint32
	Args string
}

// Answer is what became of a request: an effect's id and body, or one of the two refusals.
type Answer struct {
	Outcome Outcome
	// First is the effect's id, the code of a failure or the policy of a denial.
	First string
	// Second is the body of a receipt, or a message.
	Second string
}

// Outcome says what an Answer is.
type Outcome uint8

// What an Answer can be.
const (
	Confirmed Outcome = iota
	Failed
	Denied
)

// Level is how loud a message is.
type Level uint32

// The levels of the log, in the order of the WIT.
const (
	Debug Level = iota
	Info
	Warn
	Error
)

// End is how a node ended.
type End uint8

// How a node can end.
const (
	Returned End = iota
	Retryable
	Fatal
)

// Run is the node. It takes the state as JSON text, and returns an output or a message.
var Run = func(string) (End, string) {
	return Fatal, "there is no node: node.Run was not called. Call it in an init function, as in `func init() { node.Run(f) }`; the host never calls main"
}
