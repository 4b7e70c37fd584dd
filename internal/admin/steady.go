package admin

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"
)

// Limits that end a slow commit, because only maxCommits large commits may arrive at the same time.
const (
	stallTime = 15 * time.Second // maximum total pause
	leastRate = 32 << 10         // minimum bytes per second, without pauses
)

var errStalled = &problem{code: http.StatusRequestTimeout, message: fmt.Sprintf("request too slow: no data for %v, or less than %d KiB/s", stallTime, leastRate>>10)}

// A steady is a reader with a minimum rate and a total timeout of commitTime. So a slow sender does
// not block others for long.
type steady struct {
	in       io.Reader
	deadline func(time.Time) error // sets the read deadline; not all connections support one
	since    time.Time             // start of the request
	n        int64                 // number of bytes read
	stalled  bool                  // the deadline has passed
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
