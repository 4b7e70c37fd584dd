package main

import (
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	_ "github.com/cncf/xds/go/udpa/annotations"
	"github.com/rogpeppe/go-internal/testscript"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/chancery-xds/chancery/internal/testkit/canned"
)

var update = flag.Bool("update", false, "write what commands print into the scripts")

// TestScripts runs commands as users type them. "exits CODE chancery …" checks an exit code; "descriptors
// FILE TEXT" writes a FileDescriptorSet given in text format. $CANNED is the URL of an admin API with
// constant answers, which contain hostile texts of clients; $DOCUMENTED the same for docs/commands.md. $XDS
// is the URL of an xDS server.
func TestScripts(t *testing.T) {
	canned, documented, xds := canned.Server(t, false), canned.Server(t, true), cannedXDS(t)
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		UpdateScripts:       *update,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Deadline:            time.Now().Add(8 * time.Minute), // for all scripts together: a server that starts by mistake does not end
		Setup: func(e *testscript.Env) error {
			e.Setenv("PATH", filepath.Dir(binary)+string(os.PathListSeparator)+e.Getenv("PATH"))
			e.Setenv("STATE_DIRECTORY", filepath.Join(e.WorkDir, ".state"))
			e.Setenv("CHANCERY_ADMIN_LISTEN", "127.0.0.1:0")
			e.Setenv("CANNED", canned)
			e.Setenv("DOCUMENTED", documented)
			e.Setenv("XDS", xds)
			e.Setenv("TZ", "UTC")
			e.Setenv("MUTANT", os.Getenv("MUTANT")) // the mutation in force: see tools/mutants
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": exits, "descriptors": writeDescriptors},
	})
}

func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE PROGRAM ARG...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	code := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		e, ok := errors.AsType[*exec.ExitError](err)
		if !ok {
			ts.Fatalf("%v", err)
		}
		code = e.ExitCode()
	}
	if code != want {
		ts.Fatalf("exit code %d, want %d", code, want)
	}
}

func writeDescriptors(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: descriptors FILE TEXT")
	}
	var set descriptorpb.FileDescriptorSet
	ts.Check(prototext.Unmarshal([]byte(ts.ReadFile(args[1])), &set))
	b, err := proto.Marshal(&set)
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), b, 0o600))
}
