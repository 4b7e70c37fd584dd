package server

import (
	"log/slog"
	"time"

	"github.com/chancery-xds/chancery/protocol"
)

// An Option changes a server from its defaults.
type Option func(*options)

type options struct {
	limits       protocol.Options
	identifier   func() string
	log          *slog.Logger
	observer     Observer
	writeTimeout time.Duration
	drainTime    time.Duration
}

func defaults() options {
	return options{
		limits:       protocol.Options{MaxNames: 100_000},
		identifier:   func() string { return "" },
		log:          slog.Default(),
		writeTimeout: 20 * time.Second,
		drainTime:    5 * time.Second,
	}
}

// WithLimits sets what one stream may ask for and when responses are split;
// fields that are zero keep their default, Refused is ignored. By default a
// stream may open 64 types and subscribe to 100,000 names of 4,096 bytes in
// each; responses are split at 3 MiB. A client that exceeds a limit gets
// RESOURCE_EXHAUSTED.
func WithLimits(l protocol.Options) Option {
	return func(o *options) {
		if l.MaxNames == 0 {
			l.MaxNames = o.limits.MaxNames
		}
		o.limits = l
	}
}

// WithIdentifier sets what responses say as control_plane.identifier: which
// replica, at which revision, answered. It is called for each response, by
// several goroutines. By default nothing is said.
func WithIdentifier(f func() string) Option { return func(o *options) { o.identifier = f } }

// WithLogger sets where the server logs; slog.Default() unless set. A NACK is
// one line of level WARN; those that give the same reason within 10 s after it
// are lines of level DEBUG, and together one of level WARN that counts them
// ("repeated"). An ACK is one line of level DEBUG.
func WithLogger(l *slog.Logger) Option { return func(o *options) { o.log = l } }

// WithObserver sets who is told what happens on the streams. By default nobody
// is.
func WithObserver(obs Observer) Option { return func(o *options) { o.observer = obs } }

// WithWriteTimeout sets how long one message may wait for a client to read. The
// stream of a client that takes longer ends with DEADLINE_EXCEEDED. The default
// is 20 s.
func WithWriteTimeout(d time.Duration) Option { return func(o *options) { o.writeTimeout = d } }

// WithDrainTime sets over which time [Server.Drain] ends the streams, so that
// clients do not all reconnect elsewhere at once. The default is 5 s; zero ends
// all at once.
func WithDrainTime(d time.Duration) Option { return func(o *options) { o.drainTime = d } }
