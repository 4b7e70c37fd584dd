package chaos

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/chancery-xds/chancery/e2e/harness"
)

// A server is the program with its directory.
type server struct {
	harness.Monitor
	binary     string
	dir, state string
	addr       string // host:port
	log        string // path
	args, env  []string
	shell      string                     // what a shell does before it becomes the server; "": there is none
	as         *syscall.Credential        // nil: who runs the test
	attr       func(*syscall.SysProcAttr) // nil: nothing else

	cmd   *exec.Cmd
	ended chan struct{}
}

// start runs the program and waits until it is ready.
func (s *server) start() error {
	log, err := os.OpenFile(s.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	args := append([]string{"serve", s.dir, "--listen", s.addr, "--metrics-listen", string(s.Monitor), "--state-dir", s.state, "--log-format", "json"}, s.args...)
	cmd := exec.Command(s.binary, args...)
	if s.shell != "" {
		cmd = exec.Command("sh", append([]string{"-c", s.shell + ` && exec "$0" "$@"`, s.binary}, args...)...)
	}
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = append(os.Environ(), s.env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.as}
	if s.attr != nil {
		s.attr(cmd.SysProcAttr)
	}
	harness.DieWithParent(cmd)
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() { cmd.Wait(); close(ended) }()
	s.cmd, s.ended = cmd, ended
	for until := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		select {
		case <-ended:
			return fmt.Errorf("the server ended: %v\n%s", cmd.ProcessState, harness.Tail(s.log, 20))
		default:
		}
		err := s.ready()
		if err == nil {
			return nil
		}
		if time.Now().After(until) {
			return fmt.Errorf("the server is not ready: %w\n%s", err, harness.Tail(s.log, 20))
		}
	}
}

func (s *server) signal(sig syscall.Signal) error { return s.cmd.Process.Signal(sig) }

// kill ends the program without a word.
func (s *server) kill() error {
	err := s.cmd.Process.Kill()
	<-s.ended
	return err
}

// stop ends the program as an operator does.
func (s *server) stop() error {
	if s.cmd == nil {
		return nil
	}
	select {
	case <-s.ended:
		return nil
	default:
	}
	s.signal(syscall.SIGCONT)
	s.signal(syscall.SIGTERM)
	select {
	case <-s.ended:
	case <-time.After(15 * time.Second):
		s.kill()
		return errors.New("the server does not end on SIGTERM")
	}
	if code := s.cmd.ProcessState.ExitCode(); code != 0 {
		return fmt.Errorf("the server ended with %d\n%s", code, harness.Tail(s.log, 20))
	}
	return nil
}

func (s *server) ready() error {
	if _, err := s.Get("/readyz"); err != nil {
		return err
	}
	c, err := net.Dial("tcp", s.addr)
	if err == nil {
		c.Close()
	}
	return err
}

// beyond returns an error if more is open than before.
func beyond(now, was harness.Usage) error {
	var all []error
	for _, x := range []struct {
		what             string
		now, was, margin int // by the margin one look differs from another
	}{
		{"streams", now.Streams, was.Streams, 0},
		{"goroutines", now.Goroutines, was.Goroutines, 10},
		{"open files", now.Files, was.Files, 5},
	} {
		if x.now > x.was+x.margin {
			all = append(all, fmt.Errorf("%d %s, and %d before", x.now, x.what, x.was))
		}
	}
	return errors.Join(all...)
}

// heavier reports whether memory use grew by more than the variation between two measurements.
func heavier(now, was harness.Usage) bool { return now.Heap > 2+was.Heap*1.1 }

// logged reports how often the log has a text.
func (s *server) logged(text string) int {
	b, _ := os.ReadFile(s.log)
	return bytes.Count(b, []byte(text))
}

// peak returns the most memory that the process has had, in MiB.
func (s *server) peak() float64 {
	most, _ := harness.Memory(s.cmd.Process.Pid, "VmHWM")
	return most
}
