package main

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/pflag"
)

// A logging is how to log, as the flags say.
type logging struct{ level, format string }

func (l *logging) flags(f *pflag.FlagSet) {
	f.StringVar(&l.level, "log-level", "info", "least `LEVEL` to log: debug, info, warn or error")
	f.StringVar(&l.format, "log-format", "auto", "`FORMAT` of the log: text, json, or auto: text on a terminal, else json")
}

// open returns a log to w; an error is one of usage. From then on the program outlives
// who reads the log: a line that nobody can be told is lost.
func (l logging) open(w io.Writer) (*slog.Logger, error) {
	var o slog.HandlerOptions
	switch l.level {
	case "debug":
		o.Level = slog.LevelDebug
	case "info":
		o.Level = slog.LevelInfo
	case "warn":
		o.Level = slog.LevelWarn
	case "error":
		o.Level = slog.LevelError
	default:
		return nil, fmt.Errorf("--log-level: %q is none of debug, info, warn and error", l.level)
	}
	signal.Ignore(syscall.SIGPIPE)
	switch {
	case l.format == "text" || l.format == "auto" && terminal(w):
		return slog.New(slog.NewTextHandler(w, &o)), nil
	case l.format == "json" || l.format == "auto":
		return slog.New(slog.NewJSONHandler(w, &o)), nil
	}
	return nil, fmt.Errorf("--log-format: %q is none of text, json and auto", l.format)
}

func terminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
