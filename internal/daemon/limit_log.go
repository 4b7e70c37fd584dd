package daemon

import (
	"context"
	"log/slog"

	"github.com/chancery-xds/chancery/internal/cli/xdsclient"
	"github.com/chancery-xds/chancery/xds"
)

// A limitFlagHandler adds a flag to each log line about a limit: the flag that raises the limit. The
// server writes these lines, but it is a library and does not know the flags.
type limitFlagHandler struct{ slog.Handler }

// flagOfLimit maps the name of a limit in the log to the flag that raises it.
var flagOfLimit = map[string]string{
	string(xds.LimitTypes):      "--max-types",
	string(xds.LimitNames):      "--max-names",
	string(xds.LimitNameLength): "--max-name-length",
	string(xds.LimitNode):       "--max-node",

	string(xds.LimitResponse): "--" + xdsclient.ResponseFlag,
	string(xds.LimitHeld):     "--" + xdsclient.AllFlag,

	"request":        "--max-request",
	"held":           "--max-held",
	"held_total":     "--max-held-total",
	"streams":        "--max-streams",
	"silent_streams": "--max-silent-streams",
	"other_streams":  "--max-other-streams",
	"polls":          "--max-polls",
	"unfinished":     "--max-unfinished",
	"rate":           "--max-rate",
	"address_rate":   "--max-address-rate",
	"stream_rate":    "--max-stream-rate",
	"first_answers":  "--max-first-answers",
	"first_request":  "--first-request-timeout",
	"read":           "--read-timeout",
	"write":          "--write-timeout",
}

// Handle implements [slog.Handler].
func (h limitFlagHandler) Handle(ctx context.Context, r slog.Record) error {
	flag := ""
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "limit" {
			flag = flagOfLimit[a.Value.String()]
		}
		return flag == ""
	})
	if flag != "" {
		r = r.Clone()
		r.AddAttrs(slog.String("flag", flag))
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements [slog.Handler].
func (h limitFlagHandler) WithAttrs(as []slog.Attr) slog.Handler {
	return limitFlagHandler{h.Handler.WithAttrs(as)}
}

// WithGroup implements [slog.Handler].
func (h limitFlagHandler) WithGroup(name string) slog.Handler {
	return limitFlagHandler{h.Handler.WithGroup(name)}
}
