package daemon

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// A log line about an exceeded limit names the flag that raises it.
func TestLogOfLimitNamesFlag(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(limitFlagHandler{slog.NewTextHandler(&out, nil)}).With("a", 1).WithGroup("g")
	for limit, want := range map[string]string{"streams": "--max-streams", "name_length": "--max-name-length", "type_url": "", "": ""} {
		out.Reset()
		log.Warn("stream closed: client exceeded a limit or sent a malformed request", "error", "more than 7", "limit", limit)
		_, flag, _ := strings.Cut(strings.TrimSpace(out.String()), "g.flag=")
		if flag != want {
			t.Errorf("%q has the flag %q, want %q", limit, flag, want)
		}
	}
	out.Reset()
	log.Warn("client refused a response (NACK)", "error", "limit exceeded: 7 streams are open, limit=streams")
	if strings.Contains(out.String(), "flag=") {
		t.Errorf("a client's text got the flag of a limit: %s", &out)
	}
	all := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	new(limitFlags).flags(all)
	for limit, flag := range flagOfLimit {
		if all.Lookup(strings.TrimPrefix(flag, "--")) == nil {
			t.Errorf("%s: no flag %s", limit, flag)
		}
	}
	for limit := range server.New(store.New()).Stats().Throttled {
		// Several flags limit subscriptions. No flag limits unanswered responses.
		if flagOfLimit[limit] == "" && limit != "subscription" && limit != string(xds.LimitUnanswered) {
			t.Errorf("no flag raises %q", limit)
		}
	}
}
