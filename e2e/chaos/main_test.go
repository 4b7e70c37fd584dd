package chaos

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/chancery-xds/chancery/e2e/harness"
)

var whole = flag.Bool("whole", false, "play all rows, each for as long as the table says; otherwise those that take seconds")

// binary is the program under test.
var binary string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	flag.Parse()
	dir, err := os.MkdirTemp("", "chancery-chaos-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil { // for a server that is another user
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	binary = filepath.Join(dir, "chancery")
	os.Setenv("CHANCERY_ADMIN_LISTEN", "127.0.0.1:0") // several servers run at a time
	if err := harness.Build("../..", binary); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}
