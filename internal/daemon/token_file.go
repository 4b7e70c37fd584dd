package daemon

import (
	"errors"
	"log/slog"
	"sync"
	"time"
)

// tokenTime is how long a request waits for a read of the token.
const tokenTime = time.Second

// A tokenFile reads the token of the admin API. One read runs at a time. While a read does not end, as on a hung
// network mount, the last token stays.
type tokenFile struct {
	read func() (string, error)
	log  *slog.Logger

	mu     sync.Mutex    // not held during I/O
	done   chan struct{} // of the read that is under way; nil: none
	began  time.Time     // of this read
	warned bool          // that this read does not end
	token  string        // the result of the read before
	err    error
}

func newTokenFile(read func() (string, error), log *slog.Logger) *tokenFile {
	return &tokenFile{read: read, log: log, err: errors.New("--admin-token-file: the file system does not answer")}
}

// Token returns the token in the file.
func (f *tokenFile) Token() (string, error) {
	f.mu.Lock()
	if f.done == nil {
		f.done, f.began, f.warned = make(chan struct{}), time.Now(), false
		go f.look(f.done)
	}
	done, left := f.done, tokenTime-time.Since(f.began)
	f.mu.Unlock()
	t := time.NewTimer(left) // fires at once if the time is over
	defer t.Stop()
	select {
	case <-done:
	case <-t.C:
	}
	f.mu.Lock()
	warn := f.done == done && !f.warned && f.err == nil
	f.warned = f.warned || warn
	token, err := f.token, f.err
	f.mu.Unlock()
	if warn {
		f.log.Warn("a read of the admin API's token does not end, using the last token", "after", tokenTime.String())
	}
	return token, err
}

func (f *tokenFile) look(done chan struct{}) {
	token, err := f.read()
	f.mu.Lock()
	f.token, f.err, f.done = token, err, nil
	f.mu.Unlock()
	close(done)
}
