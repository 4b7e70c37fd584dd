//go:build linux

package daemon

import (
	"bytes"
	"log/slog"
	"math"
	"net"
	"testing"

	"github.com/chancery-xds/chancery/internal/daemon/procmetrics"
	"github.com/chancery-xds/chancery/internal/listen"
	"github.com/chancery-xds/chancery/store"
)

// A countedListener accepts n connections and then fails.
type countedListener struct {
	net.Listener
	n int
}

func (l *countedListener) Accept() (net.Conn, error) {
	l.n--
	if l.n < 0 {
		return nil, net.ErrClosed
	}
	c, _ := net.Pipe()
	return c, nil
}

// SAFE-9: health and metrics can use a quarter of the reserved files, not all of them.
func TestProbesGetQuarterOfReservedFiles(t *testing.T) {
	log, files := slog.New(slog.DiscardHandler), listen.Files{Soft: 300}
	_, probes := connectionLimits(log, 0, math.MaxInt32, files, procmetrics.New(procmetrics.Options{Snapshot: store.New().Snapshot}))
	l := probes.On(&countedListener{n: files.Reserve()})
	for {
		if _, err := l.Accept(); err != nil {
			break
		}
	}
	if n := probes.Open(); n != files.Reserve()/4 {
		t.Errorf("%d probes are open, of %d reserved files", n, files.Reserve())
	}
}

// SAFE-9: --max-connections is lowered to the limit of open files. If the limit is too low for a
// fleet, the log has a warning.
func TestMaxConnectionsLoweredToFileLimit(t *testing.T) {
	const low, cut = "level=WARN msg=\"the limit of open files is low: it limits how many clients can connect\" ", "level=WARN msg=\"--max-connections was lowered to what the limit of open files allows\" "
	const enough, more = "level=INFO msg=\"limit of open files\" ", " hint=\"raise the hard limit: LimitNOFILE= of systemd, ulimit -Hn\"\n"
	for _, tt := range []struct {
		asked int
		files uint64
		want  string
	}{
		{0, 300, low + "files=300 clients=236" + more},
		{100, 300, low + "files=300 clients=100" + more},
		{1000, 300, low + "files=300 clients=236" + more + cut + "asked=1000 clients=236" + more},
		{0, 65_536, enough + "files=65536 clients=64512\n"},
		{64_512, 65_536, enough + "files=65536 clients=64512\n"},
		{64_513, 65_536, enough + "files=65536 clients=64512\n" + cut + "asked=64513 clients=64512" + more},
		{100, 0, ""}, // the limit of open files is unknown
	} {
		var out bytes.Buffer
		log := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}}))
		connectionLimits(log, tt.asked, math.MaxInt32, listen.Files{Soft: tt.files}, procmetrics.New(procmetrics.Options{Snapshot: store.New().Snapshot}))
		if got := out.String(); got != tt.want {
			t.Errorf("--max-connections %d of %d files: %q, want %q", tt.asked, tt.files, got, tt.want)
		}
	}
}
