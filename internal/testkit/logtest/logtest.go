// Package logtest collects the log of a test from several goroutines.
package logtest

import (
	"strings"
	"sync"
)

// A Log keeps the written text. The zero value is ready to use. It is safe for concurrent use.
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

// String returns the whole log.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// Lines returns the lines that contain a text.
func (l *Log) Lines(with string) (found []string) {
	for line := range strings.Lines(l.String()) {
		if strings.Contains(line, with) {
			found = append(found, line)
		}
	}
	return found
}
