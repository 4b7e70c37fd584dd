package daemon

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/chancery-xds/chancery/internal/disk"
)

// A tokenFile reads the token of the admin API for each request, so that a new token works at once. While a read
// hangs, the last token stays.
type tokenFile struct {
	read  func() (string, error)
	log   *slog.Logger
	reads disk.Reads

	mu    sync.Mutex // not held during I/O
	token string     // the result of the last read
	err   error
}

func newTokenFile(read func() (string, error), log *slog.Logger) *tokenFile {
	return &tokenFile{read: read, log: log, err: errors.New("--admin-token-file: the file system does not answer")}
}

// Token returns the token in the file.
func (f *tokenFile) Token() (string, error) {
	_, first := f.reads.Do(context.Background(), time.Now(), 0, f.look)
	f.mu.Lock()
	defer f.mu.Unlock()
	if first && f.err == nil {
		f.log.Warn("a read of the admin API's token does not end, using the last token", "after", disk.ReadTime.String())
	}
	return f.token, f.err
}

func (f *tokenFile) look() {
	token, err := f.read()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.token, f.err = token, err
}
