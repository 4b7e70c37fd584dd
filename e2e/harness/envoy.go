package harness

import (
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// An Envoy is a running Envoy.
type Envoy struct {
	Admin string // host:port
	Log   string // path

	process *os.Process
}

// Signal sends the process a signal, such as one to stand still.
func (e *Envoy) Signal(s os.Signal) error { return e.process.Signal(s) }

// RunEnvoy runs the Envoy at path with the bootstrap in a file. drain is how long it drains removed
// listeners, in full seconds. It is killed when the test ends.
func RunEnvoy(t testing.TB, path, config string, drain time.Duration) *Envoy {
	t.Helper()
	Needs(t, path)
	dir := t.TempDir()
	address := filepath.Join(dir, "admin")
	e := &Envoy{Log: filepath.Join(dir, "envoy.log")}
	log, err := os.Create(e.Log)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(path, "--config-path", config, "--admin-address-path", address,
		"--concurrency", "1", "--disable-hot-restart", "--drain-time-s", strconv.Itoa(int(drain/time.Second)),
		"--log-level", "info", "--component-log-level", "main:warning", "--log-format", "%E.%e %l %n] %v")
	cmd.Stdout, cmd.Stderr = log, log
	DieWithParent(cmd)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	e.process = cmd.Process
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		select {
		case err := <-ended:
			t.Errorf("envoy ended by itself: %v", err)
		default:
			cmd.Process.Kill()
			<-ended
		}
		if t.Failed() {
			t.Logf("envoy's log:\n%s", Tail(e.Log, 30))
		}
	})
	Eventually(t, 20*time.Second, "envoy's admin address", func() error {
		b, err := os.ReadFile(address)
		if err == nil && len(b) == 0 {
			err = errors.New("empty")
		}
		e.Admin = string(b)
		return err
	})
	return e
}

// Get asks Envoy's admin interface.
func (e *Envoy) Get(path string) ([]byte, error) {
	return get(http.DefaultClient, e.Admin, path)
}

// Live is a condition: Envoy has finished initialising.
func (e *Envoy) Live() error {
	b, err := e.Get("/ready")
	if err == nil && strings.TrimSpace(string(b)) != "LIVE" {
		err = errors.New(string(b))
	}
	return err
}
