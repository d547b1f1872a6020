// Package context is what a node may know about where it runs. All of it is durable: a node that is started again sees the
// same values.
package context

import (
	"time"

	"twice.dev/node/internal/host"
)

// RunID is the id of the run.
func RunID() string { return host.RunID() }

// Node is the name of the node in the workflow.
func Node() string { return host.Node() }

// Visit is which visit of the node in this run, from 1.
func Visit() uint32 { return host.Visit() }

// Attempt is which attempt of this visit, from 1. For logs: nothing that is requested may depend on it.
func Attempt() uint32 { return host.Attempt() }

// Now is when the step became due, moved forward by each answered effect to the time of its answer. To the millisecond, in
// UTC.
func Now() time.Time { return time.UnixMilli(int64(host.Now())).UTC() }

// Random is count random bytes, at most 65,536. Continues from call to call. Not secret: whoever knows the run can compute
// them.
func Random(count uint32) []byte { return host.Random(count) }
