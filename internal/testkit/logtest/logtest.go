// Package logtest has the log of a test: what it was told by several goroutines.
package logtest

import (
	"strings"
	"sync"
)

// A Log keeps what is written to it. The zero value is ready to use; several goroutines may use it at once.
type Log struct {
	mu sync.Mutex
	b  strings.Builder
}

// Write implements [io.Writer].
func (l *Log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

// String returns all that was written.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// Lines returns the lines that have a text in them.
func (l *Log) Lines(with string) (found []string) {
	for line := range strings.Lines(l.String()) {
		if strings.Contains(line, with) {
			found = append(found, line)
		}
	}
	return found
}
