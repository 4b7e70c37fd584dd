package admin

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"
)

// Minimum speed of a sender of a commit, because only maxCommits commits may run at the same time.
const (
	stallTime = 15 * time.Second // longest total pause
	leastRate = 32 << 10         // bytes per second, pauses not counted
)

var errStalled = &problem{code: http.StatusRequestTimeout, message: fmt.Sprintf("request too slow: no data for %v, or less than %d KiB/s", stallTime, leastRate>>10)}

// A steady is a reader with a minimum rate and a total timeout of commitTime, so that slow senders do not
// block others.
type steady struct {
	in       io.Reader
	deadline func(time.Time) error // sets the read deadline; not all connections support it
	since    time.Time             // when the request began
	n        int64                 // bytes
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
