// Greets. Requests nothing.
package main

import "twice.dev/node"

type input struct {
	Name string `json:"name"`
}

type output struct {
	Greeting string `json:"greeting"`
}

func hello(state node.State[input]) (output, error) {
	name := state.Input.Name
	if name == "" {
		name = "world"
	}
	return output{"Hello, " + name + "!"}, nil
}

func init() { node.Run(hello) }

func main() {}
