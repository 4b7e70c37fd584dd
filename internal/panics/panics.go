// Package panics keeps a panic to what it happened in: "A panic behind one
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
)

// A Panic is a panic that was caught. As an error it says so, and what the panic
// said: that is for logs, not for clients.
type Panic struct {
	Value string // at most maxValue bytes of it
	Stack string
}

// maxValue is how much is kept of what a panic says, which may be a client's
// text.
const maxValue = 1 << 10

var caught atomic.Uint64

// Count returns how many panics were caught since the process began.
func Count() uint64 { return caught.Load() }

// Do calls f. If f panics, Do counts that and returns what is known of it; else
// it returns nil. Locks that f held must be given back by defer.
func Do(f func()) (p *Panic) {
	defer func() {
		if v := recover(); v != nil {
			caught.Add(1)
			text := fmt.Sprint(v)
			if len(text) > maxValue {
				text = strings.ToValidUTF8(text[:maxValue], "") + "…"
			}
			p = &Panic{Value: text, Stack: string(debug.Stack())}
		}
	}()
	f()
	return nil
}

// Error implements error.
func (p *Panic) Error() string { return "panic: " + p.Value }

// Log logs the panic with its stack. A logger that panics itself is not waited
// for: there is nobody left to tell.
func (p *Panic) Log(log *slog.Logger, in string, attrs ...slog.Attr) {
	_ = Do(func() {
		log.LogAttrs(context.Background(), slog.LevelError, "panic", append([]slog.Attr{
			slog.String("in", in), slog.String("value", p.Value), slog.String("stack", p.Stack),
		}, attrs...)...)
	})
}
