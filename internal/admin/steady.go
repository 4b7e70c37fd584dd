package admin

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"
)

// How slowly a commit may come: it has one of few places for as long.
const (
	stallTime = 15 * time.Second // without a byte
	leastRate = 32 << 10         // bytes a second, but for a stall
)

var errStalled = &problem{code: http.StatusRequestTimeout, message: fmt.Sprintf("what was sent came too slowly: nothing for %v, or less than %d KiB a second", stallTime, leastRate>>10)}

// A steady reads what comes at a rate, and takes commitTime at most: others wait for the place of who does not send.
type steady struct {
	in       io.Reader
	deadline func(time.Time) error // of reading; not all connections have one
	since    time.Time             // when it began
	n        int64                 // bytes
	stalled  bool                  // it has ended because of that
}

// Read implements io.Reader.
func (s *steady) Read(b []byte) (int, error) {
	after := min(time.Since(s.since), time.Duration(s.n)*time.Second/leastRate)
	_ = s.deadline(s.since.Add(min(after+stallTime, commitTime)))
	n, err := s.in.Read(b)
	s.n += int64(n)
	s.stalled = s.stalled || errors.Is(err, os.ErrDeadlineExceeded)
	return n, err
}
