//go:build !wasm

package host

// Outside of a component there is no host. These let a node's package compile for the author's machine, where its other
// functions can be tested.

const absent = "there is no host here: effects, context and log work in a node that Twice runs"

// Perform panics.
func Perform(Request) Answer { panic(absent) }

// PerformAll panics.
func PerformAll([]Request) []Answer { panic(absent) }

// RunID panics.
func RunID() string { panic(absent) }

// Node panics.
func Node() string { panic(absent) }

// Visit panics.
func Visit() uint32 { panic(absent) }

// Attempt panics.
func Attempt() uint32 { panic(absent) }

// Now panics.
func Now() uint64 { panic(absent) }

// Random panics.
func Random(uint32) []byte { panic(absent) }

// Write panics.
func Write(Level, string) { panic(absent) }
