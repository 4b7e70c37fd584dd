package main

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
)

// A logging is how to log, as the flags say.
type logging struct {
	level, format string

	lines *async.Writer // that wait for their reader
	now   slog.LevelVar // level, or what an operator has chosen since
}

const (
	maxWaiting = 4 << 20         // bytes of lines that wait
	lastLines  = 2 * time.Second // for the last lines to be read when the program ends
)

func (l *logging) flags(f *pflag.FlagSet) {
	f.StringVar(&l.level, "log-level", "info", "lowest `LEVEL` to log: debug, info, warn or error")
	f.StringVar(&l.format, "log-format", "auto", "`FORMAT` of the log: text, json, or auto: text on a terminal, else json")
}

// open returns a log to w; an error is one of usage. From then on the program outlives
// who reads the log, and waits for nobody who does: a line that cannot be told is lost.
func (l *logging) open(w io.Writer) (*slog.Logger, error) {
	o := slog.HandlerOptions{Level: &l.now}
	switch l.level {
	case "debug":
		l.now.Set(slog.LevelDebug)
	case "info":
		l.now.Set(slog.LevelInfo)
	case "warn":
		l.now.Set(slog.LevelWarn)
	case "error":
		l.now.Set(slog.LevelError)
	default:
		return nil, fmt.Errorf("--log-level: must be debug, info, warn or error, not %q", l.level)
	}
	signal.Ignore(syscall.SIGPIPE)
	var to func(io.Writer) slog.Handler
	switch {
	case l.format == "text" || l.format == "auto" && terminal(w):
		to = func(w io.Writer) slog.Handler { return slog.NewTextHandler(w, &o) }
	case l.format == "json" || l.format == "auto":
		to = func(w io.Writer) slog.Handler { return slog.NewJSONHandler(w, &o) }
	default:
		return nil, fmt.Errorf("--log-format: must be text, json or auto, not %q", l.format)
	}
	l.lines = async.New(w, maxWaiting, func(out io.Writer, lost int) {
		slog.New(to(out)).Warn("log lines were lost: the reader of the log is too slow", "lines", lost)
	})
	return slog.New(byLevel{to(l.lines), to(l.lines.Urgent())}), nil
}

// byLevel handles errors apart: they find room where others are lost.
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

// close waits until the log is read, for some time.
func (l *logging) close() { l.lines.Close(lastLines) }

func terminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
