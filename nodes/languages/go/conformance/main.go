// Does whatever a test asks of a node: the run's input lists steps, the output lists what came of each.
package main

import (
	crypto "crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand"
	"os"
	"strings"
	"time"

	"twice.dev/node"
	"twice.dev/node/context"
	"twice.dev/node/effects"
	"twice.dev/node/log"
)

type plan struct {
	// Steps are for nodes that are not named below.
	Steps []step            `json:"steps"`
	Nodes map[string][]step `json:"nodes"`
}

// step is any step. JSON that it only hands on stays text, so every number and character stays as it came.
type step struct {
	Do           string  `json:"do"`
	UntilAttempt *uint32 `json:"until_attempt"`
	UntilVisit   *uint32 `json:"until_visit"`
	FromVisit    *uint32 `json:"from_visit"`

	call
	Must     bool            `json:"must"`
	Requests []call          `json:"requests"`
	Bytes    int             `json:"bytes"`
	Depth    int             `json:"depth"`
	Message  string          `json:"message"`
	Level    string          `json:"level"`
	Count    uint32          `json:"count"`
	Output   json.RawMessage `json:"output"`
}

type call struct {
	Slot string          `json:"slot"`
	Item *uint32         `json:"item"`
	Args json.RawMessage `json:"args"`
}

type object = map[string]any

type notes struct {
	Notes []any `json:"notes"`
}

func run(state node.State[plan]) (any, error) {
	steps, named := state.Input.Nodes[context.Node()]
	if !named {
		steps = state.Input.Steps
	}
	came := notes{[]any{}}
	for _, step := range steps {
		switch {
		case step.isLeftOut():
		case step.Do == "return":
			return step.Output, nil
		default:
			note, err := step.take(state.Nodes)
			if err != nil {
				return nil, err
			}
			came.Notes = append(came.Notes, note)
		}
	}
	return came, nil
}

func (s *step) isLeftOut() bool {
	return s.UntilAttempt != nil && context.Attempt() >= *s.UntilAttempt ||
		s.UntilVisit != nil && context.Visit() >= *s.UntilVisit ||
		s.FromVisit != nil && context.Visit() < *s.FromVisit
}

func (s *step) take(nodes node.Nodes) (any, error) {
	switch s.Do {
	case "request":
		answer := s.request()
		if s.Must && answer.Err != nil {
			return nil, answer.Err
		}
		return note(answer), nil
	case "request_all":
		return s.requestAll()
	case "request_big":
		return requested(s.Slot, strings.Repeat("x", s.Bytes)), nil
	case "request_deep":
		nested := strings.Repeat("[", s.Depth) + "null" + strings.Repeat("]", s.Depth)
		return requested(s.Slot, json.RawMessage(nested)), nil
	case "request_volatile":
		return requested(s.Slot, object{"now": context.Now().UnixMilli(), "random": random(8)}), nil
	case "retryable":
		return nil, node.Retryable(s.Message)
	case "fatal":
		return nil, node.Fatal(s.Message)
	case "panic":
		panic(s.Message)
	case "trap":
		os.Exit(1)
		return nil, nil
	case "log":
		s.log()
		return nil, nil
	case "print":
		fmt.Println(s.Message)
		return nil, nil
	case "now":
		return context.Now().UnixMilli(), nil
	case "random":
		return random(s.Count), nil
	case "context":
		return object{
			"run":     context.RunID(),
			"node":    context.Node(),
			"visit":   context.Visit(),
			"attempt": context.Attempt(),
		}, nil
	case "nodes":
		return nodes, nil
	case "native":
		return native(), nil
	default:
		return nil, node.Fatal(fmt.Sprintf("there is no step `%s`", s.Do))
	}
}

func (s *step) request() effects.Answer[json.RawMessage] {
	var receipt effects.Receipt[json.RawMessage]
	var err error
	if s.Item != nil {
		receipt, err = effects.RequestItem[json.RawMessage](s.Slot, *s.Item, s.Args)
	} else {
		receipt, err = effects.Request[json.RawMessage](s.Slot, s.Args)
	}
	return effects.Answer[json.RawMessage]{Receipt: receipt, Err: err}
}

func (s *step) requestAll() (any, error) {
	calls := make([]effects.Call, len(s.Requests))
	for i, one := range s.Requests {
		calls[i] = effects.Call{Slot: one.Slot, Item: one.Item, Args: one.Args}
	}
	answers, err := effects.RequestAll[json.RawMessage](calls)
	if err != nil {
		return nil, err
	}
	came := make([]any, len(answers))
	for i, answer := range answers {
		came[i] = note(answer)
	}
	return came, nil
}

func (s *step) log() {
	write := log.Info
	switch s.Level {
	case "debug":
		write = log.Debug
	case "warn":
		write = log.Warn
	case "error":
		write = log.Error
	}
	write("%s", s.Message)
}

func requested(slot string, args any) any {
	receipt, err := effects.Request[json.RawMessage](slot, args)
	return note(effects.Answer[json.RawMessage]{Receipt: receipt, Err: err})
}

func note(answer effects.Answer[json.RawMessage]) any {
	var failed *effects.Failed
	var denied *effects.Denied
	switch {
	case answer.Err == nil:
		return object{"effect_id": answer.Receipt.EffectID, "body": answer.Receipt.Body}
	case errors.As(answer.Err, &failed):
		return object{"failed": failed.Code, "message": failed.Message}
	case errors.As(answer.Err, &denied):
		return object{"denied": denied.Policy, "message": denied.Message}
	default:
		return object{"misfit": answer.Err.Error()}
	}
}

// random is a list of numbers: encoding/json makes Base64 of bytes.
func random(count uint32) []uint16 {
	numbers := []uint16{}
	for _, one := range context.Random(count) {
		numbers = append(numbers, uint16(one))
	}
	return numbers
}

// native is what Go itself says of time and chance.
func native() any {
	secret := make([]byte, 8)
	crypto.Read(secret)
	order := []string{}
	for key := range map[string]bool{"a": true, "b": true, "c": true, "d": true, "e": true} {
		order = append(order, key)
	}
	before := time.Now()
	time.Sleep(50 * time.Millisecond)
	return object{
		"now":    before.UnixMilli(),
		"slept":  time.Since(before).Milliseconds(),
		"random": rand.Uint32(),
		"crypto": hex.EncodeToString(secret),
		"order":  strings.Join(order, ""),
	}
}

func init() { node.Run(run) }

func main() {}
