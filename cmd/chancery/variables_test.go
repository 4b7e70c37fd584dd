package main

import (
	"cmp"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/chancery-xds/chancery/internal/cli"
)

// An environment variable counts only for the commands that it is meant for. The table has the variables that count
// for other commands than services, and some that do not.
func TestVariablesOfCommands(t *testing.T) {
	services := []string{"agent", "endpoints follow", "health", "serve"}
	steering := "freeze history rollback rollout-abort rollout-pause rollout-promote rollout-resume rollout-start rollout-status"
	admin := "apply blame bugreport diff disconnect endpoints-follow endpoints-ls endpoints-put endpoints-rm explain export " +
		"get graph reload resync status unfreeze wait watch " + steering
	store := "apply blame diff export serve store-restore sweep unfreeze " + steering
	client := "agent bootstrap-envoy bootstrap-grpc diff fetch watch"
	reader := "apply check diff export preview serve"
	want := map[string]string{} // the commands, by variable
	for _, row := range []struct{ commands, variables string }{
		{admin, "ADMIN ADMIN_CA ADMIN_CERT ADMIN_KEY"},
		{admin + " serve", "ADMIN_TOKEN_FILE"},
		{store, "STORE STORE_CA STORE_CERT STORE_KEY STORE_PASSWORD_FILE STORE_TLS STORE_USER"},
		{client, "CLIENT_TLS_CERT CLIENT_TLS_KEY TLS TLS_CA TLS_SERVER_NAME"},
		{"agent bootstrap-envoy bootstrap-grpc fetch", "NODE CLUSTER"},
		{"agent fetch", "NODE_JSON"},
		{"bootstrap-envoy bootstrap-grpc", "SERVER"},
		{"agent bootstrap-envoy export", "ENVOY_ADMIN"},
		{reader, "FOLLOW_LINKS_OUTSIDE LEGACY_V2"},
		{reader + " import", "MAX_FILE"},
		{reader + " agent bootstrap-envoy fetch import watch", "PROTO_SET"},
		{"bugreport health serve", "METRICS_LISTEN"},
		{"agent reload serve state-ls state-rm", "STATE_DIR"},
		{"agent endpoints-follow export serve", "LOG_FORMAT LOG_LEVEL"},
		{"serve", "TLS_CERT TLS_KEY LISTEN ACCESS VALIDATE ALLOW_MASS_DELETE"},
		{"agent", "DELTA SETTLE"},
		{"", "OUTPUT KIND LIMIT DRY_RUN YES ALL TYPE HELP LOCAL FORCE PRUNE AUTHOR MESSAGE"},
	} {
		for v := range strings.FieldsSeq(row.variables) {
			commands := strings.Fields(row.commands)
			slices.Sort(commands)
			want[cli.VariablePrefix+v] = strings.ReplaceAll(strings.Join(commands, ", "), "-", " ")
		}
	}
	got := map[string]map[string]bool{}
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, c := range cmd.Commands() {
			walk(c)
		}
		if !cmd.Runnable() || cmd.Hidden {
			return
		}
		cmd.SetErr(io.Discard)
		_, path, _ := strings.Cut(cmd.CommandPath(), " ")
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			own := strings.Join(f.Annotations[cli.OwnVariable], "")
			name := cmp.Or(own, cli.VariablePrefix+strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_")))
			t.Setenv(name, "-1")
			if err := cli.BindEnvironment(cmd, nil); err != nil || f.Changed {
				if got[name] == nil {
					got[name] = map[string]bool{}
				}
				got[name][path] = true
			}
			t.Setenv(name, "")
		})
	}
	walk(newRoot())
	for name, commands := range want {
		if of := strings.Join(slices.Sorted(maps.Keys(got[name])), ", "); of != commands {
			t.Errorf("%s counts for %q, want %q", name, of, commands)
		}
		delete(got, name)
	}
	for name, commands := range got {
		for c := range commands {
			if !slices.Contains(services, c) {
				t.Errorf("%s counts for %s, which is no service", name, c)
			}
		}
	}
}
