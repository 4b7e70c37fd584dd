package real

import (
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

var programs = flag.String("programs", "", "`directory` with kube-apiserver, etcd, chancery and chancery-k8s: make k8s-real")

// A process is a running program that can be killed and started again with the same arguments.
type process struct {
	*testing.T
	log  string
	args []string
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
}

// launch starts one of the programs. It ends with the test.
func launch(t *testing.T, name string, args ...string) *process {
	t.Helper()
	p := &process{T: t, log: filepath.Join(t.TempDir(), name+".log"), args: append([]string{filepath.Join(*programs, name)}, args...)}
	p.start()
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("the end of the log of %s:\n%s", name, tail(p.said()))
		}
	})
	return p
}

func (p *process) start() {
	p.Helper()
	f, err := os.OpenFile(p.log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		p.Fatal(err)
	}
	defer f.Close()
	p.cmd, p.done = exec.Command(p.args[0], p.args[1:]...), make(chan struct{})
	p.cmd.Stdout, p.cmd.Stderr = f, f
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // also if this test ends without its cleanups
	if err := p.cmd.Start(); err != nil {
		p.Fatal(err)
	}
	go func(cmd *exec.Cmd, done chan struct{}) {
		_ = cmd.Wait()
		close(done)
	}(p.cmd, p.done)
}

// kill sends SIGKILL.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// stop sends SIGTERM, and returns how long the end took, and the exit code.
func (p *process) stop() (time.Duration, int) {
	p.Helper()
	began := time.Now()
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(2 * time.Minute):
		p.Fatal("it does not end")
	}
	return time.Since(began), p.cmd.ProcessState.ExitCode()
}

// said returns the log of the process.
func (p *process) said() string {
	b, err := os.ReadFile(p.log)
	if err != nil {
		p.Fatal(err)
	}
	return string(b)
}

// says waits until the log has a line with all texts, after a mark.
func (p *process) says(after int, texts ...string) {
	p.Helper()
	eventually(p.T, func() error {
		for line := range strings.Lines(p.said()[after:]) {
			if all(line, texts) {
				return nil
			}
		}
		return fmt.Errorf("the log does not say %q:\n%s", texts, tail(p.said()[after:]))
	})
}

// mark returns the present end of the log.
func (p *process) mark() int { return len(p.said()) }

func all(line string, texts []string) bool {
	for _, text := range texts {
		if !strings.Contains(line, text) {
			return false
		}
	}
	return true
}

func tail(text string) string { return text[max(0, len(text)-3000):] }

// eventually waits until a condition holds, and returns how long that took.
func eventually(t *testing.T, condition func() error) time.Duration {
	t.Helper()
	began := time.Now()
	for {
		err := condition()
		if err == nil {
			return time.Since(began)
		}
		if time.Since(began) > 5*time.Minute {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Millisecond) // between two checks
	}
}

var lastPort = 20000 + os.Getpid()*131%12000 // below the ephemeral ports

// free returns an address without a listener.
func free(t *testing.T) string {
	t.Helper()
	for range 1000 {
		lastPort++
		address := fmt.Sprintf("127.0.0.1:%d", lastPort)
		if l, err := net.Listen("tcp", address); err == nil {
			l.Close()
			return address
		}
	}
	t.Fatal("no free port")
	return ""
}
