// Package log is the run's log. Messages longer than 8 KiB are cut, and the log of a call ends at the node's limit.
package log

import (
	"fmt"

	"twice.dev/node/internal/host"
)

// Debug writes a message for the author. All of these take what [fmt.Sprintf] takes.
func Debug(format string, args ...any) { host.Write(host.Debug, fmt.Sprintf(format, args...)) }

// Info writes a message for the operator.
func Info(format string, args ...any) { host.Write(host.Info, fmt.Sprintf(format, args...)) }

// Warn writes that something is odd.
func Warn(format string, args ...any) { host.Write(host.Warn, fmt.Sprintf(format, args...)) }

// Error writes that something is wrong.
func Error(format string, args ...any) { host.Write(host.Error, fmt.Sprintf(format, args...)) }
