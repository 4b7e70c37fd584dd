// Package panics runs a function and returns its panic as an error (SAFE-8): "A panic behind one
// stream, poll, observer or source ends that one, is logged with its stack and
// counted; the process lives."
package panics

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"sync/atomic"

	"github.com/chancery-xds/chancery/internal/text"
)

// A Panic is a panic that was caught. Its error text includes the value of the panic, so it
// belongs in logs and must not be sent to clients.
type Panic struct {
	Value string // clipped to maxValue bytes
	Stack string
}

// maxValue limits the value that is kept, in bytes: it may be text from a client.
const maxValue = 1 << 10

var caught atomic.Uint64

// Count returns the number of panics caught since the process started.
func Count() uint64 { return caught.Load() }

// Do calls f. It returns nil, or the panic of f, which it counts. A lock that f holds must be
// released by defer.
func Do(f func()) (p *Panic) {
	defer func() {
		if v := recover(); v != nil {
			caught.Add(1)
			value := strings.ToValidUTF8(text.Head(fmt.Sprint(v), maxValue), "")
			p = &Panic{Value: value, Stack: string(debug.Stack())}
		}
	}()
	f()
	return nil
}

// Error implements error.
func (p *Panic) Error() string { return "panic: " + p.Value }

// Log logs the panic with its stack. The part of the program that panicked is named by in. A panic of
// the logger itself is dropped.
func (p *Panic) Log(log *slog.Logger, in string, attrs ...slog.Attr) {
	_ = Do(func() {
		log.LogAttrs(context.Background(), slog.LevelError, "panic", append([]slog.Attr{
			slog.String("in", in), slog.String("value", p.Value), slog.String("stack", p.Stack),
		}, attrs...)...)
	})
}
