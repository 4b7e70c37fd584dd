package cli

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"github.com/chancery-xds/chancery/internal/logs/async"
	"github.com/chancery-xds/chancery/internal/text"
)

// LogFlags has the flags of the log, and the state of the log that Open has opened.
type LogFlags struct {
	Level, Format string

	Lines *async.Writer // queue of lines for the reader of the log
	Now   slog.LevelVar // level of the log: --log-level, or a level that an operator has set later
}

const (
	MaxQueuedLog     = 4 << 20         // bytes of queued lines
	LastLinesTimeout = 2 * time.Second // how long the program waits at its end for the reader of the last lines
)

// Register adds the flags of the log.
func (l *LogFlags) Register(f *pflag.FlagSet) {
	f.StringVar(&l.Level, "log-level", "info", "lowest `LEVEL` to log: debug, info, warn or error")
	f.StringVar(&l.Format, "log-format", "auto", "`FORMAT` of the log: text, json, or auto: text on a terminal, else json")
}

// Open returns a log that writes to w. An error is a wrong flag. After Open, the program continues even
// if the reader of the log exits. It never waits for the reader: a line that does not fit into the queue
// is dropped.
func (l *LogFlags) Open(w io.Writer) (*slog.Logger, error) {
	o := slog.HandlerOptions{Level: &l.Now}
	switch l.Level {
	case "debug":
		l.Now.Set(slog.LevelDebug)
	case "info":
		l.Now.Set(slog.LevelInfo)
	case "warn":
		l.Now.Set(slog.LevelWarn)
	case "error":
		l.Now.Set(slog.LevelError)
	default:
		return nil, fmt.Errorf("--log-level: must be debug, info, warn or error, not %q", l.Level)
	}
	signal.Ignore(syscall.SIGPIPE)
	var to func(io.Writer) slog.Handler
	switch {
	case l.Format == "text" || l.Format == "auto" && terminal(w):
		to = func(w io.Writer) slog.Handler { return slog.NewTextHandler(w, &o) }
	case l.Format == "json" || l.Format == "auto":
		to = func(w io.Writer) slog.Handler { return slog.NewJSONHandler(text.JSONWriter(w), &o) }
	default:
		return nil, fmt.Errorf("--log-format: must be text, json or auto, not %q", l.Format)
	}
	l.Lines = async.New(w, MaxQueuedLog, func(out io.Writer, lost int) {
		slog.New(to(out)).Warn("log lines were lost: the reader of the log is too slow", "lines", lost)
	})
	return slog.New(byLevel{to(l.Lines), to(l.Lines.Urgent())}), nil
}

// byLevel sends errors to the writer for urgent lines. That writer has a higher limit, so errors still
// have room when other lines are dropped.
type byLevel struct {
	slog.Handler
	errors slog.Handler
}

func (h byLevel) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelError {
		return h.errors.Handle(ctx, r)
	}
	return h.Handler.Handle(ctx, r)
}

func (h byLevel) WithAttrs(as []slog.Attr) slog.Handler {
	return byLevel{h.Handler.WithAttrs(as), h.errors.WithAttrs(as)}
}

func (h byLevel) WithGroup(name string) slog.Handler {
	return byLevel{h.Handler.WithGroup(name), h.errors.WithGroup(name)}
}

// Close waits at most LastLinesTimeout until the queued lines are read.
func (l *LogFlags) Close() { l.Lines.Close(LastLinesTimeout) }

func terminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
