//go:build wasm

package host

import "unsafe"

// The layout of the canonical ABI, for a memory of 32 bits. Go's own pointers have 64: here an address is a number, and
// what lies at it must be kept alive by something else.

type address uint32

type text struct {
	at     address
	length uint32
}

type request struct {
	slot    text
	hasItem uint32
	item    uint32
	args    text
}

// answer is a result<receipt, effect-error>. Of the tags the host writes the first byte alone.
type answer struct {
	refused uint8
	// words are the four of a receipt, or a tag and the four of a failure or a denial.
	words [5]uint32
}

type result struct {
	failed uint32
	// words are the two of the output, or a tag and the two of a message.
	words [3]uint32
}

//go:wasmimport twice:node/effects@0.1.0 request
func effectsRequest(slot address, slotLength uint32, hasItem, item uint32, args address, argsLength uint32, out unsafe.Pointer)

//go:wasmimport twice:node/effects@0.1.0 request-all
func effectsRequestAll(requests unsafe.Pointer, count uint32, out unsafe.Pointer)

//go:wasmimport twice:node/context@0.1.0 run-id
func contextRunID(out unsafe.Pointer)

//go:wasmimport twice:node/context@0.1.0 node
func contextNode(out unsafe.Pointer)

//go:wasmimport twice:node/context@0.1.0 visit
func contextVisit() uint32

//go:wasmimport twice:node/context@0.1.0 attempt
func contextAttempt() uint32

//go:wasmimport twice:node/context@0.1.0 now
func contextNow() uint64

//go:wasmimport twice:node/context@0.1.0 random
func contextRandom(count uint32, out unsafe.Pointer)

//go:wasmimport twice:node/log@0.1.0 write
func logWrite(level uint32, message unsafe.Pointer, length uint32)

// inbound holds what the host has written until it is read: without a reference the collector would take it.
var inbound []unsafe.Pointer

// asked holds the requests while the host reads them. It is a variable of the package so that nothing of them lies on a
// stack, which may move.
var asked []Request

// ended is the node's result. The host reads it after run has returned.
var ended struct {
	result result
	said   string
}

//go:wasmexport cabi_realloc
func cabiRealloc(old unsafe.Pointer, oldSize, align, size uint32) unsafe.Pointer {
	if size == 0 {
		// A pointer to nothing needs only its alignment.
		return unsafe.Add(unsafe.Pointer(nil), align)
	}
	// Words, since the small-object allocator aligns bytes by their number.
	words := make([]uint64, (uint64(size)+7)/8)
	at := unsafe.Pointer(unsafe.SliceData(words))
	if oldSize > 0 {
		copy(unsafe.Slice((*byte)(at), size), unsafe.Slice((*byte)(old), oldSize))
	}
	inbound = append(inbound, at)
	return at
}

//go:wasmexport run
func run(at unsafe.Pointer, length uint32) unsafe.Pointer {
	input := text{address(uintptr(at)), length}.lift()
	inbound = nil
	end, said := Run(input)
	ended.said = said
	of := lower(said)
	switch end {
	case Returned:
		ended.result = result{0, [3]uint32{uint32(of.at), of.length}}
	case Retryable:
		ended.result = result{1, [3]uint32{0, uint32(of.at), of.length}}
	case Fatal:
		ended.result = result{1, [3]uint32{1, uint32(of.at), of.length}}
	}
	return unsafe.Pointer(&ended.result)
}

//go:wasmexport cabi_post_run
func postRun(unsafe.Pointer) {
	ended.said = ""
}

// lift makes a string of what the host has written, without a copy: nothing else refers to it.
func (t text) lift() string {
	if t.length == 0 {
		return ""
	}
	return unsafe.String((*byte)(t.at.pointer()), t.length)
}

// pointer is what a plain conversion would be too, if go vet could tell that the address is one.
func (a address) pointer() unsafe.Pointer {
	return unsafe.Add(unsafe.Pointer(nil), a)
}

func lower(s string) text {
	return text{address(uintptr(unsafe.Pointer(unsafe.StringData(s)))), uint32(len(s))}
}

func (a *answer) lift() Answer {
	words := a.words[:4]
	outcome := Confirmed
	if a.refused == 1 {
		outcome = Failed
		if uint8(a.words[0]) == 1 {
			outcome = Denied
		}
		words = a.words[1:]
	}
	first, second := text{address(words[0]), words[1]}, text{address(words[2]), words[3]}
	return Answer{outcome, first.lift(), second.lift()}
}

func (r *Request) lower() request {
	lowered := request{slot: lower(r.Slot), args: lower(r.Args)}
	if r.Item != nil {
		lowered.hasItem, lowered.item = 1, *r.Item
	}
	return lowered
}

// Perform requests one effect.
func Perform(one Request) Answer {
	asked = []Request{one}
	r := asked[0].lower()
	out := new(answer)
	effectsRequest(r.slot.at, r.slot.length, r.hasItem, r.item, r.args.at, r.args.length, unsafe.Pointer(out))
	answer := out.lift()
	asked, inbound = nil, nil
	return answer
}

// PerformAll requests several effects. The answers stand in the order of the requests.
func PerformAll(all []Request) []Answer {
	asked = all
	requests := make([]request, len(asked))
	for i := range asked {
		requests[i] = asked[i].lower()
	}
	out := new(text)
	effectsRequestAll(unsafe.Pointer(unsafe.SliceData(requests)), uint32(len(requests)), unsafe.Pointer(out))
	answers := make([]Answer, out.length)
	if out.length > 0 {
		for i, answer := range unsafe.Slice((*answer)(out.at.pointer()), out.length) {
			answers[i] = answer.lift()
		}
	}
	asked, inbound = nil, nil
	return answers
}

// RunID is the id of the run.
func RunID() string { return told(contextRunID) }

// Node is the name of the node.
func Node() string { return told(contextNode) }

// Visit is which visit of the node this is.
func Visit() uint32 { return contextVisit() }

// Attempt is which attempt of the visit this is.
func Attempt() uint32 { return contextAttempt() }

// Now is the durable time in milliseconds.
func Now() uint64 { return contextNow() }

// Random is the next count durable bytes.
func Random(count uint32) []byte {
	return []byte(told(func(out unsafe.Pointer) { contextRandom(count, out) }))
}

// Write writes a message to the log.
func Write(level Level, message string) {
	logWrite(uint32(level), unsafe.Pointer(unsafe.StringData(message)), uint32(len(message)))
}

// told asks for a text or a list of bytes.
func told(ask func(out unsafe.Pointer)) string {
	out := new(text)
	ask(unsafe.Pointer(out))
	told := out.lift()
	inbound = nil
	return told
}
